#!/bin/bash
# Keeps the cache of images within its size: glance-cache-pruner looks once and ends.
set -eu
mkdir -p /var/lib/glance/image-cache
while true; do
    glance-cache-pruner --config-file /etc/glance/glance-api.conf
    sleep 600 &
    wait $!
done
