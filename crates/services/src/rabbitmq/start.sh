# Starts one member of the RabbitMQ cluster. A member with data starts at once. A member without data joins members that
# serve. Only the first member of a new cluster, or an instructed one, forms a cluster: any other decision could form
# a second one.
set -eu
. /etc/openstack/member.sh
administrator=/etc/openstack/administrator
# Survives a restart of the container, but not the pod.
left=/run/rabbitmq/left

# Members authenticate with the cookie. A member with data keeps its own, because the other members use it as well.
cookie="$data/.erlang.cookie"
if [ ! -s "$cookie" ] || ! has_data; then
    rm -f "$cookie"
    (umask 077 && cat /etc/openstack/cookie/cookie >"$cookie")
    chmod 0400 "$cookie"
fi

# The other members may know this one from the data that it lost. They would refuse it.
forget_own_data() {
    answer=$(rabbitmqctl --node "rabbit@$1" forget_cluster_node "$RABBITMQ_NODENAME" 2>&1) && return 0
    case $answer in *not_a_cluster_node* | *"not in the cluster"*) return 0 ;; esac
    printf '%s\n' "$answer" >&2
    return 1
}

# Reports that this member has left, also if a later container of the pod ends.
leave_without_data() {
    if [ -e "$left" ]; then
        write_report left
    elif [ -n "$peers" ] && forget_own_data "${peers%%$'\n'*}"; then
        touch "$left"
        write_report left
        exit 0
    fi
}

may_form() {
    [ "$(order)" = "form/$POD_UID" ] || { [ "$(cat "$live/mode")" = new ] && [ "${POD_NAME##*-}" = 0 ]; }
}

# Waits until this member can join the members in `peers`, or form a cluster.
wait_for_cluster() {
    write_report empty
    while :; do
        peers=$(serving_peers)
        if instructed_to_leave; then
            leave_without_data
        else
            rm -f "$left"
            if [ -n "$peers" ]; then
                if forget_own_data "${peers%%$'\n'*}"; then break; fi
            elif may_form; then
                break
            fi
        fi
        sleep 1
    done
    # From now on the message is the log of the broker.
    : >/dev/termination-log
}

# A broker waits for the members that stopped after it. If one of these lost its data, no broker starts.
may_boot_alone() {
    [ "$(order)" = "boot/$POD_UID" ] && [ -z "$(serving_peers)" ]
}

boots_alone=no
if has_data; then
    peers=$(sed -n 's/.*rabbit@//p' "$live/members.conf")
    if may_boot_alone; then
        boots_alone=yes
        touch "$data/mnesia/$RABBITMQ_NODENAME/force_load"
    fi
else
    rm -rf "$data/mnesia"
    wait_for_cluster
    touch "$incomplete"
fi

# The broker reads its settings from one directory. Files of an earlier start are read-only.
settings=/run/rabbitmq/conf.d
mkdir -p "$settings"
cp -f "$live/storage.conf" "$settings/05-storage.conf"
cp -f /etc/openstack/rabbitmq.conf "$settings/10-settings.conf"
# Discovery must not find members that have no data either.
number=0
for host in $(printf '%s\n%s\n' "${RABBITMQ_NODENAME#*@}" "$peers" | sort -u); do
    number=$((number + 1))
    printf 'cluster_formation.classic_config.nodes.%s = rabbit@%s\n' "$number" "$host"
done >"$settings/20-members.conf"
username=$(cat "$administrator/username")
password=$(cat "$administrator/password")
(
    umask 077
    # These apply only to a new cluster.
    printf 'default_user = %s\ndefault_pass = %s\ndefault_user_tags.administrator = true\n' \
        "$username" "$password" >"$settings/30-administrator.conf"
)

stamp="$data/administrator.sha256"
digest() {
    printf '%s' "$1" | sha256sum | cut -d ' ' -f 1
}
# Without a stamp the password in the data is unknown.
if has_data && [ "$(cat "$stamp" 2>/dev/null)" != "$(digest "$password")" ]; then
    password=
else
    digest "$password" >"$stamp"
fi

# The kubelet refreshes the file, so that a regenerated password reaches the running broker.
set_changed_password() {
    wanted=$(cat "$administrator/password")
    if [ "$wanted" = "$password" ]; then return 0; fi
    # Until then the administrator cannot log in. The client prints the reason of a failure.
    if printf '%s' "$wanted" | rabbitmqctl change_password "$username"; then
        password=$wanted
        digest "$password" >"$stamp"
    else
        printf 'failed to change the password of %s; retrying in 5 seconds\n' "$username" >&2
    fi
}

# The client succeeds even if it fails for some queues, and prints these.
for_all_queues() {
    failed=$(rabbitmq-queues --quiet "$@" --errors-only) || return 1
    if [ -n "$failed" ]; then
        printf '%s\n' "$failed" >&2
        return 1
    fi
}

# Moves the queues of this member to the first one, and stops the broker. The next start leaves the cluster.
leave_with_data() {
    first=$(sed -n 's/.*nodes\.1 = //p' "$live/members.conf")
    for_all_queues grow "$first" all --membership voter && for_all_queues shrink "$RABBITMQ_NODENAME" || return 1
    touch "$incomplete"
    rabbitmqctl stop
}

accompany() {
    until serves 127.0.0.1; do
        # The next start of the container boots alone. A broker that waits does not stop by itself.
        if [ "$boots_alone" = no ] && may_boot_alone; then kill -KILL "$$"; fi
        sleep 1
    done
    rm -f "$incomplete"
    while :; do
        set_changed_password
        if instructed_to_leave; then
            if leave_with_data; then break; fi
            echo 'cannot leave the cluster yet; retrying in 5 seconds' >&2
        fi
        sleep 5
    done
}
accompany &
exec rabbitmq-server
