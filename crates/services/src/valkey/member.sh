# Functions that the scripts of a member share.
data=/var/lib/valkey
live=/etc/openstack/live
run=/run/valkey
# What the Sentinel of this member knew last, without passwords.
state=$data/sentinel.state

has_data() {
    [ -d "$data/appendonlydir" ]
}

# Members are known by the addresses of their Services, because pods change theirs.
address() {
    getent ahosts "$1" | awk '{ print $1; exit }'
}

own_address() {
    for host in $MEMBERS; do
        case $host in "$POD_NAME".*) address "$host" ;; esac
    done
}

other_members() {
    for host in $MEMBERS; do
        case $host in "$POD_NAME".*) ;; *) printf '%s\n' "$host" ;; esac
    done
}

# One line of JSON, which the operator reads from the status of the pod.
write_report() {
    printf '{"state":"%s"}\n' "$1" >/dev/termination-log
}

# An instruction names its pod, so that it never applies to a later one.
order() {
    sed -n 's/^openstack.k8s.io\/valkey-order="\(.*\)"$/\1/p' /etc/podinfo/annotations
}

# A text in quotes for a configuration file or a command, with any characters.
quote() {
    printf '"%s"' "$(printf '%s' "$1" | od -An -v -tx1 | tr -d ' \n' | sed 's/../\\x&/g')"
}

digest() {
    printf '%s' "$1" | sha256sum | cut -d ' ' -f 1
}

password_of() {
    cat "/etc/openstack/$1/password"
}

# Runs commands from standard input as the administrator with this password. Every answer must be OK. The text of another one
# may repeat a password, its first word does not.
administer() {
    if answers=$(REDISCLI_AUTH=$1 VALKEYCLI_AUTH=$1 valkey-cli --no-auth-warning --user administrator "${@:2}" 2>&1) &&
        [ -n "$answers" ] && ! grep -qvx OK <<<"$answers"; then
        return 0
    fi
    printf 'the answer is %s\n' "$(cut -d ' ' -f 1 <<<"$answers" | tr '\n' ' ')" >&2
    return 1
}
