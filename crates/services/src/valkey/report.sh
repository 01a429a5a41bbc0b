# Reports whether the volume has data, before the server starts.
set -eu
. /etc/openstack/member.sh
if [ "$MODE" = single ]; then
    # Members that are added later are other ones.
    rm -f "$state"
elif [ "${POD_NAME##*-}" != 0 ]; then
    # The volume of a member that was removed has outdated data.
    removals=$(cat "$live/removals")
    if [ -e "$data/removals" ] && [ "$(cat "$data/removals")" != "$removals" ]; then
        rm -rf "$data/appendonlydir" "$data"/*.rdb "$state"
    fi
    printf '%s' "$removals" >"$data/removals"
fi
if has_data; then write_report data; else write_report empty; fi
