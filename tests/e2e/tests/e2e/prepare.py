"""Creates what the instances of a suite share: image, flavor, networks, router, security group and key."""

import sys

import openstack

GUEST = "/guest/guest.qcow2"


def main(public_range, key):
    cloud = openstack.connect()
    # A guest that ignores the power button is stopped after this time.
    cloud.create_image(
        "guest", filename=GUEST, disk_format="qcow2", container_format="bare", os_shutdown_timeout="5", wait=True
    )
    cloud.create_flavor("small", 256, 1, 1)
    prefix = public_range.split("/")[0].rsplit(".", 1)[0]
    public = cloud.create_network(
        "public", external=True, provider={"network_type": "flat", "physical_network": "physnet1"}
    )
    cloud.create_subnet(
        public.id,
        cidr=public_range,
        subnet_name="public",
        gateway_ip=f"{prefix}.1",
        allocation_pools=[{"start": f"{prefix}.100", "end": f"{prefix}.200"}],
        enable_dhcp=False,
    )
    private = cloud.create_network("private")
    subnet = cloud.create_subnet(private.id, cidr="10.0.0.0/24", subnet_name="private", enable_dhcp=True)
    router = cloud.network.create_router(name="router", external_gateway_info={"network_id": public.id})
    cloud.network.add_interface_to_router(router, subnet_id=subnet.id)
    group = cloud.network.create_security_group(name="instances")
    for rule in ({"protocol": "icmp"}, {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}):
        cloud.network.create_security_group_rule(security_group_id=group.id, direction="ingress", **rule)
    cloud.compute.create_keypair(name="key", public_key=key)


main(*sys.argv[1:])
