# Starts one member of the RabbitMQ cluster.
set -eu

# The broker reads its settings from one directory. It reads the list of members at each start, so a new member
# restarts no other.
mkdir -p /run/rabbitmq/conf.d
# Files of an earlier start are read-only.
cp -f /etc/openstack/rabbitmq.conf /run/rabbitmq/conf.d/10-settings.conf
cp -f /etc/openstack/live/members.conf /run/rabbitmq/conf.d/20-members.conf
(
    umask 077
    # These apply only to an empty data directory.
    printf 'default_user = %s\ndefault_pass = %s\ndefault_user_tags.administrator = true\n' \
        "$ADMINISTRATOR_NAME" "$ADMINISTRATOR_PASSWORD" >/run/rabbitmq/conf.d/30-administrator.conf
)

cookie=/var/lib/rabbitmq/.erlang.cookie
if [ ! -s "$cookie" ] || [ "$(cat "$cookie")" != "$CLUSTER_COOKIE" ]; then
    rm -f "$cookie"
    (umask 077 && printf '%s' "$CLUSTER_COOKIE" >"$cookie")
    chmod 0400 "$cookie"
fi

set_password() {
    rabbitmqctl await_startup --timeout 600 &&
        printf '%s' "$ADMINISTRATOR_PASSWORD" | rabbitmqctl change_password "$ADMINISTRATOR_NAME"
}

# A regenerated password must reach a broker with data. Only then is the slow client needed.
seen=/var/lib/rabbitmq/administrator.sha256
now=$(printf '%s' "$ADMINISTRATOR_PASSWORD" | sha256sum | cut -d ' ' -f 1)
if [ -d /var/lib/rabbitmq/mnesia ] && [ "$(cat "$seen" 2>/dev/null)" != "$now" ]; then
    (
        # Until then the administrator cannot log in. The client prints the reason of a failure.
        until set_password; do
            printf 'failed to change the password of %s; retrying in 10 seconds\n' "$ADMINISTRATOR_NAME" >&2
            sleep 10
        done
        printf '%s' "$now" >"$seen"
    ) &
else
    printf '%s' "$now" >"$seen"
fi

# The broker does not need them any more.
unset ADMINISTRATOR_PASSWORD CLUSTER_COOKIE
exec rabbitmq-server
