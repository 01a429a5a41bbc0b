# Reports the content of the volume, and installs a database if it is empty.
set -eu
. /etc/openstack/report.sh

found=$(find "$data" -mindepth 1 -maxdepth 1 ! -name lost+found -printf '%f ')
if [ -e "$data/.installing" ]; then
    # An interrupted installation leaves this file, and the next pod repeats it.
    install=yes
elif [ -d "$data/mysql" ]; then
    install=no
elif [ -z "$found" ] || [ -d "$data/.sst" ] || [ -e "$data/sst_in_progress" ]; then
    # A member that stops during a state transfer has deleted its data, which other members have.
    install=yes
else
    # The files may be the only copy.
    printf '%s contains no database but other files, which are not changed: %s\n' "$data" "$found" |
        tee /dev/termination-log >&2
    printf 'Move them elsewhere so that %s is empty, or import a complete data directory of MariaDB.\n' "$data" |
        tee -a /dev/termination-log >&2
    exit 1
fi

find_position
write_report
if [ "$install" = yes ]; then
    touch "$data/.installing"
    find "$data" -mindepth 1 -maxdepth 1 ! -name .installing ! -name lost+found -exec rm -rf {} +
    # Without --user, which would change owners and requires root.
    mariadb-install-db --no-defaults --datadir="$data" --skip-test-db \
        --auth-root-authentication-method=socket --auth-root-socket-user=mysql --skip-name-resolve
    rm "$data/.installing"
fi
