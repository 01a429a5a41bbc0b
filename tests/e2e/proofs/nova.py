"""Nova boots an instance that gets its metadata, shows its console, and leaves nothing behind when it is deleted."""

# Also proves: compute
import base64
import contextlib
import secrets
import socket
import ssl
import time
import urllib.parse
import urllib.request

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
GUEST = "/guest/guest.qcow2"
# TEST-NET-2: no network of a cluster uses it.
RANGE = "198.51.100.0/28"
# Processors of instances may be emulated.
LIMIT = 600
# The guest prints these on its console.
BOOTED = ("METADATA-OK", "GUEST-READY")


def wait_until(description, condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {description}"
        time.sleep(2)


def check_services(cloud):
    def are_up():
        services = list(cloud.compute.services())
        running = {service.binary for service in services if service.state == "up"}
        return {"nova-scheduler", "nova-conductor", "nova-compute"} <= running

    wait_until("nova-scheduler, nova-conductor and nova-compute to be up", are_up)
    # A compute service is up before the scheduler has discovered its host.
    wait_until("a hypervisor", lambda: list(cloud.compute.hypervisors()))


def check_console(url):
    """Loads the page, and connects like its script: by a WebSocket, whose origin Nova verifies."""
    with urllib.request.urlopen(url, timeout=30) as page:
        assert b"noVNC" in page.read(), url
    address = urllib.parse.urlsplit(url)
    [path] = urllib.parse.parse_qs(address.query)["path"]
    is_secure = address.scheme == "https"
    request = [
        f"GET /{path} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Origin: {address.scheme}://{address.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(secrets.token_bytes(16)).decode()}",
        "Sec-WebSocket-Protocol: binary",
    ]
    port = address.port or (443 if is_secure else 80)
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection((address.hostname, port), timeout=60))
        if is_secure:
            context = ssl.create_default_context()
            connection = opened.enter_context(context.wrap_socket(connection, server_hostname=address.hostname))
        connection.sendall("\r\n".join([*request, "", ""]).encode())
        answer = b""
        # The first message of the protocol of consoles.
        while b"RFB 003." not in answer:
            part = connection.recv(4096)
            assert part, f"the console is closed: {answer!r}"
            answer += part


def main():
    cloud = openstack.connect()
    check_services(cloud)
    with contextlib.ExitStack() as cleanup:
        image = cloud.create_image(
            NAME, filename=GUEST, disk_format="qcow2", container_format="bare", os_shutdown_timeout="5", wait=True
        )
        cleanup.callback(cloud.image.delete_image, image.id)
        flavor = cloud.create_flavor(NAME, 256, 1, 1)
        cleanup.callback(cloud.compute.delete_flavor, flavor.id)
        network = cloud.create_network(NAME)
        cleanup.callback(cloud.network.delete_network, network.id)
        cloud.create_subnet(network.id, cidr=RANGE, subnet_name=NAME, enable_dhcp=True)
        server = cloud.compute.create_server(
            name=NAME, image_id=image.id, flavor_id=flavor.id, networks=[{"uuid": network.id}]
        )
        cleanup.callback(cloud.delete_server, server.id, wait=True, timeout=LIMIT)
        server = cloud.compute.wait_for_server(server, wait=LIMIT)
        assert server.status == "ACTIVE", server.status
        assert server.addresses[NAME], server.addresses

        def has_booted():
            log = cloud.compute.get_server_console_output(server.id)["output"]
            return all(mark in log for mark in BOOTED)

        wait_until(f"{BOOTED} on the console", has_booted)
        check_console(cloud.compute.create_console(server.id, console_type="novnc")["url"])
    assert not list(cloud.network.ports(device_owner="compute:nova", device_id=server.id))


main()
