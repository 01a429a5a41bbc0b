"""Barbican stores secrets, generates keys by order, shares secrets by ACL, and removes those of a deleted project."""

import contextlib
import secrets
import time

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
LIMIT = 180
BINARY = "application/octet-stream"


class KeyManager:
    """The API as one user sees it. References to resources are URLs."""

    def __init__(self, cloud):
        self.session = cloud.session
        url = self.session.get_endpoint(
            service_type="key-manager", interface="public", region_name=cloud.config.region_name
        )
        self.url = f"{url.rstrip('/')}/v1"

    def status(self, url, accept="application/json"):
        return self.session.get(url, headers={"Accept": accept}, raise_exc=False).status_code

    def call(self, method, url, expected, **request):
        answer = self.session.request(url, method, raise_exc=False, **request)
        assert answer.status_code == expected, f"{method} {url}: {answer.status_code} {answer.text}"
        return answer

    def create(self, kind, expected=201, **body):
        """Creates a resource and returns its reference."""
        answer = self.call("POST", f"{self.url}/{kind}s", expected, json=body).json()
        return answer[f"{kind}_ref"]

    def get(self, reference):
        return self.call("GET", reference, 200, headers={"Accept": "application/json"}).json()

    def payload(self, reference, content_type="text/plain"):
        return self.call("GET", f"{reference}/payload", 200, headers={"Accept": content_type}).content

    def delete(self, reference):
        self.call("DELETE", reference, 204)


def connect(administrator, password, project):
    return openstack.connect(
        load_envvars=False,
        load_yaml_config=False,
        auth={
            "auth_url": administrator.config.auth["auth_url"],
            "username": NAME,
            "password": password,
            "user_domain_id": "default",
            "project_id": project.id,
        },
        region_name=administrator.config.region_name,
    )


def wait_until(description, condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {description}"
        time.sleep(1)


def store(keys, payload):
    return keys.create("secret", name=NAME, payload=payload, payload_content_type="text/plain")


def check_order(keys, cleanup):
    """The worker generates a key."""
    meta = {"name": NAME, "algorithm": "aes", "bit_length": 256, "mode": "cbc", "payload_content_type": BINARY}
    # Only administrators delete orders; this one goes with its project.
    order = keys.create("order", expected=202, type="key", meta=meta)

    def is_processed():
        found = keys.get(order)
        assert found["status"] != "ERROR", found
        return found["status"] == "ACTIVE"

    wait_until("the order to become ACTIVE", is_processed)
    key = keys.get(order)["secret_ref"]
    cleanup.callback(keys.delete, key)
    assert len(keys.payload(key, BINARY)) == 32


def check_container(keys, secret, cleanup):
    container = keys.create(
        "container", name=NAME, type="generic", secret_refs=[{"name": "login", "secret_ref": secret}]
    )
    cleanup.callback(keys.delete, container)
    assert keys.get(container)["secret_refs"] == [{"name": "login", "secret_ref": secret}]


def main():
    cloud = openstack.connect()
    administrator = KeyManager(cloud)
    with contextlib.ExitStack() as cleanup:
        project = cloud.identity.create_project(name=NAME, domain_id="default")
        cleanup.callback(cloud.identity.delete_project, project, ignore_missing=True)
        password = secrets.token_hex(16)
        user = cloud.identity.create_user(name=NAME, password=password, domain_id="default")
        cleanup.callback(cloud.identity.delete_user, user)
        role = cloud.identity.find_role("member", ignore_missing=False)
        cloud.identity.assign_project_role_to_user(project, user, role)
        keys = KeyManager(connect(cloud, password, project))
        payload = secrets.token_hex(32)
        with contextlib.ExitStack() as resources:
            secret = store(keys, payload)
            resources.callback(keys.delete, secret)
            assert keys.payload(secret).decode() == payload
            check_container(keys, secret, resources)
            check_order(keys, resources)
        # The administrator reads secrets of another project only if its owner shares them.
        shared = store(keys, payload)
        assert administrator.status(f"{shared}/payload", "text/plain") == 403
        acl = {"read": {"users": [cloud.session.get_user_id()], "project-access": True}}
        keys.call("PUT", f"{shared}/acl", 200, json=acl)
        assert administrator.payload(shared).decode() == payload
        # The Keystone listener removes the secrets of a deleted project.
        cloud.identity.delete_project(project)
        wait_until("the secret of the deleted project to go", lambda: administrator.status(shared) == 404)


main()
