# Removes the records of engines that were removed by a scale-down. An engine removes its own record when it stops, unless
# it was killed.
set -euo pipefail

# Status of each record of a removed pod: the host name is the first column, the status the sixth.
left() {
    heat-manage service list |
        awk -v pods="$REMOVED_PODS" 'BEGIN { split(pods, names); for (i in names) removed[names[i]] } $1 in removed { print $6 }'
}

# A record counts as down two minutes after its last update. Only then it can be removed.
states=$(left)
while grep -qx up <<<"$states"; do
    sleep 10
    states=$(left)
done
if [ -n "$states" ]; then
    heat-manage service clean
fi
