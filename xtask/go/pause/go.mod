module openstack-operator/local-cluster/pause

go 1.26
