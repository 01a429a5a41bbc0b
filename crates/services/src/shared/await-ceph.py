"""Waits until a user of a Ceph cluster can open its pools."""

import os
import sys
import time

import rados


def opens_pools():
    with rados.Rados(conffile="/etc/ceph/ceph.conf", rados_id=os.environ["CEPH_USER"]) as cluster:
        for pool in os.environ["CEPH_POOLS"].split():
            cluster.open_ioctx(pool).close()


while True:
    try:
        opens_pools()
        break
    except rados.Error as error:
        print(error, file=sys.stderr, flush=True)
        time.sleep(2)
