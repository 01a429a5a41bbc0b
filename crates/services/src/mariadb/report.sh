# Reports the content of the data directory as one line of JSON, without secrets: the kubelet copies it to the status
# of the pod.
data=/var/lib/mysql
settings=/etc/openstack/mariadb.cnf
# The next start of the server waits with this ticket; position is that of the report.
ticket_file=/run/mysqld/ticket
position_file=/run/mysqld/position

# Sets uuid, sequence, safe and excluded; uuid is empty if the volume has no position.
find_position() {
    uuid='' sequence=-1 safe=0 excluded=0
    if [ ! -d "$data/mysql" ] || [ -e "$data/.installing" ]; then return 0; fi
    # A member that was killed during a state transfer has incomplete data.
    if [ -e "$data/sst_in_progress" ]; then return 0; fi
    # After a clean shutdown the position is in a file; after a crash only the server can recover it.
    uuid=$(sed -n 's/^uuid: *//p' "$data/grastate.dat" 2>/dev/null || :)
    sequence=$(sed -n 's/^seqno: *//p' "$data/grastate.dat" 2>/dev/null || :)
    safe=$(sed -n 's/^safe_to_bootstrap: *//p' "$data/grastate.dat" 2>/dev/null || :)
    if [ -z "$sequence" ] || [ "$sequence" = -1 ]; then
        safe=0
        # Galera records a UUID of zeros when the others exclude a member that could not apply a change.
        case $uuid in '' | *[!0-]*) ;; *) excluded=1 ;; esac
        log=$(mktemp)
        # It joins no cluster, but does not start without a cluster address.
        if ! mariadbd --defaults-file="$settings" --wsrep-recover --wsrep-cluster-address=gcomm:// --skip-networking \
            --log-error="$log" >&2; then
            { printf 'The database cannot recover its position:\n' && tail -n 3 "$log"; } >/dev/termination-log
            exit 1
        fi
        recovered=$(sed -n 's/.*WSREP: Recovered position: *\([^ ,]*\).*/\1/p' "$log" | tail -n 1)
        rm -f "$log"
        uuid=${recovered%%:*}
        sequence=${recovered##*:}
    fi
    # A server that never joined a cluster has a UUID of zeros.
    case $uuid in *[!0-]*) ;; *) uuid='' sequence=-1 ;; esac
    safe=${safe:-0}
}

# Writes a report of the position. The next start of the server, and only that one, has its ticket.
write_report() {
    next=$(cat /proc/sys/kernel/random/uuid)
    printf '%s %s\n' "$sequence" "$uuid" >"$position_file"
    printf '%s\n' "$next" >"$ticket_file"
    if [ ! -d "$data/mysql" ] || [ -e "$data/.installing" ]; then
        printf '{"state":"empty","ticket":"%s"}\n' "$next" >/dev/termination-log
    else
        printf '{"state":"data","uuid":"%s","sequence":%s,"safe":%s,"excluded":%s,"ticket":"%s"}\n' \
            "$uuid" "$sequence" "$safe" "$excluded" "$next" >/dev/termination-log
    fi
}
