# Reports what the volume holds, and makes a database where it holds none.
set -eu
. /etc/openstack/report.sh

report >/dev/termination-log
if [ ! -d "$data/mysql" ] || [ -e "$data/.installing" ]; then
    # A pod that is stopped half-way leaves the mark, and the next one begins anew.
    touch "$data/.installing"
    find "$data" -mindepth 1 -maxdepth 1 ! -name .installing ! -name lost+found -exec rm -rf {} +
    # Without --user: it would change owners, which only root may.
    mariadb-install-db --no-defaults --datadir="$data" --skip-test-db \
        --auth-root-authentication-method=socket --auth-root-socket-user=mysql --skip-name-resolve
    rm "$data/.installing"
fi
