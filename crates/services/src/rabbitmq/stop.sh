# Waits until the queues of a stopping member have a quorum without it, for at most the given seconds.
set -eu
limit=$1

# Reads the list at run time instead of from the pod template, so a new member restarts no other.
if [ "$(grep -c rabbit@ /etc/openstack/live/members.conf)" -gt 1 ]; then
    # The client has its own timeout; the limit is for a hanging client. If all members stop, some wait in vain.
    timeout "$limit" rabbitmq-upgrade await_online_quorum_plus_one --timeout "$((limit - 10))"
fi
