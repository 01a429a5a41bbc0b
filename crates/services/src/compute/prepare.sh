# Creates the directories of Nova on the node, which belong to root at first, and waits for libvirt.
set -eu
. /etc/openstack/claim.sh
for directory in /var/lib/nova /var/lib/nova/instances /var/lib/nova/tmp; do
    mkdir -p "$directory"
    chown "$USER_NUMBER:$USER_NUMBER" "$directory"
done
# Nova looks for the disks of all instances in the backend of new ones, so that those with local disks would not start again.
if [ "$DISK_BACKEND" != local ]; then
    files=$(find /var/lib/nova/instances -mindepth 2 -maxdepth 2 -name disk)
    if [ -n "$files" ]; then
        echo "node $NODE_NAME has $(wc -l <<<"$files") instances with local disks: move or delete them, or set" \
            "ephemeral.backend to local" | tee /dev/termination-log >&2
        exit 1
    fi
fi
until [ -S /run/libvirt/libvirt-sock ] && [ -s /run/libvirt/openstack-virt-type ]; do sleep 0.3; done
