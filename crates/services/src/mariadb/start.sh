# Starts one member of the Galera cluster: it joins running members, or bootstraps the cluster if instructed.
set -eu
. /etc/openstack/report.sh

live=/etc/openstack/live
ran=/run/mysqld/ran
ordered="$data/.bootstrapped"

# From now on other members can connect to this one.
self=$POD_NAME.
members=$(cat "$live/members")

serves() {
    timeout 1 bash -c "exec 3<>/dev/tcp/$1/4567" 2>/dev/null
}

a_peer_serves() {
    for member in $members; do
        case $member in "$self"*) continue ;; esac
        if serves "$member"; then return 0; fi
    done
    return 1
}

# An instruction names this pod and a number and is executed once, so a container restart never bootstraps a second
# cluster.
instructed_to_bootstrap() {
    order=$(sed -n 's/^openstack.k8s.io\/galera-bootstrap="\(.*\)"$/\1/p' /etc/podinfo/annotations)
    [ -n "$order" ] && [ "${order%%/*}" = "$POD_UID" ] && [ "$(cat "$ordered" 2>/dev/null)" != "$order" ]
}

# Sets the password of the administrator at each start through the socket, which needs no password, so that a
# regenerated password reaches the server.
prepare_administrator() {
    until mariadb --defaults-file="$settings" -N -e "SHOW STATUS LIKE 'wsrep_ready'" 2>/dev/null | grep -q ON; do
        sleep 0.5
    done
    mariadb --defaults-file="$settings" <<SQL
CREATE USER IF NOT EXISTS 'root'@'%';
ALTER USER 'root'@'%' IDENTIFIED BY '$ROOT_PASSWORD';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
    touch /run/mysqld/prepared
}

run() {
    # A view saved by a crash makes a joiner wait for members that may be lost.
    rm -f "$data/gvwstate.dat" /run/mysqld/prepared
    touch "$ran"
    prepare_administrator &
    unset ROOT_PASSWORD
    addresses=$(printf '%s' "$members" | tr -s ' \n' ',')
    exec mariadbd --defaults-file="$settings" --wsrep-node-address="$POD_IP" --wsrep-node-name="$POD_NAME" \
        --wsrep-cluster-address="gcomm://$addresses" "$@"
}

bootstrap() {
    if [ -e "$data/grastate.dat" ]; then
        sed -i 's/^safe_to_bootstrap:.*/safe_to_bootstrap: 1/' "$data/grastate.dat"
    fi
    run --wsrep-new-cluster
}

waited=0
while :; do
    if a_peer_serves; then run; fi
    if [ "$(cat "$live/mode")" = single ]; then bootstrap; fi
    if instructed_to_bootstrap; then
        printf '%s' "$order" >"$ordered"
        sync "$ordered"
        bootstrap
    fi
    # After a crash the report of the init container is outdated: write a new one and exit, once.
    if [ -e "$ran" ] && [ "$waited" -ge 10 ]; then
        rm "$ran"
        report >/dev/termination-log
        exit 3
    fi
    waited=$((waited + 1))
    sleep 1
done
