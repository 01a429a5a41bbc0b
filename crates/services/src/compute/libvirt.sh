# Runs libvirt so that guests outlive this pod: what stays in the pod's control groups is killed with it.
set -eu
group=openstack-libvirt

# Read once: the file changes while this process moves.
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

# It holds the guests' consoles, so one that runs is kept. Its number alone may be anybody's.
logger=$(cat /run/libvirt/virtlogd.pid 2>/dev/null || echo none)
if [ "$(cat "/proc/$logger/comm" 2>/dev/null)" != virtlogd ]; then
    virtlogd -d -f /etc/libvirt/virtlogd.conf -p /run/libvirt/virtlogd.pid
fi
exec libvirtd -f /etc/libvirt/libvirtd.conf -p /run/libvirt/libvirtd.pid
