# Starts one member of the Galera cluster: it joins members that serve, or bootstraps the cluster if instructed.
set -eu
. /etc/openstack/report.sh
# The kernel discards signals that the first process of a container does not handle.
trap 'exit 143' TERM

live=/etc/openstack/live
# Survivors of a crash need this time to notice that they lost the quorum.
suspect_seconds=6

# The report of the container before this one is current, because no server ran since. Its ticket is valid for this
# start only.
ticket=$(cat "$ticket_file" 2>/dev/null || :)
rm -f "$ticket_file"
if [ -n "$ticket" ]; then
    read -r sequence uuid <"$position_file"
else
    find_position
fi

hosts=$(cat "$live/members")

query() {
    MYSQL_PWD=$ROOT_PASSWORD timeout 3 mariadb --no-defaults --skip-ssl --connect-timeout=2 --host="$1" --port=3307 \
        --user=root -N -B -e "$2" 2>&1
}

serves() {
    case $(query "$1" "SHOW STATUS LIKE 'wsrep_cluster_status'") in
    *non-Primary*) return 1 ;;
    *Primary*) return 0 ;;
    # The administrator's password changes while members restart one by one.
    *'ERROR 1045'*) return 0 ;;
    *) return 1 ;;
    esac
}

# After growth the list of a single member may be outdated for a minute; the addresses of the Service are not.
added_hosts() {
    if [ "$(cat "$live/mode")" = single ]; then
        timeout 3 getent ahostsv4 "$MEMBERS" | cut -d ' ' -f 1 | sort -u
    fi
}

a_member_serves() {
    for host in $hosts $(added_hosts); do
        case $host in "$POD_NAME".* | "$POD_IP") continue ;; esac
        if serves "$host"; then return 0; fi
    done
    return 1
}

# Sets the password of the administrator at each start through the socket, which needs no password, so that a
# regenerated password reaches the server.
prepare_administrator() {
    until mariadb --defaults-file="$settings" -N -e "SHOW STATUS LIKE 'wsrep_ready'" 2>/dev/null | grep -q ON; do
        sleep 0.5
    done
    password=${ROOT_PASSWORD//\\/\\\\}
    password=${password//\'/\'\'}
    mariadb --defaults-file="$settings" <<SQL
CREATE USER IF NOT EXISTS 'root'@'%';
ALTER USER 'root'@'%' IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
    touch /run/mysqld/prepared
}

run() {
    # A view saved by a crash makes a joiner wait for members that may be lost.
    rm -f "$data/gvwstate.dat" /run/mysqld/prepared
    # With its position, the cluster keeps its UUID, and a member receives only the transactions that it misses.
    if [ -n "$uuid" ]; then set -- "$@" --wsrep-start-position="$uuid:$sequence"; fi
    prepare_administrator &
    unset ROOT_PASSWORD
    addresses=$(printf '%s' "$hosts" | tr -s ' \n' ',')
    mariadbd --defaults-file="$settings" --wsrep-node-address="$POD_IP" --wsrep-node-name="$POD_NAME" \
        --wsrep-cluster-address="gcomm://$addresses" "$@" &
    server=$!
    stops=no
    trap 'stops=yes; kill "$server"' TERM
    # A signal ends a wait before the server ends.
    while [ -e "/proc/$server" ]; do
        code=0
        wait "$server" || code=$?
    done
    trap 'exit 143' TERM
    if [ "$stops" = no ]; then report_crash; fi
    exit "$code"
}

# Reports with the end of the container, so that a crash costs one restart and not two: the kubelet delays repeated ones.
report_crash() {
    sleep "$suspect_seconds" &
    suspicion=$!
    find_position
    wait "$suspicion"
    write_report
}

# A donor is slow, so the member that receives all writes sends its data only if there is no other.
join() {
    writer=$(query "$SERVICE" 'SELECT @@wsrep_node_name' || :)
    donors=
    for host in $hosts; do
        case ${host%%.*} in "$POD_NAME" | "$writer") ;; *) donors=$donors${host%%.*}, ;; esac
    done
    run --wsrep-sst-donor="$donors"
}

bootstrap() {
    if [ -e "$data/grastate.dat" ]; then
        sed -i 's/^safe_to_bootstrap:.*/safe_to_bootstrap: 1/' "$data/grastate.dat"
    fi
    run --wsrep-new-cluster
}

# A single member needs no instruction, except if its data is gone.
may_start_alone() {
    [ "$(cat "$live/mode")" = single ] && { [ -n "$uuid" ] || [ "$(cat "$live/formed")" = no ]; }
}

instruction() {
    sed -n 's/^openstack.k8s.io\/galera-bootstrap="\(.*\)"$/\1/p' /etc/podinfo/annotations
}

waited=0
while :; do
    if [ -n "$ticket" ] || [ "$waited" -ge "$suspect_seconds" ] || may_start_alone; then
        if a_member_serves; then join; fi
        if may_start_alone; then bootstrap; fi
        if [ -z "$ticket" ]; then
            write_report
            exit 3
        fi
        if [ "$(instruction)" = "$ticket" ]; then bootstrap; fi
    fi
    waited=$((waited + 1))
    sleep 1
done
