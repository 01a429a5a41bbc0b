"""Placement tracks inventories, finds candidates for a request, and allocates each resource once."""

import contextlib
import secrets
import uuid

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
CLASS = f"CUSTOM_{NAME.upper().replace('-', '_')}"
# Allocations have consumer types from this version on.
VERSION = "1.38"


class Placement:
    def __init__(self, cloud):
        self.endpoint = cloud.placement

    def call(self, method, path, expected, **body):
        answer = self.endpoint.request(path, method, microversion=VERSION, raise_exc=False, **body)
        assert answer.status_code in expected, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.text else {}


def allocation(cloud, provider):
    return {
        "allocations": {provider: {"resources": {CLASS: 2}}},
        "project_id": cloud.session.get_project_id(),
        "user_id": cloud.session.get_user_id(),
        "consumer_generation": None,
        "consumer_type": "PROOF",
    }


def main():
    cloud = openstack.connect()
    placement = Placement(cloud)
    provider = str(uuid.uuid4())
    consumers = [str(uuid.uuid4()), str(uuid.uuid4())]
    with contextlib.ExitStack() as cleanup:
        placement.call("PUT", f"/resource_classes/{CLASS}", {201})
        cleanup.callback(placement.call, "DELETE", f"/resource_classes/{CLASS}", {204})
        placement.call("POST", "/resource_providers", {200}, json={"name": NAME, "uuid": provider})
        cleanup.callback(placement.call, "DELETE", f"/resource_providers/{provider}", {204})
        inventories = {"resource_provider_generation": 0, "inventories": {CLASS: {"total": 3}}}
        placement.call("PUT", f"/resource_providers/{provider}/inventories", {200}, json=inventories)
        candidates = placement.call("GET", f"/allocation_candidates?resources={CLASS}:2", {200})
        assert list(candidates["provider_summaries"]) == [provider], candidates
        body = allocation(cloud, provider)
        placement.call("PUT", f"/allocations/{consumers[0]}", {204}, json=body)
        cleanup.callback(placement.call, "DELETE", f"/allocations/{consumers[0]}", {204})
        usages = placement.call("GET", f"/resource_providers/{provider}/usages", {200})
        assert usages["usages"] == {CLASS: 2}, usages
        placement.call("PUT", f"/allocations/{consumers[1]}", {409}, json=body)


main()
