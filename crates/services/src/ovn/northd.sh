# Starts northd with the numbers of the databases' addresses: it would look up names by itself, but tires of several.
set -eu

numbers() {
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
until northbound=$(numbers 6641 $NORTHBOUND) && southbound=$(numbers 6642 $SOUTHBOUND); do sleep 1; done
exec ovn-northd --ovnnb-db="$northbound" --ovnsb-db="$southbound" --unixctl=/run/ovn/ovn-northd.ctl \
    --pidfile=/run/ovn/ovn-northd.pid -vconsole:info -vsyslog:off -vfile:off
