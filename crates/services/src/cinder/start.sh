# Starts cinder-volume or cinder-backup, which is in the arguments.
set -euo pipefail

state=/var/lib/cinder
mkdir -p "$state/bin" "$state/conversion" "$state/tmp"
# The programs run some commands with sudo and a filter. The container runs them as its own user, which cannot become
# another one: with Ceph no command needs root, and with LVM the container is root.
cat >"$state/bin/sudo" <<'END'
#!/bin/sh
if [ "$1" = cinder-rootwrap ]; then shift 2; fi
exec "$@"
END
chmod 755 "$state/bin/sudo"
export PATH="$state/bin:$PATH"

# The first pod of a cluster has the host of the time before the cluster, so that the volumes of that time join it.
if [ -n "${FIRST_HOST:-}" ] && [ "${HOSTNAME##*-}" = 0 ]; then
    export OS_DEFAULT__HOST="$FIRST_HOST"
fi

# The copies of images belong to the service user. Without Keystone no user requests a volume, so that nothing is lost while
# the container restarts until Keystone answers.
if [ -n "${IMAGE_VOLUME_CACHE:-}" ]; then
    # The interpreter of the program finds its modules.
    interpreter=$(sed -n '1s/^#! *//p' "$(command -v "$1")")
    # shellcheck disable=SC2086 # an interpreter may have an argument
    identifiers=$($interpreter /etc/openstack/tenant.py)
    export OS_DEFAULT__CINDER_INTERNAL_TENANT_PROJECT_ID="${identifiers% *}"
    export OS_DEFAULT__CINDER_INTERNAL_TENANT_USER_ID="${identifiers#* }"
fi

exec "$@"
