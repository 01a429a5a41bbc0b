"""Ensures the pools, file systems and users of an object in a Ceph cluster, or removes them.

It writes only what differs. The monitors keep the owner of each resource: a resource of another owner, or without one,
is neither changed nor removed.
"""

import errno
import json
import os
import sys

import rados
import rbd

WANTED = "/etc/openstack/storage.json"
KEYS = "/etc/openstack/keys"
OWNERS = "openstack.k8s.io/owner/"
# Seconds until a request to a cluster without a quorum, or to a pool without its OSDs, fails.
TIMEOUT = 60


class Refused(Exception):
    """A request that the cluster refuses, or a resource of another owner."""


class Storage:
    def __init__(self, wanted):
        self.wanted = wanted
        user = os.environ["CEPH_USER"]
        timeouts = ("rados_mon_op_timeout", "rados_osd_op_timeout", "client_mount_timeout")
        conf = {"keyring": "/etc/ceph/keyring", **{option: str(TIMEOUT) for option in timeouts}}
        self.cluster = rados.Rados(conffile="/etc/ceph/ceph.conf", rados_id=user, conf=conf)
        try:
            self.cluster.connect()
        except rados.Error as error:
            raise Refused(f"failed to connect as client.{user}: {error}: check monitors, username and key") from error
        self.owners = self.request("config-key dump", key=OWNERS) or {}

    def request(self, prefix, content=b"", /, **arguments):
        """Sends a command to the monitors. The answer is None if the resource does not exist."""
        command = json.dumps({"prefix": prefix, "format": "json", **arguments})
        code, answer, message = self.cluster.mon_command(command, content, timeout=TIMEOUT)
        if code == -errno.ENOENT:
            return None
        if code != 0:
            raise Refused(f"{prefix}: {message or os.strerror(-code)}")
        return json.loads(answer) if answer.strip() else None

    def change(self, prefix, content=b"", /, **arguments):
        print(prefix, *arguments.values(), flush=True)
        return self.request(prefix, content, **arguments)

    def claim(self, kind, name, exists):
        """Records the object as owner before it changes a resource."""
        resource = f"{kind}/{name}"
        owner = self.owners.get(OWNERS + resource)
        if owner == self.wanted["owner"]:
            return
        if name not in self.wanted["adopt"] and (owner or exists):
            problem = f"belongs to {owner}" if owner else "exists and has no owner"
            remedy = f"use another name; to take it over, set annotation openstack.k8s.io/adopt: {name}"
            raise Refused(f"{kind} {name} {problem}: {remedy}")
        self.change("config-key set", key=OWNERS + resource, val=self.wanted["owner"])

    def ensure(self):
        pools = {pool["pool_name"]: pool for pool in self.request("osd pool ls", detail="detail")}
        for pool in self.wanted["pools"]:
            self.ensure_pool(pool, pools.get(pool["name"]))
        filesystems = {known["name"] for known in self.request("fs ls")}
        for wanted in self.wanted["filesystems"]:
            self.claim("filesystem", wanted["name"], wanted["name"] in filesystems)
            if wanted["name"] not in filesystems:
                self.change("fs new", fs_name=wanted["name"], metadata=wanted["metadata"], data=wanted["data"])
        for user in self.wanted["users"]:
            self.ensure_user(user)

    def ensure_pool(self, wanted, known):
        name, size = wanted["name"], wanted["size"]
        self.claim("pool", name, known is not None)
        # Ceph asks for a confirmation of a pool without redundancy.
        sure = {"yes_i_really_mean_it": True} if size == 1 else {}
        if known is None:
            self.change("osd pool create", pool=name, pool_type="replicated", size=size, **sure)
            known = {"size": size}
        if known["size"] != size:
            self.change("osd pool set", pool=name, var="size", val=str(size), **sure)
        compression = known.get("options", {}).get("compression_mode", "none")
        if compression != wanted["compression"]:
            self.change("osd pool set", pool=name, var="compression_mode", val=wanted["compression"])
        if known.get("quota_max_bytes", 0) != wanted["quota"]:
            self.change("osd pool set-quota", pool=name, field="max_bytes", val=str(wanted["quota"]))
        if wanted["block"] and "rbd" not in known.get("application_metadata", {}):
            print("rbd pool init", name, flush=True)
            with self.cluster.open_ioctx(name) as pool:
                rbd.RBD().pool_init(pool, False)

    def ensure_user(self, wanted):
        entity, caps = f"client.{wanted['name']}", wanted["caps"]
        with open(f"{KEYS}/{wanted['name']}", encoding="ascii") as file:
            key = file.read().strip()
        known = self.request("auth get", entity=entity)
        self.claim("user", wanted["name"], known is not None)
        if known and known[0]["key"] == key and known[0]["caps"] == caps:
            return
        # The key is in the content of the request, which Ceph does not log.
        lines = [f"[{entity}]", f"\tkey = {key}", *(f'\tcaps {service} = "{cap}"' for service, cap in caps.items())]
        self.change("auth import", "\n".join([*lines, ""]).encode())
        print("imported", entity, flush=True)

    def remove(self):
        """Removes everything that belongs to the object, also what an earlier spec contained."""
        kinds = {"user": self.remove_user, "filesystem": self.remove_filesystem, "pool": self.remove_pool}
        for kind, remove in kinds.items():
            for resource, owner in self.owners.items():
                prefix = f"{OWNERS}{kind}/"
                if resource.startswith(prefix) and owner == self.wanted["owner"]:
                    remove(resource.removeprefix(prefix))
                    self.change("config-key rm", key=resource)

    def remove_user(self, name):
        self.change("auth rm", entity=f"client.{name}")

    def remove_filesystem(self, name):
        if any(known["name"] == name for known in self.request("fs ls")):
            self.change("fs fail", fs_name=name)
            self.change("fs rm", fs_name=name, yes_i_really_mean_it=True)

    def remove_pool(self, name):
        self.change("osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True)


def main():
    with open(WANTED, encoding="utf-8") as file:
        wanted = json.load(file)
    try:
        storage = Storage(wanted)
        storage.remove() if sys.argv[1] == "remove" else storage.ensure()
    except (Refused, rados.Error, rbd.Error) as error:
        print(error, file=sys.stderr)
        with open("/dev/termination-log", "w", encoding="utf-8") as log:
            log.write(str(error))
        sys.exit(1)


main()
