# Runs the agent of a node's switch with what the switch was set up with, and ends where that changes, to be started again.
set -eu

# The keys are those that OVN's controller would read.
setting() {
    ovs-vsctl --timeout=10 --db=tcp:127.0.0.1:6640 --if-exists get Open_vSwitch . "external-ids:$1" | tr -d '"'
}

settings() {
    setting ovn-encap-ip
    setting ovn-bridge-mappings
}

OS_OVS__LOCAL_IP=$(setting ovn-encap-ip)
OS_OVS__BRIDGE_MAPPINGS=$(setting ovn-bridge-mappings)
export OS_OVS__LOCAL_IP OS_OVS__BRIDGE_MAPPINGS
before=$(settings)
neutron-openvswitch-agent --config-file /etc/neutron/neutron.conf --config-file /etc/neutron/openvswitch_agent.ini &
agent=$!
trap 'kill -TERM "$agent"' TERM
while kill -0 "$agent" 2>/dev/null; do
    # Its database may be away for a while, and then says nothing.
    if now=$(settings) && [ "$now" != "$before" ]; then
        echo "the switch was set up anew: $now" >&2
        kill -TERM "$agent"
    fi
    sleep 10 &
    wait $!
done
wait "$agent"
