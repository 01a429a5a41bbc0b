# Runs the Open vSwitch agent once the switch belongs to this Neutron, with the settings of Open vSwitch. Exits when they
# change, to be restarted.
set -eu

# The keys are those of ovn-controller.
setting() {
    ovs-vsctl --timeout=10 --db=tcp:127.0.0.1:6640 --if-exists get Open_vSwitch . "external-ids:$1" | tr -d '"'
}

settings() {
    setting ovn-encap-ip
    setting ovn-bridge-mappings
}

until [ "$(setting openstack-owner)" = "$OWNER" ]; do sleep 1; done
OS_OVS__LOCAL_IP=$(setting ovn-encap-ip)
OS_OVS__BRIDGE_MAPPINGS=$(setting ovn-bridge-mappings)
export OS_OVS__LOCAL_IP OS_OVS__BRIDGE_MAPPINGS
before=$(settings)
neutron-openvswitch-agent --config-file /etc/neutron/neutron.conf --config-file /etc/neutron/openvswitch_agent.ini &
agent=$!
trap 'kill -TERM "$agent"' TERM
while kill -0 "$agent" 2>/dev/null; do
    # The database may be unavailable for a while.
    if now=$(settings) && [ "$now" != "$before" ]; then
        echo "the settings of Open vSwitch changed: $now" >&2
        kill -TERM "$agent"
    fi
    sleep 10 &
    wait $!
done
wait "$agent"
