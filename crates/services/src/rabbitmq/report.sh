# Reports whether the volume of a member has data.
set -eu
. /etc/openstack/member.sh
if has_data; then write_report data; else write_report empty; fi
