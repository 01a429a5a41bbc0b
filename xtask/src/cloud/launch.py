"""Boots a VM. Creates each thing that the VM needs unless it exists, and reports progress as lines of JSON."""

import json
import sys
import time

import openstack

GUEST = "/guest/guest.qcow2"
IMAGE = "guest"
FLAVOR = "small"
PROVIDER_NETWORK = "public"
NETWORK = "private"
ROUTER = "router"
SECURITY_GROUP = "ssh-and-ping"
KEYPAIR = "launch"
# Where QEMU emulates the processor of a busy machine, a VM takes minutes.
BOOT_TIMEOUT = 600
POLL_INTERVAL = 2


class LaunchError(Exception):
    """A failure with a message for the user."""


def report(**event):
    print(json.dumps(event), flush=True)


def first(items):
    return next(iter(items), None)


def ensure(step, find, create):
    """Finds or creates one resource, as a step."""
    report(step=step)
    found = find()
    if found:
        report(done="exists")
        return found
    created = create()
    report(done="created")
    return created


def ensure_image(cloud):
    # An upload that was interrupted leaves an image that is not active.
    return ensure(
        f"image {IMAGE}",
        lambda: first(image for image in cloud.image.images(name=IMAGE) if image.status == "active"),
        lambda: cloud.create_image(
            IMAGE,
            filename=GUEST,
            disk_format="qcow2",
            container_format="bare",
            visibility="public",
            # The guest may not answer the power button.
            os_shutdown_timeout="5",
            allow_duplicates=True,
            wait=True,
        ),
    )


def ensure_provider_network(cloud, provider):
    # The physical network is flat, so that there can be only one network on it, whatever its name.
    network = ensure(
        f"network {PROVIDER_NETWORK}",
        lambda: first(cloud.network.networks(is_router_external=True)),
        lambda: cloud.network.create_network(
            name=PROVIDER_NETWORK,
            is_router_external=True,
            provider_network_type="flat",
            provider_physical_network=provider["physicalNetwork"],
        ),
    )
    ensure(
        f"subnet {PROVIDER_NETWORK}",
        lambda: first(cloud.network.subnets(network_id=network.id)),
        lambda: cloud.network.create_subnet(
            name=PROVIDER_NETWORK,
            network_id=network.id,
            ip_version=4,
            cidr=provider["range"],
            gateway_ip=provider["gateway"],
            allocation_pools=[{"start": provider["first"], "end": provider["last"]}],
            is_dhcp_enabled=False,
        ),
    )
    return network


def ensure_network(cloud, provider_network, project_range):
    network = ensure(
        f"network {NETWORK}",
        lambda: cloud.network.find_network(NETWORK),
        lambda: cloud.network.create_network(name=NETWORK),
    )
    subnet = ensure(
        f"subnet {NETWORK}",
        lambda: first(cloud.network.subnets(network_id=network.id)),
        lambda: cloud.network.create_subnet(
            name=NETWORK, network_id=network.id, ip_version=4, cidr=project_range, is_dhcp_enabled=True
        ),
    )
    router = ensure(
        f"router {ROUTER}",
        lambda: cloud.network.find_router(ROUTER),
        lambda: cloud.network.create_router(
            name=ROUTER, external_gateway_info={"network_id": provider_network.id}
        ),
    )
    ensure(
        f"interface of {ROUTER}",
        lambda: first(cloud.network.ports(device_id=router.id, network_id=network.id)),
        lambda: cloud.network.add_interface_to_router(router, subnet_id=subnet.id),
    )
    return network


def ensure_security_group(cloud):
    group = ensure(
        f"security group {SECURITY_GROUP}",
        lambda: cloud.network.find_security_group(SECURITY_GROUP),
        lambda: cloud.network.create_security_group(name=SECURITY_GROUP),
    )
    for name, rule in {
        "ping": {"protocol": "icmp"},
        "ssh": {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22},
    }.items():
        rule = {"security_group_id": group.id, "direction": "ingress", **rule}
        ensure(
            f"rule {name}",
            lambda rule=rule: first(cloud.network.security_group_rules(**rule)),
            lambda rule=rule: cloud.network.create_security_group_rule(ether_type="IPv4", **rule),
        )
    return group


def ensure_keypair(cloud, public_key):
    def find():
        keypair = cloud.compute.find_keypair(KEYPAIR)
        if keypair and keypair.public_key.split()[:2] != public_key.split()[:2]:
            cloud.compute.delete_keypair(keypair)
            return None
        return keypair

    return ensure(
        f"keypair {KEYPAIR}",
        find,
        lambda: cloud.compute.create_keypair(name=KEYPAIR, public_key=public_key),
    )


def wait_until_active(cloud, server):
    """Waits until the VM runs; starts it if it was stopped."""
    started, deadline = False, time.monotonic() + BOOT_TIMEOUT
    report(step=f"VM {server.name} ACTIVE")
    while server.status != "ACTIVE":
        if server.status == "ERROR":
            message = (server.fault or {}).get("message", "no reason is recorded")
            raise LaunchError(f"VM {server.name} is in state ERROR: {message}")
        if server.status == "SHUTOFF" and not started:
            cloud.compute.start_server(server)
            started = True
        if time.monotonic() > deadline:
            raise LaunchError(f"VM {server.name} is still {server.status} after {BOOT_TIMEOUT} s")
        report(progress=f"{server.status} {server.task_state or ''}".strip())
        time.sleep(POLL_INTERVAL)
        server = cloud.compute.get_server(server.id)
    report(done=f"on {server.compute_host}")
    return server


def ensure_floating_ip(cloud, provider_network, server):
    port = first(cloud.network.ports(device_id=server.id))
    if not port:
        raise LaunchError(f"VM {server.name} has no port")

    def attach():
        addresses = cloud.network.ips(floating_network_id=provider_network.id)
        unused = first(address for address in addresses if not address.port_id)
        if unused:
            return cloud.network.update_ip(unused, port_id=port.id)
        return cloud.network.create_ip(floating_network_id=provider_network.id, port_id=port.id)

    return ensure("floating IP", lambda: first(cloud.network.ips(port_id=port.id)), attach)


def launch(settings):
    report(step="login")
    cloud = openstack.connect(load_yaml_config=False)
    cloud.authorize()
    report(done="")
    image = ensure_image(cloud)
    flavor = ensure(
        f"flavor {FLAVOR}",
        lambda: cloud.compute.find_flavor(FLAVOR),
        lambda: cloud.compute.create_flavor(name=FLAVOR, ram=256, vcpus=1, disk=1),
    )
    provider_network = ensure_provider_network(cloud, settings["provider"])
    network = ensure_network(cloud, provider_network, settings["projectRange"])
    group = ensure_security_group(cloud)
    keypair = ensure_keypair(cloud, settings["publicKey"])
    name = settings["name"]
    server = ensure(
        f"VM {name}",
        lambda: cloud.compute.find_server(name),
        lambda: cloud.compute.create_server(
            name=name,
            image_id=image.id,
            flavor_id=flavor.id,
            networks=[{"uuid": network.id}],
            key_name=keypair.name,
            security_groups=[{"name": group.id}],
        ),
    )
    server = wait_until_active(cloud, cloud.compute.get_server(server.id))
    report(address=ensure_floating_ip(cloud, provider_network, server).floating_ip_address)


def main():
    try:
        launch(json.loads(sys.argv[1]))
    except (LaunchError, openstack.exceptions.SDKException) as error:
        report(error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
