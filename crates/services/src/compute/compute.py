"""Starts nova-compute with libvirt's event loop in place from the beginning.

On the first start on a node nova-compute looks for guests before it sets up the loop. The connection that it makes for
that has no events, and is kept: until the next start nobody would hear of a guest that stops by itself.
"""

import sys

from nova.cmd import compute

import libvirt

libvirt.virEventRegisterDefaultImpl()
sys.argv[0] = "nova-compute"
sys.exit(compute.main())
