"""Glance stores an image, returns the same data, copies it to every other store, and removes it."""

import contextlib
import hashlib
import os
import secrets
import time

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
SIZE = 4 << 20
LIMIT = 120


def stores_of(cloud, image):
    return set(filter(None, cloud.image.get(f"/images/{image.id}").json().get("stores", "").split(",")))


def check_copies(cloud, image, data):
    """Copies the image to each store, as one moves images to another one, and then removes the first copy."""
    known = {store["id"]: store for store in cloud.image.get("/info/stores").json()["stores"]}
    first = stores_of(cloud, image)
    assert len(first) == 1 and first <= set(known), f"{first} of {set(known)}"
    others = sorted(set(known) - first)
    for store in others:
        body = {"method": {"name": "copy-image"}, "stores": [store]}
        response = cloud.image.post(f"/images/{image.id}/import", json=body)
        assert response.status_code == 202, response.text
        deadline = time.monotonic() + LIMIT
        while store not in stores_of(cloud, image):
            failed = cloud.image.get(f"/images/{image.id}").json().get("os_glance_failed_import")
            assert not failed and time.monotonic() < deadline, f"the image is not in {store}: {failed}"
            time.sleep(1)
    if not others:
        return
    response = cloud.image.delete(f"/stores/{first.pop()}/{image.id}")
    assert response.status_code == 204, response.text
    assert stores_of(cloud, image) == set(others)
    assert cloud.image.get(f"/images/{image.id}/file").content == data


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
        check_copies(cloud, image, data)
        cloud.image.deactivate_image(image)
        assert cloud.image.get_image(image.id).status == "deactivated"
        cloud.image.delete_image(image)
        assert cloud.image.find_image(image.id) is None


main()
