"""Cinder's volumes keep their data when they are attached, extended, copied, backed up, moved, encrypted and booted."""

# Also proves: nova, compute
import base64
import contextlib
import functools
import re
import secrets
import time

import openstack
from openstack import exceptions

NAME = f"proof-{secrets.token_hex(4)}"
GUEST = "/guest/guest.qcow2"
# TEST-NET-2: no network of a cluster uses it.
RANGE = "198.51.100.16/28"
# Processors of instances may be emulated.
LIMIT = 900
VERSION = "3.70"
# The guest fills an empty disk with random data. For each disk it prints the serial number, which is the start of the ID of
# the volume, a checksum of the data, and the size.
AGENT = """#!/bin/sh
watch() {
    disk=$1 known=
    while sleep 1; do
        serial=$(cat "/sys/block/$disk/serial" 2> /dev/null) || { known=; continue; }
        sectors=$(cat "/sys/block/$disk/size")
        [ "$serial $sectors" = "$known" ] && continue
        if [ "${known% *}" != "$serial" ]; then
            if ! dd if="/dev/$disk" bs=1M count=1 2> /dev/null | tr -d '\\000' | grep -q .; then
                dd if=/dev/urandom of="/dev/$disk" bs=1M count=1 conv=fsync 2> /dev/null
            fi
            echo 3 > /proc/sys/vm/drop_caches
            echo "PROOF $serial data $(dd if="/dev/$disk" bs=1M count=1 2> /dev/null | sha256sum | cut -c 1-64)"
        fi
        echo "PROOF $serial size $((sectors / 2048))"
        known="$serial $sectors"
    done
}
watch vdb > /dev/console 2>&1 &
"""


def wait_until(description, condition):
    deadline = time.monotonic() + LIMIT
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {description}"
        time.sleep(2)
    return result


class Volumes:
    """The block storage API."""

    def __init__(self, cloud):
        self.cloud = cloud

    def call(self, method, path, **body):
        request = {"json": body} if body else {}
        answer = self.cloud.block_storage.request(path, method, microversion=VERSION, **request)
        exceptions.raise_from_response(answer)
        return answer.json() if answer.content else None

    def reached(self, kind, identifier, status):
        found = self.call("GET", f"/{kind}s/{identifier}")[kind]
        assert not found["status"].startswith("error"), found
        return found if found["status"] == status else None

    def wait(self, kind, identifier, status="available"):
        return wait_until(f"{kind} {identifier} to be {status}", lambda: self.reached(kind, identifier, status))

    def is_gone(self, kind, identifier):
        try:
            found = self.call("GET", f"/{kind}s/{identifier}")[kind]
        except exceptions.NotFoundException:
            return True
        assert found["status"] != "error_deleting", found
        return False

    def delete(self, kind, identifier):
        self.call("DELETE", f"/{kind}s/{identifier}")
        wait_until(f"the deletion of {kind} {identifier}", lambda: self.is_gone(kind, identifier))

    def create(self, cleanup, kind, **body):
        """Creates a volume, a snapshot or a backup."""
        identifier = self.call("POST", f"/{kind}s", **{kind: {"name": NAME, **body}})[kind]["id"]
        cleanup.callback(self.delete, kind, identifier)
        return self.wait(kind, identifier)["id"]

    def types(self):
        """IDs of all types by name, the default type, and an encrypted one."""
        types = {found["name"]: found["id"] for found in self.call("GET", "/types?is_public=None")["volume_types"]}
        default = self.call("GET", "/types/default")["volume_type"]["name"]
        encrypted = [name for name, found in types.items() if self.call("GET", f"/types/{found}/encryption")]
        return types, default, encrypted

    def are_up(self):
        services = self.call("GET", "/os-services")["services"]
        programs = {service["binary"] for service in services}
        is_complete = {"cinder-scheduler", "cinder-volume", "cinder-backup"} <= programs
        return is_complete and all(service["state"] == "up" for service in services)


class Server:
    """An instance that reports on its disks."""

    def __init__(self, cloud, volumes, cleanup, **settings):
        self.cloud, self.volumes = cloud, volumes
        server = cloud.compute.create_server(name=NAME, user_data=base64.b64encode(AGENT.encode()).decode(), **settings)
        cleanup.callback(cloud.delete_server, server.id, wait=True, timeout=LIMIT)
        self.id = cloud.compute.wait_for_server(server, wait=LIMIT).id

    def console(self):
        return self.cloud.compute.get_server_console_output(self.id)["output"]

    def wait_for_boot(self):
        wait_until("the instance to boot", lambda: "GUEST-READY" in self.console())

    def reported(self, volume, subject):
        found = re.findall(rf"PROOF {volume[:20]} {subject} (\S+)", self.console())
        return found[-1] if found else None

    def size(self, volume, gibibytes):
        wait_until("the size of the volume", lambda: self.reported(volume, "size") == str(gibibytes * 1024))

    @contextlib.contextmanager
    def attached(self, volume):
        """Attaches a volume, and returns the checksum of its data."""
        path = f"/servers/{self.id}/os-volume_attachments"
        body = {"volumeAttachment": {"volumeId": volume}}
        exceptions.raise_from_response(self.cloud.compute.post(path, json=body))
        try:
            self.volumes.wait("volume", volume, "in-use")
            yield wait_until("the data of the volume", lambda: self.reported(volume, "data"))
        finally:
            exceptions.raise_from_response(self.cloud.compute.delete(f"{path}/{volume}"))
            self.volumes.wait("volume", volume)

    def data(self, volume):
        with self.attached(volume) as data:
            return data


def check_copies(volumes, cleanup, volume, data, second):
    """Snapshots, clones and backups have the data of their volume."""
    create = functools.partial(volumes.create, cleanup)
    snapshot = create("snapshot", volume_id=volume)
    assert second.data(create("volume", size=2, snapshot_id=snapshot)) == data
    backup = create("backup", volume_id=volume)
    restored = create("volume", size=2)
    volumes.call("POST", f"/backups/{backup}/restore", restore={"volume_id": restored})
    volumes.wait("backup", backup)
    volumes.wait("volume", restored)
    assert second.data(restored) == data


def check_retype(volumes, volume, wanted):
    """A volume moves to another backend."""
    before = volumes.call("GET", f"/volumes/{volume}")["volume"]["os-vol-host-attr:host"]
    retype = {"new_type": wanted, "migration_policy": "on-demand"}
    volumes.call("POST", f"/volumes/{volume}/action", **{"os-retype": retype})

    def has_moved():
        found = volumes.reached("volume", volume, "available")
        return found and found["volume_type"] == wanted and found["os-vol-host-attr:host"] != before

    wait_until(f"the volume to move to {wanted}", has_moved)


def check_boot(cloud, volumes, cleanup, image, settings):
    """An instance boots from a volume with the content of an image."""
    volume = volumes.create(cleanup, "volume", size=1, imageRef=image.id)
    disk = {"boot_index": 0, "uuid": volume, "source_type": "volume", "destination_type": "volume"}
    with contextlib.ExitStack() as instance:
        Server(cloud, volumes, instance, block_device_mapping=[disk], **settings).wait_for_boot()
    volumes.wait("volume", volume)


def main():
    cloud = openstack.connect()
    volumes = Volumes(cloud)
    wait_until("scheduler, volume and backup services to be up", volumes.are_up)
    types, default, encrypted = volumes.types()
    others = [name for name in types if name not in (default, "__DEFAULT__", *encrypted)]
    assert others and encrypted, f"the proof needs two backends and an encrypted type: {types}"
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
        settings = {"flavor_id": flavor.id, "networks": [{"uuid": network.id}]}
        # Volumes are deleted after the instances that use them.
        data_cleanup = cleanup.enter_context(contextlib.ExitStack())
        first = Server(cloud, volumes, cleanup, image_id=image.id, **settings)
        second = Server(cloud, volumes, cleanup, image_id=image.id, **settings)
        for server in (first, second):
            server.wait_for_boot()
        volume = volumes.create(data_cleanup, "volume", size=1)
        assert volumes.call("GET", f"/volumes/{volume}")["volume"]["volume_type"] == default
        with first.attached(volume) as data:
            first.size(volume, 1)
            volumes.call("POST", f"/volumes/{volume}/action", **{"os-extend": {"new_size": 2}})
            first.size(volume, 2)
        assert second.data(volume) == data
        check_copies(volumes, data_cleanup, volume, data, second)
        check_retype(volumes, volume, others[0])
        assert second.data(volume) == data
        secret = volumes.create(data_cleanup, "volume", size=1, volume_type=encrypted[0])
        assert volumes.call("GET", f"/volumes/{secret}")["volume"]["encrypted"] is True
        assert second.data(secret) == first.data(secret)
        check_boot(cloud, volumes, data_cleanup, image, settings)


main()
