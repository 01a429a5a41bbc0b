"""Heat creates a stack that waits for signals, updates it and deletes it with everything in it; its engines are up."""

import contextlib
import json
import secrets
import time
import urllib.request

import openstack
from openstack import exceptions

NAME = f"proof-{secrets.token_hex(4)}"
LIMIT = 300
# The handle has its own user in the stack domain, which signals by token to the orchestration API. Signals by signature to the
# CloudFormation API need a Heat that logs in to Keystone to verify them: docs/services.md.
TEMPLATE = {
    "heat_template_version": "2018-08-31",
    "parameters": {"length": {"type": "number"}, "network_name": {"type": "string"}},
    "resources": {
        "random": {"type": "OS::Heat::RandomString", "properties": {"length": {"get_param": "length"}}},
        "network": {"type": "OS::Neutron::Net", "properties": {"name": {"get_param": "network_name"}}},
        "by_token": {"type": "OS::Heat::WaitConditionHandle"},
        "token_wait": {
            "type": "OS::Heat::WaitCondition",
            "properties": {"handle": {"get_resource": "by_token"}, "timeout": LIMIT},
        },
    },
    "outputs": {
        "random": {"value": {"get_attr": ["random", "value"]}},
        "network": {"value": {"get_resource": "network"}},
        "signalled": {"value": {"get_attr": ["token_wait", "data"]}},
    },
}


def wait_until(description, condition):
    deadline = time.monotonic() + LIMIT
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {description}"
        time.sleep(2)
    return result


def request(cloud, method, path, **body):
    response = cloud.orchestration.request(path, method, **({"json": body} if body else {}))
    exceptions.raise_from_response(response)
    # The answers to updates and deletions have no content, but some text.
    return response.json() if response.headers.get("Content-Type", "").startswith("application/json") else None


def has_engines(cloud):
    """Whether every host has an engine that is up. A killed engine leaves a record beside that of its successor."""
    services = request(cloud, "GET", "/services")["services"]
    hosts = {service["hostname"] for service in services}
    return hosts and hosts == {service["hostname"] for service in services if service["status"] == "up"}


def check_health(cloud):
    for service_type, version in [("orchestration", "/v1/"), ("cloudformation", "/v1")]:
        endpoint = cloud.session.get_endpoint(service_type=service_type, interface="public")
        assert endpoint, f"the catalog has no {service_type}"
        with urllib.request.urlopen(endpoint.rsplit(version, 1)[0] + "/healthcheck", timeout=30) as answer:
            assert answer.status == 200, endpoint


def reached(cloud, path, status):
    """The stack, once it has this status."""
    stack = request(cloud, "GET", path)["stack"]
    assert not stack["stack_status"].endswith("_FAILED"), stack["stack_status_reason"]
    return stack if stack["stack_status"] == status else None


def is_gone(cloud, path):
    try:
        stack = request(cloud, "GET", path)["stack"]
    except exceptions.NotFoundException:
        return True
    assert stack["stack_status"] != "DELETE_FAILED", stack["stack_status_reason"]
    return stack["stack_status"] == "DELETE_COMPLETE"


def delete(cloud, path):
    with contextlib.suppress(exceptions.NotFoundException):
        request(cloud, "DELETE", path)
    wait_until("the deletion of the stack", lambda: is_gone(cloud, path))


def attributes(cloud, path, resource):
    """The attributes of a resource, once it is complete."""

    def complete():
        try:
            found = request(cloud, "GET", f"{path}/resources/{resource}")["resource"]
        except exceptions.NotFoundException:
            return None
        return found["attributes"] if found["resource_status"] == "CREATE_COMPLETE" else None

    return wait_until(f"resource {resource}", complete)


def send(url, headers, message):
    headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    signal = urllib.request.Request(url, json.dumps(message).encode(), headers, method="POST")
    with urllib.request.urlopen(signal, timeout=60) as answer:
        assert answer.status < 300, answer.status


def signal(cloud, path):
    """Sends the signal like an instance, with nothing but what the handle contains."""
    by_token = attributes(cloud, path, "by_token")
    message = {"status": "SUCCESS", "id": "guest", "data": NAME}
    send(by_token["endpoint"], {"X-Auth-Token": by_token["token"]}, message)


def outputs(stack):
    return {output["output_key"]: output["output_value"] for output in stack["outputs"]}


def main():
    cloud = openstack.connect()
    wait_until("engines on all hosts", lambda: has_engines(cloud))
    check_health(cloud)
    parameters = {"length": 16, "network_name": NAME}
    with contextlib.ExitStack() as cleanup:
        created = request(
            cloud, "POST", "/stacks", stack_name=NAME, template=TEMPLATE, parameters=parameters, timeout_mins=10
        )
        path = f"/stacks/{NAME}/{created['stack']['id']}"
        cleanup.callback(delete, cloud, path)
        signal(cloud, path)
        stack = wait_until("the stack", lambda: reached(cloud, path, "CREATE_COMPLETE"))
        first = outputs(stack)
        assert len(first["random"]) == 16, first
        assert json.loads(first["signalled"]) == {"guest": NAME}, first
        assert cloud.network.get_network(first["network"]).name == NAME
        parameters["network_name"] = f"{NAME}-updated"
        request(cloud, "PUT", path, template=TEMPLATE, parameters=parameters, timeout_mins=10)
        second = outputs(wait_until("the update", lambda: reached(cloud, path, "UPDATE_COMPLETE")))
        # An update keeps the resources that it does not have to replace.
        assert second == first, (first, second)
        assert cloud.network.get_network(second["network"]).name == parameters["network_name"]
    assert cloud.network.find_network(first["network"]) is None


main()
