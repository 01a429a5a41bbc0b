# Probes: `alive` while the server runs or receives a state transfer, `ready` while it serves queries.
set -eu
settings=/etc/openstack/mariadb.cnf
case $1 in
alive)
    if [ -e /var/lib/mysql/sst_in_progress ]; then exit 0; fi
    mariadb-admin --defaults-file="$settings" --silent ping
    # The others have excluded a member that could not apply a change. It returns with a full copy after a restart only.
    ! timeout 5 mariadb --defaults-file="$settings" -N -e "SHOW STATUS LIKE 'wsrep_local_state_comment'" 2>/dev/null |
        grep -q Inconsistent
    ;;
ready)
    # A donor is ready as well: mariadb-backup does not block it.
    [ -e /run/mysqld/prepared ] &&
        mariadb --defaults-file="$settings" -N -e "SHOW STATUS WHERE Variable_name = 'wsrep_ready' AND Value = 'ON'
            OR Variable_name = 'wsrep_local_state' AND Value IN ('2', '4')" | grep -c wsrep_ | grep -q 2
    ;;
esac
