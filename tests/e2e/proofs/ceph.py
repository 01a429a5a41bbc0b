"""Images are in Ceph with a location for clones, and an instance on such an image starts, and starts again."""

import contextlib
import os
import secrets

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
SIZE = 16 << 20
LIMIT = 600


def check_image(cloud, cleanup):
    """A raw image in the store on Ceph, whose location lets others clone it."""
    stores = cloud.image.get("/info/stores").json()["stores"]
    default = [store["id"] for store in stores if store.get("default")]
    assert default == ["rbd"], stores
    image = cloud.image.create_image(
        NAME, data=os.urandom(SIZE), disk_format="raw", container_format="bare", allow_duplicates=True
    )
    cleanup.callback(cloud.image.delete_image, image.id)
    shown = cloud.image.get(f"/images/{image.id}").json()
    assert shown["status"] == "active" and shown["stores"] == "rbd", shown
    assert shown["direct_url"].startswith("rbd://"), shown["direct_url"]
    return image


def check_instance(cloud, cleanup, image):
    """An instance without a network boots from the image. Its disk is larger than the image, so that it is resized."""
    flavor = cloud.create_flavor(NAME, 64, 1, 1)
    cleanup.callback(cloud.compute.delete_flavor, flavor.id)
    server = cloud.compute.create_server(name=NAME, image_id=image.id, flavor_id=flavor.id, networks="none")
    cleanup.callback(cloud.delete_server, server.id, wait=True, timeout=LIMIT)
    server = cloud.compute.wait_for_server(server, wait=LIMIT)
    assert server.status == "ACTIVE", server.status
    # Nova rebuilds the definition of the instance from its settings, and libvirt needs the key of the user.
    cloud.compute.reboot_server(server, "HARD")
    server = cloud.compute.wait_for_server(server, wait=LIMIT)
    assert server.status == "ACTIVE", server.status


def main():
    cloud = openstack.connect()
    with contextlib.ExitStack() as cleanup:
        image = check_image(cloud, cleanup)
        check_instance(cloud, cleanup, image)


main()
