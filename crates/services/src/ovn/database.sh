# Runs one member of a Raft cluster of OVSDB servers. A member without data waits for the instruction to bootstrap or
# to join the cluster: its own decision after a lost volume could create a second cluster.
set -eu
file=/var/lib/ovn/$DATABASE.db
socket=/run/ovn/$DATABASE.sock
control=/run/ovn/$DATABASE.ctl

address() {
    printf 'tcp:%s:%s' "$1" "$GROUP_PORT"
}

others() {
    for member in $(cat "/etc/openstack/live/$DATABASE-members"); do
        case $member in "$POD_NAME".*) ;; *) address "$member"; printf ' ' ;; esac
    done
}

own_address() {
    for member in $(cat "/etc/openstack/live/$DATABASE-members"); do
        case $member in "$POD_NAME".*) address "$member" ;; esac
    done
}

# An instruction names its pod, so that it never applies to a later one.
order() {
    sed -n 's/^openstack.k8s.io\/ovn-order="\(.*\)"$/\1/p' /etc/podinfo/annotations
}

while [ ! -e "$file" ]; do
    rm -f "$file.new"
    case $(order) in
        "begin/$POD_UID")
            ovsdb-tool --election-timer=10000 create-cluster "$file.new" "$SCHEMA_FILE" "$(own_address)"
            mv "$file.new" "$file"
            ;;
        "join/$POD_UID")
            # shellcheck disable=SC2046 # several addresses are several words
            ovsdb-tool join-cluster "$file.new" "$SCHEMA" "$(own_address)" $(others)
            mv "$file.new" "$file"
            ;;
        *) sleep 1 ;;
    esac
done

cluster_status() {
    ovs-appctl --timeout=10 -t "$control" cluster/status "$SCHEMA" 2>/dev/null
}

# A newer image may have a newer schema. All members must run it before the leader converts the database.
convert() {
    until cluster_status | grep -q '^Role: leader'; do sleep 5; done
    if [ "$(ovsdb-client needs-conversion "unix:$socket" "$SCHEMA_FILE")" = yes ]; then
        ovsdb-client convert "unix:$socket" "$SCHEMA_FILE"
    fi
}
convert &

# Lost members: of several entries with one address all but the last active one, and entries without a pod that were
# inactive for two minutes. The list of pods may be a minute old.
lost_members() {
    cluster_status | awk -v pods="$(cat "/etc/openstack/live/$DATABASE-members")" '
        BEGIN { count = split(pods, list); for (at = 1; at <= count; at++) has_pod[list[at]] = 1 }
        $1 == "Role:" { leads = $2 == "leader" }
        leads && $3 == "at" {
            age = 1e18
            for (field = 5; field < NF; field++) if ($field == "msg") age = $(field + 1) + 0
            if ($5 == "(self)") age = -1
            split($4, address, ":")
            if (!(address[2] in has_pod) && age > 120000) print $1
            else if (!($4 in ages) || age < ages[$4]) {
                if ($4 in ages) print youngest[$4]
                youngest[$4] = $1
                ages[$4] = age
            } else print $1
        }'
}

# A member that lost its volume rejoins with a new ID. Its old entry would count for the quorum forever.
remove_lost_members() {
    while sleep 30; do
        for member in $(lost_members); do
            echo "member $member is lost: removing it from the cluster" >&2
            ovs-appctl --timeout=10 -t "$control" cluster/kick "$SCHEMA" "$member" || echo "cannot remove it yet" >&2
        done
    done
}
remove_lost_members &

# Whether this member is instructed to leave and the cluster has no lost members.
may_leave() {
    instruction=$(order)
    [[ $instruction = "leave/$POD_UID/"* ]] && known=$(cluster_status | grep -c ' at tcp:') && [ "$known" -le "${instruction##*/}" ]
}

# A member that left cannot return with its old data; it must rejoin. The file marks a pod that stops before the data
# is deleted.
leave_when_instructed() {
    until may_leave; do sleep 2; done
    touch "$file.leaving"
    until ovs-appctl --timeout=10 -t "$control" cluster/leave "$SCHEMA"; do sleep 2; done
    ovsdb-client wait "unix:$socket" "$SCHEMA" removed
    rm "$file" "$file.leaving"
    printf '{"state":"left"}\n' >/dev/termination-log
    ovs-appctl --timeout=10 -t "$control" exit
}
leave_when_instructed &

exec ovsdb-server "$file" --remote="ptcp:$CLIENT_PORT:0.0.0.0" --remote="punix:$socket" --unixctl="$control" \
    --pidfile="/run/ovn/$DATABASE.pid" -vconsole:info -vsyslog:off -vfile:off
