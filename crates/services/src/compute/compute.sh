# Starts nova-compute for what guests of this node can run on.
set -eu
OS_LIBVIRT__VIRT_TYPE=$(cat /run/libvirt/openstack-virt-type)
export OS_LIBVIRT__VIRT_TYPE
if [ "$OS_LIBVIRT__VIRT_TYPE" = qemu ]; then export OS_LIBVIRT__CPU_MODE=none; fi
# The interpreter that the program itself is run by knows where the rest of it is.
interpreter=$(sed -n '1s/^#! *//p' "$(command -v nova-compute)")
# shellcheck disable=SC2086 # an interpreter may have an argument
exec $interpreter /etc/openstack/compute.py --config-file /etc/nova/nova.conf
