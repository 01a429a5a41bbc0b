# Reports the content of the data directory as one line of JSON, without secrets: the kubelet copies it to the status
# of the pod.
data=/var/lib/mysql
settings=/etc/openstack/mariadb.cnf

position() {
    # After a clean shutdown the position is in a file; after a crash only the server can recover it.
    uuid=$(sed -n 's/^uuid: *//p' "$data/grastate.dat" 2>/dev/null || :)
    sequence=$(sed -n 's/^seqno: *//p' "$data/grastate.dat" 2>/dev/null || :)
    safe=$(sed -n 's/^safe_to_bootstrap: *//p' "$data/grastate.dat" 2>/dev/null || :)
    if [ -z "$sequence" ] || [ "$sequence" = -1 ]; then
        safe=0
        log=$(mktemp)
        # It joins no cluster, but does not start without a cluster address.
        if ! mariadbd --defaults-file="$settings" --wsrep-recover --wsrep-cluster-address=gcomm:// --skip-networking \
            --log-error="$log" >&2; then
            printf 'The database cannot recover its position:\n'
            tail -n 3 "$log"
            exit 1
        fi
        recovered=$(sed -n 's/.*WSREP: Recovered position: *\([^ ,]*\).*/\1/p' "$log" | tail -n 1)
        rm -f "$log"
        uuid=${recovered%%:*}
        sequence=${recovered##*:}
    fi
}

report() {
    if [ ! -d "$data/mysql" ] || [ -e "$data/.installing" ]; then
        printf '{"state":"empty"}\n'
    else
        position
        printf '{"state":"data","uuid":"%s","sequence":%s,"safe":%s}\n' "${uuid:-}" "${sequence:--1}" "${safe:-0}"
    fi
}
