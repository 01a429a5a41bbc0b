# Says what the volume of a member holds, as one line of JSON, for the operator to read from the pod's status.
set -eu
file=/var/lib/ovn/$DATABASE.db

# A full disk may have left a file without content, which no server starts with.
if [ -e "$file" ] && [ ! -s "$file" ]; then rm "$file"; fi
if [ -e "$file" ]; then
    printf '{"state":"data","group":"%s","member":"%s"}\n' \
        "$(ovsdb-tool db-cid "$file")" "$(ovsdb-tool db-sid "$file")" >/dev/termination-log
else
    printf '{"state":"empty"}\n' >/dev/termination-log
fi
