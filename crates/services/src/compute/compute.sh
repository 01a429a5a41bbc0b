# Starts nova-compute with the virtualization type of the node.
set -eu
OS_LIBVIRT__VIRT_TYPE=$(cat /run/libvirt/openstack-virt-type)
export OS_LIBVIRT__VIRT_TYPE
if [ "$OS_LIBVIRT__VIRT_TYPE" = qemu ]; then export OS_LIBVIRT__CPU_MODE=none; fi
# The interpreter of nova-compute finds its modules.
interpreter=$(sed -n '1s/^#! *//p' "$(command -v nova-compute)")
# shellcheck disable=SC2086 # an interpreter may have an argument
exec $interpreter /etc/openstack/compute.py --config-file /etc/nova/nova.conf
