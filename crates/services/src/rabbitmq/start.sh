# Starts one member of the message bus.
set -eu

# The broker wants its settings in one directory. The list of members is read at each start, so that a member more
# restarts no other.
mkdir -p /run/rabbitmq/conf.d
# What a start before this one has left cannot be written to.
cp -f /etc/openstack/rabbitmq.conf /run/rabbitmq/conf.d/10-settings.conf
cp -f /etc/openstack/live/members.conf /run/rabbitmq/conf.d/20-members.conf
(
    umask 077
    # These count only where the data directory is empty.
    printf 'default_user = %s\ndefault_pass = %s\ndefault_user_tags.administrator = true\n' \
        "$ADMINISTRATOR_NAME" "$ADMINISTRATOR_PASSWORD" >/run/rabbitmq/conf.d/30-administrator.conf
)

cookie=/var/lib/rabbitmq/.erlang.cookie
if [ ! -s "$cookie" ] || [ "$(cat "$cookie")" != "$CLUSTER_COOKIE" ]; then
    rm -f "$cookie"
    (umask 077 && printf '%s' "$CLUSTER_COOKIE" >"$cookie")
    chmod 0400 "$cookie"
fi

tell_password() {
    rabbitmqctl await_startup --timeout 600 &&
        printf '%s' "$ADMINISTRATOR_PASSWORD" | rabbitmqctl change_password "$ADMINISTRATOR_NAME"
}

# A password that was made anew must reach a broker that has data. Only then is the slow client needed.
seen=/var/lib/rabbitmq/administrator.sha256
now=$(printf '%s' "$ADMINISTRATOR_PASSWORD" | sha256sum | cut -d ' ' -f 1)
if [ -d /var/lib/rabbitmq/mnesia ] && [ "$(cat "$seen" 2>/dev/null)" != "$now" ]; then
    (
        # Until it is told, nobody can administer the broker. The client itself says why it failed.
        until tell_password; do
            printf 'failed to change the password of %s; it is tried again in 10 seconds\n' "$ADMINISTRATOR_NAME" >&2
            sleep 10
        done
        printf '%s' "$now" >"$seen"
    ) &
else
    printf '%s' "$now" >"$seen"
fi

# The broker needs neither of them any more.
unset ADMINISTRATOR_PASSWORD CLUSTER_COOKIE
exec rabbitmq-server
