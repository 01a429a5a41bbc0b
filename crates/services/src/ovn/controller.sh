# Sets up a node's switch from the southbound database, once that holds something: while it is empty, ovn-controller ends
# with a segmentation fault (seen with 25.03).
set -eu

holds_something() {
    remote=$(ovs-vsctl --timeout=5 --if-exists get Open_vSwitch . external-ids:ovn-remote | tr -d '"')
    [ -n "$remote" ] &&
        [ -n "$(ovn-sbctl --timeout=5 --no-leader-only --db="$remote" --bare --columns=_uuid list SB_Global)" ]
}

until holds_something; do sleep 1; done
exec ovn-controller unix:/run/openvswitch/db.sock --unixctl=/run/ovn/ovn-controller.ctl \
    --pidfile=/run/ovn/ovn-controller.pid -vconsole:info -vsyslog:off -vfile:off
