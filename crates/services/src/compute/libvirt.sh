# Runs libvirt so that guests survive this pod: processes in the cgroups of the pod are killed with it.
set -eu
. /etc/openstack/claim.sh
group=openstack-libvirt

# Read once, because the file changes while this process moves.
places=$(cat /proc/self/cgroup)
while IFS=: read -r number controllers _; do
    if [ "$number" = 0 ]; then
        directory=/sys/fs/cgroup
        if [ -d "$directory/unified" ]; then directory=$directory/unified; fi
    else
        directory=/sys/fs/cgroup/${controllers#name=}
    fi
    [ -d "$directory" ] || continue
    mkdir -p "$directory/$group"
    if [ "$controllers" = cpuset ]; then
        cat "$directory/cpuset.cpus" >"$directory/$group/cpuset.cpus"
        cat "$directory/cpuset.mems" >"$directory/$group/cpuset.mems"
    fi
    echo $$ >"$directory/$group/cgroup.procs"
done <<<"$places"

# virtlogd holds the consoles of guests, so a running one is kept. Its PID may have been reused.
logger=$(cat /run/libvirt/virtlogd.pid 2>/dev/null || echo none)
if [ "$(cat "/proc/$logger/comm" 2>/dev/null)" != virtlogd ]; then
    virtlogd -d -f /etc/libvirt/virtlogd.conf -p /run/libvirt/virtlogd.pid
fi
exec libvirtd -f /etc/libvirt/libvirtd.conf -p /run/libvirt/libvirtd.pid
