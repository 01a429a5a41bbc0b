# Checks that this member is part of the cluster and that the cluster has a leader.
set -eu
status=$(ovs-appctl --timeout=4 -t "/run/ovn/$DATABASE.ctl" cluster/status "$SCHEMA")
grep -qx 'Status: cluster member' <<<"$status"
grep -q '^Leader: ' <<<"$status"
! grep -qx 'Leader: unknown' <<<"$status"
