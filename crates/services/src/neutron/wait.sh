# Waits for the node's switch, and for the southbound database where there is one.
set -eu

until ovs-vsctl --timeout=2 --db=tcp:127.0.0.1:6640 br-exists br-int; do sleep 0.5; done

a_member_answers() {
    for member in $SOUTHBOUND; do
        IFS=: read -r _ host port <<<"$member"
        if timeout 2 bash -c "exec 3<>/dev/tcp/$host/$port" 2>/dev/null; then return 0; fi
    done
    return 1
}

if [ -n "$SOUTHBOUND" ]; then until a_member_answers; do sleep 0.5; done; fi
