# Runs the Sentinel of one member. What it knows survives its pod, so that after a restart of all members the last primary is
# the primary again.
set -eu
. /etc/openstack/member.sh

# The server of this member decides who the primary is when the pod starts.
until [ -s "$run/primary" ]; do sleep 1; done
own=$(own_address)
administrator=$(password_of administrator)
settings=$run/sentinel.conf
umask 077
monitor="sentinel monitor $PRIMARY $(cat "$run/primary") 6379 2"
known=
if [ -s "$state" ]; then
    monitor=$(sed -n '/^sentinel monitor /p' "$state")
    known=$(sed '/^sentinel monitor /d' "$state")
fi
identity=$(printf '%s/%s' "$POD_NAMESPACE" "$POD_NAME" | sha1sum | cut -c 1-40)
cat >"$settings" <<END
port 26379
protected-mode no
dir $run
sentinel myid $identity
sentinel announce-ip $own
sentinel resolve-hostnames no
sentinel deny-scripts-reconfig yes
user default on nopass &* -@all +ping +hello +auth +command +role +client|setname +client|setinfo +client|id +client|getname +subscribe +psubscribe +unsubscribe +punsubscribe +sentinel|get-master-addr-by-name +sentinel|master +sentinel|masters +sentinel|replicas +sentinel|slaves +sentinel|sentinels +sentinel|ckquorum +sentinel|myid
user administrator on #$(digest "$administrator") ~* &* +@all
sentinel sentinel-user administrator
sentinel sentinel-pass $(quote "$administrator")
$monitor
sentinel auth-user $PRIMARY administrator
sentinel auth-pass $PRIMARY $(quote "$administrator")
sentinel down-after-milliseconds $PRIMARY 5000
sentinel failover-timeout $PRIMARY 30000
sentinel parallel-syncs $PRIMARY 1
$known
END

# Sentinel writes what it learns into its settings, beside passwords, which must not reach the volume.
keep_state() {
    kept='monitor|config-epoch|leader-epoch|current-epoch|known-replica|known-sentinel'
    new=$(sed -nE "/^sentinel ($kept) /p" "$settings")
    if [ -z "$new" ] || [ "$new" = "$known" ]; then return 0; fi
    printf '%s\n' "$new" >"$state.new"
    sync "$state.new"
    mv "$state.new" "$state"
    known=$new
}

add_changed_password() {
    new_administrator=$(password_of administrator)
    if [ "$new_administrator" = "$administrator" ]; then return 0; fi
    commands=$(
        printf 'ACL SETUSER administrator #%s\n' "$(digest "$new_administrator")"
        printf 'SENTINEL SET %s auth-pass %s\n' "$PRIMARY" "$(quote "$new_administrator")"
        printf 'SENTINEL CONFIG SET sentinel-pass %s\n' "$(quote "$new_administrator")"
    )
    if administer "$administrator" -p 26379 <<<"$commands"; then
        administrator=$new_administrator
    else
        echo 'cannot set the new password yet; retrying in a second' >&2
    fi
}

accompany() {
    while sleep 1; do
        keep_state
        add_changed_password
        now=$(own_address)
        if [ -n "$now" ] && [ "$now" != "$own" ]; then kill -TERM "$$"; fi
    done
}
accompany &
exec valkey-sentinel "$settings"
