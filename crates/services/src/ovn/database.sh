# Runs one member of a group of OVSDB servers. A member without data waits to be told whether to begin the group or to
# join it: were it to decide by itself, a lost volume would end in a second group.
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

# An order names the pod that it is for, so that it never reaches one that came after it.
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

group_status() {
    ovs-appctl --timeout=10 -t "$control" cluster/status "$SCHEMA" 2>/dev/null
}

# A newer image may bring a newer form of the data. All members must run it before one of them converts.
convert() {
    until group_status | grep -q '^Role: leader'; do sleep 5; done
    if [ "$(ovsdb-client needs-conversion "unix:$socket" "$SCHEMA_FILE")" = yes ]; then
        ovsdb-client convert "unix:$socket" "$SCHEMA_FILE"
    fi
}
convert &

# Of several entries with one address all but the one that was heard of last, and what has no pod and was not heard of for
# two minutes: the list of pods may be a minute behind.
lost_members() {
    group_status | awk -v pods="$(cat "/etc/openstack/live/$DATABASE-members")" '
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

# A member that lost its volume joins as another one, or its pod goes without it. Who it was would count for the majority
# for ever.
forget_lost() {
    while sleep 30; do
        for member in $(lost_members); do
            echo "member $member will not come back: it is no longer waited for" >&2
            ovs-appctl --timeout=10 -t "$control" cluster/kick "$SCHEMA" "$member" || echo "it could not be removed yet" >&2
        done
    done
}
forget_lost &

# Whether this member is told to leave, and the group counts on nobody who is gone for ever.
may_leave() {
    told=$(order)
    [[ $told = "leave/$POD_UID/"* ]] && known=$(group_status | grep -c ' at tcp:') && [ "$known" -le "${told##*/}" ]
}

# Who has left cannot come back with what it had: it would have to join anew. The mark is for a pod that is stopped before
# the data is gone.
leave_when_told() {
    until may_leave; do sleep 2; done
    touch "$file.leaving"
    until ovs-appctl --timeout=10 -t "$control" cluster/leave "$SCHEMA"; do sleep 2; done
    ovsdb-client wait "unix:$socket" "$SCHEMA" removed
    rm "$file" "$file.leaving"
    printf '{"state":"left"}\n' >/dev/termination-log
    ovs-appctl --timeout=10 -t "$control" exit
}
leave_when_told &

exec ovsdb-server "$file" --remote="ptcp:$CLIENT_PORT:0.0.0.0" --remote="punix:$socket" --unixctl="$control" \
    --pidfile="/run/ovn/$DATABASE.pid" -vconsole:info -vsyslog:off -vfile:off
