# Waits for Open vSwitch and for one of the peers of the agents.
set -eu

until ovs-vsctl --timeout=2 --db=tcp:127.0.0.1:6640 br-exists br-int; do sleep 0.5; done

peer_responds() {
    for peer in $PEERS; do
        IFS=: read -r _ host port <<<"$peer"
        if timeout 2 bash -c "exec 3<>/dev/tcp/$host/$port" 2>/dev/null; then return 0; fi
    done
    return 1
}

until peer_responds; do sleep 0.5; done
