"""Uses the APIs of the local cloud without a pause, and records every answer as a line of JSON.

It runs on the host, outside of the nodes, so that it survives their faults, and needs only the standard library.
"""

import base64
import concurrent.futures
import http.client
import json
import os
import socket
import struct
import sys
import threading
import time
import urllib.parse

PREFIX = "drill"
GATEWAY_PORT = 80
# Where the API of a service starts below its host name.
PATHS = {"keystone": "/v3", "neutron": "/v2.0", "nova": "/v2.1", "glance": "/v2", "placement": ""}
# From this version on, an instance can have no network.
NOVA_VERSION = "compute 2.37"
# Seconds that an answer may take, by the kind of request.
READ_TIMEOUT = 5
WRITE_TIMEOUT = 10
LIST_TIMEOUT = 120
CONNECT_TIMEOUT = 5
TASK_TIMEOUT = 300
# How often queries connect. A node tracks connections to a lost pod for two minutes, and sends a new one from the same
# port to that pod as well. The streams of the load do not repeat: what a user would see counts.
QUERY_CONNECTIONS = 5
# Seconds between requests while they fail.
RETRY_INTERVAL = 1
SSH_PORT = 22
# An instance that boots from it waits in its firmware, which costs next to nothing.
EMPTY_DISK = bytes(1 << 20)


class Failure(Exception):
    """A request without a successful answer."""


class Cloud:
    """The APIs of a cloud, behind its Gateway, for the administrator."""

    def __init__(self, settings, connections=1):
        self.connections = connections
        self.gateway = settings["gateway"]
        self.domain = settings["domain"]
        # All of PATHS, or Keystone alone.
        self.services = settings["services"]
        self.username = settings["username"]
        self.password_file = settings["passwordFile"]
        self.token = None
        self.project = None
        self.lock = threading.Lock()

    def log_in(self):
        # The file changes with the administrator's Secret.
        with open(self.password_file, encoding="utf-8") as file:
            password = file.read().strip()
        domain = {"name": "Default"}
        user = {"name": self.username, "domain": domain, "password": password}
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": "admin", "domain": domain}},
            }
        }
        headers, answer = self.send("keystone", "POST", "/auth/tokens", body, WRITE_TIMEOUT, {})
        self.token, self.project = headers["X-Subject-Token"], answer["token"]["project"]["id"]

    def request(self, service, method, path, body=None, timeout=READ_TIMEOUT):
        token = self.token
        try:
            return self.send(service, method, path, body, timeout, {"X-Auth-Token": token})[1]
        except Unauthorized:
            with self.lock:
                # Another thread may have logged in meanwhile.
                if self.token == token:
                    self.log_in()
            raise

    def send(self, service, method, path, body, timeout, headers):
        headers = {"Host": f"{service}.{self.domain}", "Accept": "application/json", **headers}
        if service == "nova":
            headers["OpenStack-API-Version"] = NOVA_VERSION
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        elif body is not None:
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        # A new connection for every request, so that none outlives the pod that it leads to.
        connection = self.connect()
        connection.sock.settimeout(timeout)
        try:
            connection.request(method, PATHS[service] + path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failure(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if answer.status == 401:
            raise Unauthorized("401")
        if answer.status >= 300:
            raise Failure(f"{answer.status}: {content[:200].decode('utf-8', 'replace')}")
        try:
            return answer.headers, json.loads(content) if content else None
        except ValueError as error:
            raise Failure(f"the answer is not JSON: {error}") from error

    def connect(self):
        for attempt in range(1, self.connections + 1):
            connection = http.client.HTTPConnection(self.gateway, GATEWAY_PORT, timeout=CONNECT_TIMEOUT)
            try:
                connection.connect()
                return connection
            except OSError as error:
                if attempt == self.connections:
                    raise Failure(f"{type(error).__name__}: {error}") from error

    def find(self, service, path, kind, name):
        """The object of that name; none if there is none."""
        query = urllib.parse.urlencode({"name": name})
        found = self.request(service, "GET", f"{path}?{query}", timeout=WRITE_TIMEOUT)[kind]
        return next((item for item in found if item["name"] == name), None)


class Unauthorized(Failure):
    """An answer to a token that is not valid."""


class Recorder:
    """Appends events to a file."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()

    def record(self, **event):
        line = json.dumps(event) + "\n"
        with self.lock:
            self.file.write(line)
            self.file.flush()


def prepare(cloud):
    """Creates what the writes need, and lifts the quotas that they would reach."""
    if "nova" not in cloud.services:
        return {}
    project = cloud.project
    quotas = {"instances": -1, "cores": -1, "ram": -1, "key_pairs": -1}
    cloud.request("nova", "PUT", f"/os-quota-sets/{project}", {"quota_set": quotas}, WRITE_TIMEOUT)
    cloud.request("neutron", "PUT", f"/quotas/{project}", {"quota": {"port": -1}}, WRITE_TIMEOUT)
    network = cloud.find("neutron", "/networks", "networks", PREFIX) or cloud.request(
        "neutron", "POST", "/networks", {"network": {"name": PREFIX}}, WRITE_TIMEOUT
    )["network"]
    image = cloud.find("glance", "/images", "images", PREFIX)
    if not image or image["status"] != "active":
        image = {"name": PREFIX, "disk_format": "raw", "container_format": "bare"}
        image = cloud.request("glance", "POST", "/images", image, WRITE_TIMEOUT)
        cloud.request("glance", "PUT", f"/images/{image['id']}/file", EMPTY_DISK, WRITE_TIMEOUT)
    flavors = cloud.request("nova", "GET", "/flavors", timeout=WRITE_TIMEOUT)["flavors"]
    flavor = next((flavor for flavor in flavors if flavor["name"] == PREFIX), None)
    if not flavor:
        flavor = {"name": PREFIX, "ram": 64, "vcpus": 1, "disk": 1}
        flavor = cloud.request("nova", "POST", "/flavors", {"flavor": flavor}, WRITE_TIMEOUT)["flavor"]
    return {"network": network["id"], "image": image["id"], "flavor": flavor["id"]}


class Writer:
    """Writes to the APIs and records each write that an API acknowledges."""

    def __init__(self, cloud, recorder, resources):
        self.cloud, self.recorder, self.resources = cloud, recorder, resources
        self.run, self.number = int(time.time()), 0
        self.lock = threading.Lock()

    def name(self):
        with self.lock:
            self.number += 1
            return f"{PREFIX}-{self.run}-{self.number}"

    def create(self, service, path, kind, body, key="id"):
        """Creates an object and reads it back."""
        created = self.cloud.request(service, "POST", path, {kind: body}, WRITE_TIMEOUT)[kind]
        self.recorder.record(event="write", time=now(), kind=kind, id=created[key])
        self.cloud.request(service, "GET", f"{path}/{created[key]}")

    def project(self):
        self.create("keystone", "/projects", "project", {"name": self.name()})

    def port(self):
        port = {"name": self.name(), "network_id": self.resources["network"]}
        self.create("neutron", "/ports", "port", port)

    def keypair(self):
        keypair = {"name": self.name(), "public_key": public_key()}
        self.create("nova", "/os-keypairs", "keypair", keypair, key="name")

    def server(self):
        server = {
            "name": self.name(),
            "imageRef": self.resources["image"],
            "flavorRef": self.resources["flavor"],
            "networks": "none",
        }
        self.create("nova", "/servers", "server", server)


def public_key():
    """An ssh key whose private half does not exist: Nova would need long to generate a pair."""
    parts = [b"ssh-ed25519", os.urandom(32)]
    blob = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {PREFIX}"


def now():
    return round(time.time(), 3)


def repeat(record, interval, operation):
    """Repeats an operation at an interval and records the outcome of each."""
    while True:
        started, moment = time.monotonic(), now()
        detail = None
        try:
            operation()
        except Exception as error:  # An answer without the expected content is a failure too.
            detail = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - started
        record(time=moment, seconds=round(seconds, 3), ok=detail is None, detail=detail)
        # The interval counts from start to start.
        pause = (interval if detail is None else RETRY_INTERVAL) - seconds
        time.sleep(max(pause, 0))


def streams(cloud, writer):
    """The requests to repeat: API, name, interval in seconds, operation. Reads always reach the database."""

    def read(service, path):
        return lambda: cloud.request(service, "GET", path)

    everything = [
        ("keystone", "login", 10, cloud.log_in),
        ("keystone", "read", 1, read("keystone", f"/projects?name={PREFIX}")),
        ("keystone", "write", 2, writer.project),
        ("neutron", "read", 1, read("neutron", f"/networks?name={PREFIX}&fields=id")),
        ("neutron", "write", 2, writer.port),
        ("nova", "read", 1, read("nova", "/servers?limit=1")),
        ("nova", "write", 5, writer.keypair),
        ("nova", "boot", 60, writer.server),
        ("glance", "read", 1, read("glance", "/images?limit=1")),
        ("placement", "read", 1, read("placement", f"/resource_providers?name={PREFIX}")),
    ]
    return [stream for stream in everything if stream[0] in cloud.services]


def load(settings):
    """Runs every stream in its own thread until the time is over, or the process that started this one has ended."""
    parent = os.getppid()
    cloud, recorder = Cloud(settings), Recorder(settings["events"])
    cloud.log_in()
    writer = Writer(cloud, recorder, prepare(cloud))
    threads = []
    for api, stream, interval, operation in streams(cloud, writer):
        record = lambda api=api, stream=stream, **outcome: recorder.record(
            event="probe", api=api, stream=stream, **outcome
        )
        threads.append((record, interval, operation))
    for name, address in settings["instances"].items():
        record = lambda name=name, **outcome: recorder.record(event="answer", instance=name, **outcome)
        connect = lambda address=address: socket.create_connection((address, SSH_PORT), timeout=2).close()
        threads.append((record, 1, connect))
    for arguments in threads:
        threading.Thread(target=repeat, args=arguments, daemon=True).start()
    recorder.record(event="started")
    deadline = time.monotonic() + settings["limitSeconds"]
    while time.monotonic() < deadline and os.getppid() == parent:
        time.sleep(1)


def found(cloud):
    """The identifiers of everything that the writes have created, by kind."""

    def list_all(service, path):
        return cloud.request(service, "GET", path, timeout=LIST_TIMEOUT)

    def own(items):
        return [item for item in items if item["name"].startswith(f"{PREFIX}-")]

    projects = own(list_all("keystone", "/projects")["projects"])
    if "nova" not in cloud.services:
        return {"project": [project["id"] for project in projects]}
    network = cloud.find("neutron", "/networks", "networks", PREFIX)
    query = f"?network_id={network['id']}&fields=id&fields=name" if network else "?limit=0"
    ports = own(list_all("neutron", f"/ports{query}")["ports"])
    keypairs = own([item["keypair"] for item in pages(cloud, "/os-keypairs", "keypairs", keypair_name)])
    created = own(pages(cloud, "/servers", "servers", lambda server: server["id"]))
    return {
        "project": [project["id"] for project in projects],
        "port": [port["id"] for port in ports],
        "keypair": [keypair["name"] for keypair in keypairs],
        "server": [server["id"] for server in created],
    }


def keypair_name(item):
    return item["keypair"]["name"]


def pages(cloud, path, kind, key):
    """All items of a list that Nova returns in parts."""
    items, marker = [], None
    while True:
        query = urllib.parse.urlencode({"limit": 1000, **({"marker": marker} if marker else {})})
        page = cloud.request("nova", "GET", f"{path}?{query}", timeout=LIST_TIMEOUT)[kind]
        if not page:
            return items
        items, marker = items + page, key(page[-1])


def delete(cloud, targets):
    """Deletes objects, each a service and a path. One that does not exist is deleted already."""

    def delete_one(target):
        try:
            cloud.request(target[0], "DELETE", target[1], timeout=WRITE_TIMEOUT)
        except Failure as failure:
            if not str(failure).startswith("404"):
                raise

    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(delete_one, targets))


def release(cloud, _):
    """Deletes the instances of the writes, which occupy memory."""
    created = found(cloud).get("server", [])
    delete(cloud, [("nova", f"/servers/{server}") for server in created])
    return created


def clean(cloud, settings):
    """Deletes everything that `load` has created, and the instances under observation."""
    everything = found(cloud)
    delete(cloud, [("keystone", f"/projects/{project}") for project in everything["project"]])
    if "nova" not in cloud.services:
        return
    observed = [server["id"] for server in servers(cloud, settings["instances"])]
    delete(cloud, [("nova", f"/servers/{server}") for server in everything["server"] + observed])
    delete(cloud, [("neutron", f"/ports/{port}") for port in everything["port"]])
    delete(cloud, [("nova", f"/os-keypairs/{keypair}") for keypair in everything["keypair"]])
    for service, path, kind in [("neutron", "/networks", "networks"), ("glance", "/images", "images")]:
        item = cloud.find(service, path, kind, PREFIX)
        delete(cloud, [(service, f"{path}/{item['id']}")] if item else [])
    flavors = cloud.request("nova", "GET", "/flavors")["flavors"]
    delete(cloud, [("nova", f"/flavors/{item['id']}") for item in flavors if item["name"] == PREFIX])


def servers(cloud, names):
    if not names:
        return []
    everything = cloud.request("nova", "GET", "/servers/detail", timeout=LIST_TIMEOUT)["servers"]
    return [server for server in everything if server["name"] in names]


def instances(cloud, settings):
    """The node of each instance under observation."""
    observed = servers(cloud, settings["instances"])
    return {server["name"]: server["OS-EXT-SRV-ATTR:host"] for server in observed}


def reboot(cloud, settings):
    """Starts instances that do not run, whatever state Nova knows."""
    for server in servers(cloud, settings["reboot"]):
        path = f"/servers/{server['id']}"
        # Nova rejects a reboot while it stops an instance that it found without power.
        deadline = time.monotonic() + TASK_TIMEOUT
        while cloud.request("nova", "GET", path)["server"]["OS-EXT-STS:task_state"]:
            if time.monotonic() > deadline:
                raise Failure(f"Nova works on {server['name']} for more than {TASK_TIMEOUT} s")
            time.sleep(1)
        cloud.request("nova", "POST", f"{path}/action", {"reboot": {"type": "HARD"}}, WRITE_TIMEOUT)


QUERIES = {
    "found": lambda cloud, _: found(cloud),
    "release": release,
    "clean": clean,
    "instances": instances,
    "reboot": reboot,
}


def main():
    mode, settings = sys.argv[1], json.loads(sys.argv[2])
    try:
        if mode == "load":
            load(settings)
            return
        cloud = Cloud(settings, QUERY_CONNECTIONS)
        cloud.log_in()
        print(json.dumps(QUERIES[mode](cloud, settings)))
    except Failure as failure:
        sys.exit(f"{mode}: {failure}")


if __name__ == "__main__":
    main()
