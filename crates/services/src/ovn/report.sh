# Says what the volume of a member holds, as one line of JSON, for the operator to read from the pod's status.
set -eu
file=/var/lib/ovn/$DATABASE.db

# A full disk may have left a file without content, which no server starts with.
if [ -e "$file" ] && [ ! -s "$file" ]; then rm "$file"; fi
# Nor does one start with the data of a member that has left.
if [ -e "$file.leaving" ]; then
    if ovsdb-tool show-log "$file" | grep -q 'note: "left"'; then rm "$file"; fi
    rm "$file.leaving"
fi
if [ -e "$file" ]; then
    printf '{"state":"data","group":"%s","member":"%s"}\n' \
        "$(ovsdb-tool db-cid "$file")" "$(ovsdb-tool db-sid "$file")" >/dev/termination-log
else
    printf '{"state":"empty"}\n' >/dev/termination-log
fi
