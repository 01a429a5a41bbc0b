# Waits until the queues of a stopping member have a quorum without it, for at most the given seconds.
set -eu
. /etc/openstack/member.sh
limit=$1

# A member that leaves has moved its queues, and one that does not serve has none to hand over.
if instructed_to_leave || ! serves 127.0.0.1; then exit 0; fi
# Without another member that serves, the wait is in vain.
if [ -z "$(serving_peers)" ]; then exit 0; fi
# The client has its own timeout; the limit is for a hanging client. If all members stop, some wait in vain.
timeout "$limit" rabbitmq-upgrade await_online_quorum_plus_one --timeout "$((limit - 10))"
