# Hands the role of the primary over before the server stops, so that clients wait for a moment instead of seconds, and no
# acknowledged write is lost.
set -eu
. /etc/openstack/member.sh
end=$((SECONDS + $1))
if [ "$MODE" = single ]; then exit 0; fi
if ! valkey-cli --no-auth-warning --user probe --pass probe INFO replication | grep -q '^role:master'; then exit 0; fi
own=$(own_address)
administrator=$(password_of administrator)
# Clients wait with their writes, which the next primary would not get any more.
if ! administer "$administrator" <<<"CLIENT PAUSE $(($1 * 1000)) WRITE"; then
    echo 'clients cannot be paused and may lose their last writes' >&2
fi
for host in $(other_members); do
    if ! administer "$administrator" -t 3 -h "$host" -p 26379 <<<"SENTINEL FAILOVER $PRIMARY"; then continue; fi
    while [ "$SECONDS" -lt "$end" ]; do
        primary=$(valkey-cli -t 3 -h "$host" -p 26379 SENTINEL get-master-addr-by-name "$PRIMARY" | head -n 1)
        if [ -n "$primary" ] && [ "$primary" != "$own" ]; then exit 0; fi
        sleep 0.2
    done
done
echo 'no other member takes over' >&2
