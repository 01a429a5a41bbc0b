"""Starts nova-compute with libvirt's event loop in place from the beginning.

On its first start on a node, nova-compute connects to libvirt before it sets up the loop. It keeps that connection, which
delivers no events, so that until its next start it would not notice a guest that powers itself off.
"""

import sys

from nova.cmd import compute

import libvirt

libvirt.virEventRegisterDefaultImpl()
sys.argv[0] = "nova-compute"
sys.exit(compute.main())
