# Runs ovsdb-server of Open vSwitch.
set -eu
file=/var/lib/openvswitch/conf.db
schema=/usr/share/openvswitch/vswitch.ovsschema

if [ ! -s "$file" ]; then
    rm -f "$file"
    ovsdb-tool create "$file" "$schema"
fi
if [ "$(ovsdb-tool needs-conversion "$file" "$schema")" = yes ]; then ovsdb-tool convert "$file" "$schema"; fi
# Compact the history, which would slow down the start.
ovsdb-tool compact "$file"
# Programs that are not root cannot open the socket, so they use the loopback address.
exec ovsdb-server "$file" --remote=punix:/run/openvswitch/db.sock --remote=ptcp:6640:127.0.0.1 \
    --unixctl=/run/openvswitch/ovsdb-server.ctl --pidfile=/run/openvswitch/ovsdb-server.pid \
    -vconsole:info -vsyslog:off -vfile:off
