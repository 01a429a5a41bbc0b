# Probes: `alive` while the server runs or receives a state transfer, `ready` while it serves queries.
set -eu
settings=/etc/openstack/mariadb.cnf
case $1 in
alive)
    [ -e /var/lib/mysql/sst_in_progress ] || exec mariadb-admin --defaults-file="$settings" --silent ping
    ;;
ready)
    # A donor is ready as well: mariadb-backup does not block it.
    [ -e /run/mysqld/prepared ] &&
        mariadb --defaults-file="$settings" -N -e "SHOW STATUS WHERE Variable_name = 'wsrep_ready' AND Value = 'ON'
            OR Variable_name = 'wsrep_local_state' AND Value IN ('2', '4')" | grep -c wsrep_ | grep -q 2
    ;;
esac
