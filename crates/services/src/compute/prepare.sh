# Creates the directories of Nova on the node, which belong to root at first, and waits for libvirt.
set -eu
. /etc/openstack/claim.sh
for directory in /var/lib/nova /var/lib/nova/instances /var/lib/nova/tmp; do
    mkdir -p "$directory"
    chown "$USER_NUMBER:$USER_NUMBER" "$directory"
done
until [ -S /run/libvirt/libvirt-sock ] && [ -s /run/libvirt/openstack-virt-type ]; do sleep 0.3; done
