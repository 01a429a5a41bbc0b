# Configures Open vSwitch from the settings of the operator, keeps the configuration current, and runs ovs-vswitchd.
set -eu
live=/etc/openstack/live
tunnel_bridge=br-phy

set_switch() {
    ovs-vsctl --timeout=10 --no-wait "$@"
}

# Object of the operator that the switch belongs to.
owner() {
    found=$(set_switch --if-exists get Open_vSwitch . external-ids:openstack-owner) || return 1
    printf '%s' "${found//\"/}"
}

refuse() {
    echo "Open vSwitch on node $NODE_NAME belongs to $1 and not to $OWNER, which changed nothing there:" \
        "select other nodes for one of them" | tee /dev/termination-log >&2
}

# Another object may take the switch over only if the operator has assigned the node to it.
claim() {
    current=$(owner) || return 1
    [ "$current" != "$OWNER" ] || return 0
    if [ -n "$current" ] && ! grep -qsxF -- "$NODE_NAME" "$live/claimed-nodes"; then
        refuse "$current"
        return 1
    fi
    set_switch set Open_vSwitch . external-ids:openstack-owner="\"$OWNER\""
}

# Settings of the node override those of all nodes.
read_settings() {
    if [ -e "$live/node-$NODE_NAME" ]; then cat "$live/node-$NODE_NAME"; else cat "$live/nodes"; fi
}

# IP addresses, because clients do not resolve several names reliably.
resolve() {
    result=
    for member in "$@"; do
        number=$(getent ahostsv4 "${member%:*}" | awk 'NR == 1 { print $1 }')
        [ -n "$number" ] || return 1
        result="$result${result:+,}tcp:$number:${member##*:}"
    done
    printf '%s' "$result"
}

address_of() {
    ip -4 -o address show dev "$1" 2>/dev/null | awk 'NR == 1 { print $4 }'
}

add_bridge() {
    set_switch --may-exist add-br "$1" -- set bridge "$1" datapath_type="$datapath"
    if [ -n "${2:-}" ]; then
        set_switch --may-exist add-port "$1" "$2"
        ip link set "$2" up
    fi
}

# The userspace datapath accepts tunnels only on a bridge with the interface and its address.
needs_hold() {
    [ "$datapath" = netdev ] && [ -n "$interface" ] &&
        { [ -n "$(address_of "$interface")" ] || [ -z "$(address_of "$tunnel_bridge")" ]; }
}

hold_tunnel_address() {
    moved=$(address_of "$interface")
    if [ -n "$moved" ]; then
        set_switch set Open_vSwitch . external-ids:tunnel-address="$moved"
        ip address delete "$moved" dev "$interface"
    fi
    [ -d "/sys/class/net/$tunnel_bridge" ] || return 0
    if [ -z "$(address_of "$tunnel_bridge")" ]; then
        ip address replace "$(set_switch get Open_vSwitch . external-ids:tunnel-address | tr -d '"')" dev "$tunnel_bridge"
        ip link set "$tunnel_bridge" up
    fi
}

# Parses the settings: a keyword and its values per line.
parse() {
    datapath=system encapsulation=geneve interface='' given='' system_id=$NODE_NAME gateway=no mappings='' southbound=''
    bridges=()
    while read -r keyword first second third; do
        case $keyword in
            datapath) datapath=$first ;;
            encapsulation) encapsulation=$first interface=$second ;;
            address) given=$first ;;
            system-id) system_id=$first ;;
            gateway) gateway=$first ;;
            mapping)
                mappings="$mappings${mappings:+,}$first:$second"
                bridges+=("$second $third")
                ;;
            southbound) southbound="$southbound $first" ;;
        esac
    done <<<"$1"
}

configure() {
    claim
    add_bridge br-int
    set_switch set bridge br-int fail_mode=secure
    for bridge in "${bridges[@]}"; do
        # shellcheck disable=SC2086 # a bridge and its interface are two words
        add_bridge $bridge
    done
    if [ "$datapath" = netdev ] && [ -n "$interface" ]; then
        add_bridge "$tunnel_bridge" "$interface"
        hold_tunnel_address
        address=$(set_switch get Open_vSwitch . external-ids:tunnel-address | tr -d '"')
        # Guests offload checksums; without this option their packets would be dropped.
        set_switch set Open_vSwitch . other_config:userspace-tso-enable=true
    else
        address=$([ -n "$interface" ] && address_of "$interface" || printf '%s' "$HOST_IP")
    fi
    address=${given:-${address%/*}}
    set_switch set Open_vSwitch . external-ids:system-id="$system_id" external-ids:hostname="$NODE_NAME" \
        external-ids:ovn-encap-type="$encapsulation" external-ids:ovn-encap-ip="$address" \
        external-ids:ovn-bridge=br-int external-ids:ovn-bridge-datapath-type="$datapath" \
        external-ids:ovn-monitor-all=true external-ids:ovn-remote-probe-interval=60000
    if [ -n "$mappings" ]; then
        set_switch set Open_vSwitch . external-ids:ovn-bridge-mappings="$mappings"
    else
        set_switch remove Open_vSwitch . external-ids ovn-bridge-mappings
    fi
    if [ "$gateway" = yes ]; then
        set_switch set Open_vSwitch . external-ids:ovn-cms-options=enable-chassis-as-gw
    else
        set_switch remove Open_vSwitch . external-ids ovn-cms-options
    fi
}

# Addresses and settings may change while ovs-vswitchd runs. Failures are retried, because the database may be
# restarting.
keep() {
    remote=
    round=0
    while true; do
        if [ $((round % 10)) = 0 ] && current=$(owner) && [ -n "$current" ] && [ "$current" != "$OWNER" ]; then
            refuse "$current"
            # The shell that started this loop has become ovs-vswitchd.
            kill "$$"
            return 1
        fi
        if needs_hold && ! bash "$0" hold; then echo "cannot move the tunnel address" >&2; fi
        if [ $((round % 10)) = 0 ]; then
            now=$(read_settings)
            if [ "$now" != "$settings" ]; then
                if bash "$0" configure; then settings=$now; else echo "cannot apply the new settings" >&2; fi
                parse "$settings"
            fi
            # shellcheck disable=SC2086 # several members are several words
            if found=$(resolve $southbound) && [ "$found" != "$remote" ]; then
                if set_switch set Open_vSwitch . external-ids:ovn-remote="\"$found\""; then remote=$found; fi
            fi
        fi
        round=$((round + 1))
        sleep 1
    done
}

settings=$(read_settings)
parse "$settings"
case ${1:-run} in
    configure) configure ;;
    hold)
        claim
        hold_tunnel_address
        ;;
    run)
        until ovs-vsctl --timeout=2 --no-wait show >/dev/null 2>&1; do sleep 0.3; done
        set_switch init
        configure
        keep &
        exec ovs-vswitchd unix:/run/openvswitch/db.sock --unixctl=/run/openvswitch/ovs-vswitchd.ctl \
            --pidfile=/run/openvswitch/ovs-vswitchd.pid -vconsole:info -vsyslog:off -vfile:off
        ;;
esac
