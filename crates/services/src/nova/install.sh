# Creates or updates the databases and cell mappings of Nova. It is idempotent.
set -eu

nova-manage api_db sync

# Cell mappings are template URLs that each process fills in from its own settings, so a changed password needs no
# update.
nova-manage cell_v2 map_cell0 --database_connection "$CELL0_PATTERN"

cells=$(nova-manage cell_v2 list_cells)

identifier() {
    awk -F'|' -v name="$1" '{ gsub(/ /, "", $2); gsub(/ /, "", $3) } $2 == name { print $3 }' <<<"$cells"
}

known=$(identifier cell1)
if [ -z "$known" ]; then
    nova-manage cell_v2 create_cell --name cell1 --database_connection "$DATABASE_PATTERN" \
        --transport-url "$TRANSPORT_PATTERN"
else
    nova-manage cell_v2 update_cell --cell_uuid "$known" --name cell1 --database_connection "$DATABASE_PATTERN" \
        --transport-url "$TRANSPORT_PATTERN"
fi

nova-manage db sync

# Other cells have their own servers, which a template URL cannot express.
for cell in $MORE_CELLS; do
    variable=${cell//-/_}
    export OS_DATABASE__CONNECTION OS_DEFAULT__TRANSPORT_URL
    eval "OS_DATABASE__CONNECTION=\$CELL_MAPPING_$variable OS_DEFAULT__TRANSPORT_URL=\$CELL_TRANSPORT_$variable"
    known=$(identifier "$cell")
    if [ -z "$known" ]; then
        nova-manage cell_v2 create_cell --name "$cell"
    else
        nova-manage cell_v2 update_cell --cell_uuid "$known" --name "$cell"
    fi
    eval "OS_DATABASE__CONNECTION=\$CELL_DATABASE_$variable"
    nova-manage db sync --local_cell
done
