# Gives libvirt the keys of Ceph users, which it loses whenever it stops. The argument is the PID of libvirtd.
set -eu
until virsh -c qemu:///system version --daemon >/dev/null 2>&1; do
    # This process is not in the cgroups of the pod, so it does not end with it.
    kill -0 "$1"
    sleep 0.5
done
definition=$(mktemp)
for file in /etc/openstack/ceph-keys/*; do
    uuid=${file##*/}
    usage="<usage type='ceph'><name>$uuid</name></usage>"
    echo "<secret ephemeral='yes' private='yes'><uuid>$uuid</uuid>$usage</secret>" >"$definition"
    virsh -c qemu:///system secret-define "$definition"
    virsh -c qemu:///system secret-set-value "$uuid" --file "$file"
done
touch /run/openstack-ceph-keys
