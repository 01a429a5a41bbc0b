# Removes the records of services whose pods or backends were removed.
set -euo pipefail

# Records that are left, with program, host and state. The host of a volume service ends with @ and its backend.
left() {
    cinder-manage service list |
        awk -v pods="$REMOVED_PODS" -v components="$REMOVED_COMPONENTS" '
            BEGIN {
                split(pods, names)
                for (i in names) removed[names[i]]
                split(components, parts)
                for (i in parts) if (sub(/^volume-/, "", parts[i])) backends[parts[i]]
            }
            $1 ~ /^cinder-/ {
                split($2, host, "@")
                if (host[1] in removed || host[2] in backends) print $1, $2, $5
            }'
}

# A record counts as down a minute after its last update. One that stays up belongs to a service outside of this object.
deadline=$((SECONDS + ${LIMIT:-300}))
records=$(left)
while grep -q ':-)' <<<"$records" && [ "$SECONDS" -lt "$deadline" ]; do
    sleep 5
    records=$(left)
done
while read -r program host state; do
    case $state in
    XXX) cinder-manage service remove "$program" "$host" ;;
    *) echo "$program on $host is up and stays" ;;
    esac
done < <(grep . <<<"$records")

# Clusters of removed backends without services.
records=$(left)
clusters=$(cinder-manage cluster list)
for component in $REMOVED_COMPONENTS; do
    backend=${component#volume-}
    if [ "$backend" = "$component" ] || grep -q "@$backend " <<<"$records"; then
        continue
    fi
    while read -r program cluster; do
        cinder-manage cluster remove "$program" "$cluster"
    done < <(awk -v backend="$backend" '{ split($1, name, "@") } name[2] == backend { print $2, $1 }' <<<"$clusters")
done
