# Starts ovn-northd with the IP addresses of the databases, because it does not resolve several names reliably.
set -eu

resolve() {
    port=$1
    shift
    result=
    for host in "$@"; do
        number=$(getent ahostsv4 "$host" | awk 'NR == 1 { print $1 }')
        [ -n "$number" ] || return 1
        result="$result${result:+,}tcp:$number:$port"
    done
    printf '%s' "$result"
}

# shellcheck disable=SC2086 # several hosts are several words
until northbound=$(resolve 6641 $NORTHBOUND) && southbound=$(resolve 6642 $SOUTHBOUND); do sleep 1; done
exec ovn-northd --ovnnb-db="$northbound" --ovnsb-db="$southbound" --unixctl=/run/ovn/ovn-northd.ctl \
    --pidfile=/run/ovn/ovn-northd.pid -vconsole:info -vsyslog:off -vfile:off
