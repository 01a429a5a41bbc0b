# Functions that the scripts of a member share.
data=/var/lib/rabbitmq
live=/etc/openstack/live
# Exists while the data must not be used: the member has not completed its first start, or it has left the cluster.
incomplete="$data/.incomplete"

has_data() {
    [ -d "$data/mnesia/$RABBITMQ_NODENAME" ] && [ ! -e "$incomplete" ]
}

# One line of JSON, which the operator reads from the status of the pod.
write_report() {
    printf '{"state":"%s"}\n' "$1" >/dev/termination-log
}

# A broker opens this port once it is part of a cluster.
serves() {
    timeout 2 bash -c "exec 3<>/dev/tcp/$1/5672" 2>/dev/null
}

# Hosts of the other members that serve. The list changes at run time, so a new member restarts no other.
serving_peers() {
    for host in $(sed -n 's/.*rabbit@//p' "$live/members.conf"); do
        case $host in "$POD_NAME".*) continue ;; esac
        if serves "$host"; then printf '%s\n' "$host"; fi
    done
}

# An instruction names its pod, so that it never applies to a later one.
order() {
    sed -n 's/^openstack.k8s.io\/rabbitmq-order="\(.*\)"$/\1/p' /etc/podinfo/annotations
}

instructed_to_leave() {
    case $(order) in "leave/$POD_UID/"*) return 0 ;; *) return 1 ;; esac
}
