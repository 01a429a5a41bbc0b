# Reports what the volume holds, and makes a database where it holds none.
set -eu
. /etc/openstack/report.sh

found=$(find "$data" -mindepth 1 -maxdepth 1 ! -name lost+found -printf '%f ')
if [ -e "$data/.installing" ]; then
    # A pod that is stopped half-way leaves the mark, and the next one begins anew.
    anew=yes
elif [ -d "$data/mysql" ]; then
    anew=no
elif [ -z "$found" ] || [ -d "$data/.sst" ] || [ -e "$data/sst_in_progress" ]; then
    # A member that is stopped while it receives all data has emptied its volume itself, and others have what it had.
    anew=yes
else
    # What is on it may be all that somebody has of it.
    printf '%s holds no database, but other files, which stay as they are: %s\n' "$data" "$found" |
        tee /dev/termination-log >&2
    printf 'Move them elsewhere so that %s is empty, or bring in a whole data directory of MariaDB.\n' "$data" |
        tee -a /dev/termination-log >&2
    exit 1
fi

report >/dev/termination-log
if [ "$anew" = yes ]; then
    touch "$data/.installing"
    find "$data" -mindepth 1 -maxdepth 1 ! -name .installing ! -name lost+found -exec rm -rf {} +
    # Without --user: it would change owners, which only root may.
    mariadb-install-db --no-defaults --datadir="$data" --skip-test-db \
        --auth-root-authentication-method=socket --auth-root-socket-user=mysql --skip-name-resolve
    rm "$data/.installing"
fi
