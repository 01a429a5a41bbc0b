"""Boots an instance on a node, gives it a floating IP, and prints that."""

import sys

import openstack

LIMIT = 180


def main(name, image, node):
    cloud = openstack.connect()
    # An earlier attempt may have failed.
    for server in cloud.compute.servers(name=f"^{name}$"):
        cloud.delete_server(server.id, wait=True, timeout=LIMIT)
    body = {
        "name": name,
        "imageRef": cloud.image.find_image(image, ignore_missing=False).id,
        "flavorRef": cloud.compute.find_flavor("small", ignore_missing=False).id,
        "key_name": "key",
        "networks": [{"uuid": cloud.network.find_network("private", ignore_missing=False).id}],
        "security_groups": [{"name": "instances"}],
        "host": node,
    }
    # The first version that accepts a host.
    answer = cloud.compute.post("/servers", json={"server": body}, microversion="2.74")
    openstack.exceptions.raise_from_response(answer)
    server = cloud.compute.get_server(answer.json()["server"]["id"])
    cloud.compute.wait_for_server(server, wait=LIMIT)
    [port] = cloud.network.ports(device_id=server.id)
    public = cloud.network.find_network("public", ignore_missing=False)
    address = cloud.network.create_ip(floating_network_id=public.id, port_id=port.id)
    print(address.floating_ip_address)


main(*sys.argv[1:])
