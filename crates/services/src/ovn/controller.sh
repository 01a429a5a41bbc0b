# Starts ovn-controller once the switch belongs to this network, and the southbound database has content: with an empty
# database it ends with a segmentation fault (seen with 25.03).
set -eu

setting() {
    ovs-vsctl --timeout=5 --if-exists get Open_vSwitch . "external-ids:$1" | tr -d '"'
}

has_content() {
    remote=$(setting ovn-remote)
    [ -n "$remote" ] && [ "$(setting openstack-owner)" = "$OWNER" ] &&
        [ -n "$(ovn-sbctl --timeout=5 --no-leader-only --db="$remote" --bare --columns=_uuid list SB_Global)" ]
}

until has_content; do sleep 1; done
exec ovn-controller unix:/run/openvswitch/db.sock --unixctl=/run/ovn/ovn-controller.ctl \
    --pidfile=/run/ovn/ovn-controller.pid -vconsole:info -vsyslog:off -vfile:off
