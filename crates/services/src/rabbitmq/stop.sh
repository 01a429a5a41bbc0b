# Waits before a member stops until its queues have a majority without it, but no longer than the given seconds.
set -eu
limit=$1

# The list is read now and not written into the pods, so that a member more restarts no other.
if [ "$(grep -c rabbit@ /etc/openstack/live/members.conf)" -gt 1 ]; then
    # The client gives up by itself; the limit is for one that hangs. Where all members go, some wait in vain.
    timeout "$limit" rabbitmq-upgrade await_online_quorum_plus_one --timeout "$((limit - 10))"
fi
