#!/bin/bash
# Limits the size of the image cache: glance-cache-pruner runs once and exits.
set -eu
mkdir -p /var/lib/glance/image-cache
while true; do
    glance-cache-pruner --config-file /etc/glance/glance-api.conf
    sleep 600 &
    wait $!
done
