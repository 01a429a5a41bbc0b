# Ready while this server is the primary, or follows it.
set -eu
state=$(valkey-cli --no-auth-warning --user probe --pass probe INFO replication)
case $state in *role:master* | *master_link_status:up*) ;; *) exit 1 ;; esac
