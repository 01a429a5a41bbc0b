# Claims the node for this object. Another object may take it over only if the operator has assigned the node to it.
owner_file=/var/lib/nova/openstack-owner
owner=$(cat "$owner_file" 2>/dev/null || true)
if [ "$owner" != "$OWNER" ]; then
    if [ -n "$owner" ] && ! grep -qsxF -- "$NODE_NAME" /etc/openstack/live/claimed-nodes; then
        echo "libvirt on node $NODE_NAME belongs to $owner and not to $OWNER, which changed nothing there:" \
            "select other nodes for one of them" | tee /dev/termination-log >&2
        exit 1
    fi
    printf '%s\n' "$OWNER" >"$owner_file"
fi
