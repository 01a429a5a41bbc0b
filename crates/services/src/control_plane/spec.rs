//! Settings of a cloud.

use std::collections::BTreeMap;

use kube::CustomResource;
use openstack_operator_model::common::{
    ContainerSettings, ExtraMount, GatewayReference, NameReference, Scheduling, Scheme, is_default,
};
use openstack_operator_model::image::{Images, Release};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::{AnyPart, Presence};
use crate::inputs::ALL_COMPONENTS;
use crate::neutron::Mechanism;

/// An OpenStack cloud.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "OpenStackControlPlane",
    plural = "openstackcontrolplanes",
    namespaced,
    status = "Status",
    shortname = "oscp",
    category = "openstack",
    validation = Rule::new("has(self.spec.storageClassName) == has(oldSelf.spec.storageClassName) && (!has(self.spec.storageClassName) || self.spec.storageClassName == oldSelf.spec.storageClassName)")
        .message("spec.storageClassName cannot be changed: the volumes stay where they are"),
    validation = Rule::new("!has(self.spec.storageBackend)")
        .message("spec.storageBackend is not supported yet: leave it out, and describe the storage of images in spec.glance.storage"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = r#".status.conditions[?(@.type=="Ready")].lastTransitionTime"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OpenStackControlPlaneSpec {
    /// Name of the region.
    #[serde(default = "region")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: String,
    /// OpenStack release of all services.
    #[serde(default)]
    pub release: Release,
    /// Where images of all services come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Images,
    /// Whether the cloud survives the loss of a node: three members of each quorum, two pods of everything else.
    /// `replicas` in a block wins over it.
    #[serde(default)]
    pub high_availability: bool,
    /// Storage class of all volumes; the cluster's default where none is given. It cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class_name: Option<String>,
    /// Sets of nodes for pods, which blocks name in `topology`. Those named `control`, `network` and `compute` are
    /// the defaults of services, of the virtual networks on nodes and of compute nodes.
    #[serde(default)]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub topologies: Vec<Topology>,
    /// Not supported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_backend: Option<StorageBackend>,
    /// What makes virtual networks: OVN, or Open vSwitch with Neutron's own agents. It cannot be changed later.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "networkBackend cannot be changed: the ports of VMs would have to be created anew",
    }]))]
    pub network_backend: Mechanism,
    /// Encryption between services.
    #[serde(default)]
    pub tls: Tls,
    /// Gateway through which the APIs are reached from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayReference>,
    /// Domain of the APIs: each is reached as `<service>.<publicDomain>`.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = 200), regex(pattern = schema::NAME))]
    pub public_domain: String,
    /// How clients speak to the Gateway.
    #[serde(default)]
    pub public_scheme: Scheme,
    /// Existing database server, in place of `mariadb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<ExistingDatabase>,
    /// Existing RabbitMQ servers, in place of `rabbitmq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<ExistingMessaging>,
    /// Existing Memcached servers, in place of `memcached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<ExistingCache>,
    /// Existing Keystone, in place of `keystone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<ExistingIdentity>,
    /// Resources and images of services and of their components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["service", "component"],
    ))]
    pub components: Vec<ComponentSettings>,
    /// Volumes for pods of the cloud, e.g. with CA bundles or vendor drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub extra_mounts: Vec<CloudMount>,
    /// Labels of all pods, besides the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of all pods, besides the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Blocks of the parts, by field. Their schemas are added to the definition.
    #[serde(flatten)]
    #[schemars(skip)]
    pub blocks: BTreeMap<String, Value>,
}

fn region() -> String {
    "RegionOne".to_owned()
}

fn domain() -> String {
    "openstack.local".to_owned()
}

impl OpenStackControlPlaneSpec {
    /// What the spec says of a part.
    pub(crate) fn block(&self, field: &str) -> &Value {
        static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| serde_json::json!({}));
        self.blocks.get(field).unwrap_or(&EMPTY)
    }

    /// Whether the cloud has a part.
    pub(crate) fn has(&self, part: &dyn AnyPart) -> bool {
        let enabled = self.block(part.field()).get("enabled").and_then(Value::as_bool);
        enabled.unwrap_or(part.presence() == Presence::ByDefault) && !part.is_replaced(self)
    }
}

/// A named set of nodes, and how pods are spread over them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// Name by which blocks refer to it.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub name: String,
    #[serde(flatten)]
    pub scheduling: Scheduling,
}

/// What block storage stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageBackend {
    Ceph,
    Lvm,
}

/// Encryption between services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.enabled) || !self.enabled",
        "message": "tls.enabled is not supported yet: leave it out, and end TLS at the Gateway",
    },
    { "rule": "!has(self.issuerRef)", "message": "tls.issuerRef is not supported yet: leave it out" },
]))]
pub struct Tls {
    /// Not supported yet.
    #[serde(default)]
    pub enabled: bool,
    /// Not supported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerReference>,
}

/// An issuer of certificates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IssuerReference {
    /// Name of the issuer.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Kind of the issuer.
    #[serde(default)]
    pub kind: IssuerKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuerKind {
    #[default]
    Issuer,
    ClusterIssuer,
}

/// A database server that exists already. The operator creates databases and users on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingDatabase {
    /// Name or address of the server.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub host: String,
    /// Port of the server; 3306 where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Secret with `username` and `password` of an administrator.
    pub admin_secret_ref: NameReference,
}

/// RabbitMQ servers that exist already. All services share a virtual host and a user on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingMessaging {
    /// The servers, as `host:port`.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub hosts: Vec<String>,
    /// Secret with `username` and `password`.
    pub secret_ref: NameReference,
    /// Virtual host; `/` where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub virtual_host: Option<String>,
}

/// Memcached servers that exist already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExistingCache {
    /// The servers, as `host:port`.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub servers: Vec<String>,
}

/// A Keystone that exists already. The operator registers services and creates their users on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingIdentity {
    /// Its address, with the version, e.g. `https://keystone.example.com:5000/v3`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+/v3$"))]
    pub auth_url: String,
    /// Secret with `username` and `password` of an administrator.
    pub admin_secret_ref: NameReference,
}

/// Resources and image of one component of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentSettings {
    /// Name of the service's block.
    #[schemars(length(min = 1, max = 32))]
    pub service: String,
    /// Field of the component in the service's own kind, e.g. `scheduler` or `ovs.agents`; `all` for every component that
    /// the list does not name.
    #[serde(default = "all_components")]
    #[schemars(length(min = 1, max = 32))]
    pub component: String,
    #[serde(flatten)]
    pub settings: ContainerSettings,
}

fn all_components() -> String {
    ALL_COMPONENTS.to_owned()
}

/// A volume for pods of some services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CloudMount {
    /// Services whose pods have it, by the names of their blocks; all where none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40), inner(length(min = 1, max = 63)))]
    pub services: Vec<String>,
    #[serde(flatten)]
    pub mount: ExtraMount,
}
