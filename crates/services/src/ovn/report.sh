# Reports the content of the volume of a member as one line of JSON, which the operator reads from the status of the
# pod.
set -eu
file=/var/lib/ovn/$DATABASE.db

# A full disk may have left an empty file, which prevents the start.
if [ -e "$file" ] && [ ! -s "$file" ]; then rm "$file"; fi
# The data of a member that has left prevents the start as well.
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
