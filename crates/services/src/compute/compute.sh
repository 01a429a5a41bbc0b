# Starts nova-compute for what guests of this node can run on.
set -eu
OS_LIBVIRT__VIRT_TYPE=$(cat /run/libvirt/openstack-virt-type)
export OS_LIBVIRT__VIRT_TYPE
if [ "$OS_LIBVIRT__VIRT_TYPE" = qemu ]; then export OS_LIBVIRT__CPU_MODE=none; fi
exec nova-compute --config-file /etc/nova/nova.conf
