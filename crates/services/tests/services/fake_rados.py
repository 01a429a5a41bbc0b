"""A Ceph cluster in a file: pools, file systems, users and owners of resources. It records every change without data."""

import errno
import json
import os

STATE = os.environ["STATE"]


class Error(Exception):
    pass


class Pool:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def user(text):
    head, key, *caps = text.strip().splitlines()
    named = (line.strip().removeprefix("caps ").split(" = ") for line in caps)
    return head.strip("[]"), {"key": key.split(" = ")[1], "caps": {name: cap.strip('"') for name, cap in named}}


class Rados:
    def __init__(self, conffile, rados_id, conf):
        if rados_id != "admin":
            raise Error("permission denied")

    def connect(self):
        pass

    def read(self):
        with open(STATE, encoding="utf-8") as file:
            self.state = json.load(file)

    def write(self):
        with open(STATE, "w", encoding="utf-8") as file:
            json.dump(self.state, file)

    def open_ioctx(self, name):
        return Pool(name)

    def mon_command(self, command, content, timeout):
        request = json.loads(command)
        prefix = request.pop("prefix")
        request.pop("format")
        self.read()
        answer = self.answer(prefix, request, content)
        self.write()
        if isinstance(answer, int):
            return answer, b"", "refused"
        return 0, json.dumps(answer).encode(), ""

    def answer(self, prefix, request, content):
        pools, users, owners = (self.state[part] for part in ("pools", "users", "owners"))
        if prefix == "config-key dump":
            return owners
        if prefix == "osd pool ls":
            return list(pools.values())
        if prefix == "fs ls":
            return [{"name": name} for name in self.state["filesystems"]]
        if prefix == "auth get":
            known = users.get(request["entity"])
            return [{"entity": request["entity"], **known}] if known else -errno.ENOENT
        self.state["changes"].append(" ".join([prefix, *map(str, request.values())]))
        if prefix == "config-key set":
            owners[request["key"]] = request["val"]
        elif prefix == "config-key rm":
            del owners[request["key"]]
        elif prefix == "osd pool create":
            pools[request["pool"]] = {"pool_name": request["pool"], "size": request["size"]}
        elif prefix == "osd pool set" and request["var"] == "size":
            pools[request["pool"]]["size"] = int(request["val"])
        elif prefix == "osd pool set":
            pools[request["pool"]]["options"] = {request["var"]: request["val"]}
        elif prefix == "osd pool set-quota":
            pools[request["pool"]]["quota_max_bytes"] = int(request["val"])
        elif prefix == "osd pool delete":
            if not self.state["may_delete"]:
                return -errno.EPERM
            del pools[request["pool"]]
        elif prefix == "fs new":
            self.state["filesystems"].append(request["fs_name"])
        elif prefix == "fs rm":
            self.state["filesystems"].remove(request["fs_name"])
        elif prefix == "auth import":
            entity, known = user(content.decode())
            users[entity] = known
        elif prefix == "auth rm":
            users.pop(request["entity"], None)
        return None

    def initialize(self, name):
        self.read()
        self.state["pools"][name]["application_metadata"] = {"rbd": {}}
        self.write()
