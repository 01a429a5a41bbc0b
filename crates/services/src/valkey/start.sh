# Starts the server of one member. It is a replica of the primary that the Sentinels know. A member without data is never the
# primary of others, which would lose theirs: only the first member of a new cluster, or an instructed one, starts one.
set -eu
. /etc/openstack/member.sh

# The newest knowledge of a primary, of this and of all other Sentinels.
known_primary() {
    {
        if [ -s "$state" ]; then
            awk '$2 == "monitor" { ip = $4 } $2 == "config-epoch" { epoch = $4 } END { print epoch + 0, ip }' "$state"
        fi
        for host in $(other_members); do
            # A Sentinel answers with names and values, one per line.
            timeout 3 valkey-cli -h "$host" -p 26379 SENTINEL MASTER "$PRIMARY" 2>/dev/null |
                awk 'NR % 2 { name = $0; next } { value[name] = $0 }
                     END { if ("ip" in value) print value["config-epoch"] + 0, value["ip"] }'
        done
    } | sort -n | tail -n 1 | cut -d ' ' -f 2
}

may_form() {
    [ "$(order)" = "form/$POD_UID" ] || { [ "$(cat "$live/formed")" = no ] && [ "${POD_NAME##*-}" = 0 ]; }
}

# Waits until it is clear which member is the primary.
wait_for_primary() {
    while :; do
        own=$(own_address)
        primary=$(known_primary)
        if [ -n "$own" ]; then
            if has_data; then
                # A single server that gets further members has data, but no Sentinel.
                if [ -z "$primary" ] && [ "${POD_NAME##*-}" = 0 ]; then primary=$own; fi
                if [ -n "$primary" ]; then return; fi
            elif [ -n "$primary" ] && [ "$primary" != "$own" ]; then
                return
            elif may_form; then
                primary=$own
                return
            fi
        fi
        sleep 1
    done
}

password=$(password_of password)
administrator=$(password_of administrator)
settings=$run/valkey.conf
umask 077
{
    cat /etc/openstack/valkey.conf
    # Clients cannot change the settings or delete the data of other clients.
    printf 'user default on #%s ~* &* +@all -@admin -flushall -flushdb -swapdb\n' "$(digest "$password")"
    printf 'user administrator on #%s ~* &* +@all\n' "$(digest "$administrator")"
    printf 'user probe on nopass -@all +ping +info\n'
} >"$settings"
if [ "$MODE" = sentinel ]; then
    wait_for_primary
    {
        printf 'replica-announce-ip %s\nprimaryuser administrator\nprimaryauth %s\n' "$own" "$(quote "$administrator")"
        # The first member is preferred, because it stays when the others are removed.
        if [ "${POD_NAME##*-}" = 0 ]; then printf 'replica-priority 10\n'; fi
        if [ "$primary" != "$own" ]; then printf 'replicaof %s 6379\n' "$primary"; fi
    } >>"$settings"
    printf '%s' "$primary" >"$run/primary.new"
    mv "$run/primary.new" "$run/primary"
    # From now on the message is the log of the server.
    : >/dev/termination-log
fi

# The kubelet refreshes the files. A new password is added to the former one, which clients use until they restart.
add_changed_passwords() {
    new_password=$(password_of password)
    new_administrator=$(password_of administrator)
    if [ "$new_password" = "$password" ] && [ "$new_administrator" = "$administrator" ]; then return 0; fi
    commands=$(
        printf 'ACL SETUSER default #%s\n' "$(digest "$new_password")"
        printf 'ACL SETUSER administrator #%s\n' "$(digest "$new_administrator")"
        if [ "$MODE" = sentinel ]; then printf 'CONFIG SET primaryauth %s\n' "$(quote "$new_administrator")"; fi
    )
    if administer "$administrator" <<<"$commands"; then
        password=$new_password
        administrator=$new_administrator
    else
        echo 'cannot set the new passwords yet; retrying in 5 seconds' >&2
    fi
}

accompany() {
    while sleep 5; do
        add_changed_passwords
        # A Service that was recreated has another address. The next start announces it.
        if [ "$MODE" = sentinel ]; then
            now=$(own_address)
            if [ -n "$now" ] && [ "$now" != "$own" ]; then kill -TERM "$$"; fi
        fi
    done
}
accompany &
exec valkey-server "$settings"
