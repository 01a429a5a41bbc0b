"""Starts nova-compute with libvirt's event loop in place from the beginning.

On its first start on a node, nova-compute connects to libvirt before it sets up the loop. It keeps that connection, which
delivers no events, so that until its next start it would not notice a guest that powers itself off.
"""

import functools
import sys

from nova.cmd import compute
from nova.conductor import api

import libvirt

libvirt.virEventRegisterDefaultImpl()
# In a new cloud the conductor starts at the same time. By default nova-compute pings it every ten seconds, and once per
# minute after ten attempts.
api.API.wait_until_ready = functools.partialmethod(api.API.wait_until_ready, early_timeout=2, early_attempts=1800)
sys.argv[0] = "nova-compute"
sys.exit(compute.main())
