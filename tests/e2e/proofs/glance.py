"""Glance stores an image, returns the same data, and removes it."""

import contextlib
import hashlib
import os
import secrets

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
SIZE = 4 << 20


def main():
    cloud = openstack.connect()
    data = os.urandom(SIZE)
    with contextlib.ExitStack() as cleanup:
        image = cloud.image.create_image(
            NAME, data=data, disk_format="raw", container_format="bare", allow_duplicates=True, proof="data"
        )
        cleanup.callback(cloud.image.delete_image, image, ignore_missing=True)
        stored = cloud.image.get_image(image.id)
        assert (stored.status, stored.size) == ("active", SIZE), f"the image is {stored.status}, {stored.size} bytes"
        assert stored.hash_value == hashlib.sha512(data).hexdigest()
        assert cloud.image.get(f"/images/{image.id}/file").content == data
        assert [found.id for found in cloud.image.images(name=NAME)] == [image.id]
        cloud.image.deactivate_image(image)
        assert cloud.image.get_image(image.id).status == "deactivated"
        cloud.image.delete_image(image)
        assert cloud.image.find_image(image.id) is None


main()
