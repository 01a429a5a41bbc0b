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

# A newer image may bring a newer form of the data. All members must run it before one of them converts.
convert() {
    until ovs-appctl -t "$control" cluster/status "$SCHEMA" 2>/dev/null | grep -q '^Role: leader'; do sleep 5; done
    if [ "$(ovsdb-client needs-conversion "unix:$socket" "$SCHEMA_FILE")" = yes ]; then
        ovsdb-client convert "unix:$socket" "$SCHEMA_FILE"
    fi
}
convert &

# Of several entries with one address all but the one that was heard of last.
lost_members() {
    ovs-appctl --timeout=10 -t "$control" cluster/status "$SCHEMA" 2>/dev/null | awk '
        $1 == "Role:" { leads = $2 == "leader" }
        leads && $3 == "at" {
            age = 1e18
            for (field = 5; field < NF; field++) if ($field == "msg") age = $(field + 1) + 0
            if ($5 == "(self)") age = -1
            if (!($4 in ages) || age < ages[$4]) {
                if ($4 in ages) print youngest[$4]
                youngest[$4] = $1
                ages[$4] = age
            } else print $1
        }'
}

# A member that lost its volume joins as another one. Who it was before would count for the majority for ever.
forget_lost() {
    while sleep 30; do
        for member in $(lost_members); do
            echo "member $member has joined anew as another: it is no longer waited for" >&2
            ovs-appctl --timeout=10 -t "$control" cluster/kick "$SCHEMA" "$member" || echo "it could not be removed yet" >&2
        done
    done
}
forget_lost &

# Who has left cannot come back with what it had: it would have to join anew. The mark is for a pod that is stopped before
# the data is gone.
leave_when_told() {
    until [[ $(order) = "leave/$POD_UID/"* ]]; do sleep 2; done
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
