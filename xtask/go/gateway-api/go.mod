module openstack-operator/local-cluster/gateway-api

go 1.26

require sigs.k8s.io/gateway-api v1.4.1
