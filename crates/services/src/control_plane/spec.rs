//! Settings of a cloud.

use std::collections::BTreeMap;

use kube::CustomResource;
use openstack_operator_model::common::{
    ContainerSettings, ExtraMount, GatewayReference, NameReference, Scheduling, Scheme, is_default,
};
use openstack_operator_model::image::Images;
use openstack_operator_model::release::Release;
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::{AnyPart, Presence};
use crate::inputs::ALL_COMPONENTS;
use crate::neutron::Mechanism;

/// OpenStack cloud.
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
        .message("spec.storageClassName cannot be changed: existing volumes keep their storage class"),
    validation = Rule::new("!has(self.spec.storageBackend)")
        .message("spec.storageBackend is not supported yet: remove it and configure image storage in spec.glance.storage"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = r#".status.conditions[?(@.type=="Ready")].lastTransitionTime"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct OpenStackControlPlaneSpec {
    /// OpenStack region of all services.
    #[serde(default = "region")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: String,
    /// OpenStack release of all services.
    #[serde(default)]
    pub release: Release,
    /// Source of the container images of all services.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Images,
    /// Whether the cloud survives the loss of a node. Clusters with a quorum get 3 members and other services 2 pods;
    /// `replicas` in a block overrides this.
    #[serde(default)]
    pub high_availability: bool,
    /// Storage class of all volumes. Defaults to the default class of the Kubernetes cluster. It cannot be changed
    /// later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class_name: Option<String>,
    /// Named scheduling constraints, which blocks refer to in `topology`. `control`, `network` and `compute` are the
    /// defaults of services, of networking agents and of compute nodes.
    #[serde(default)]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub topologies: Vec<Topology>,
    /// Not supported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_backend: Option<StorageBackend>,
    /// Backend of virtual networks: OVN, or Open vSwitch with Neutron's agents. It cannot be changed later.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "networkBackend cannot be changed: the ports of instances would have to be recreated",
    }]))]
    pub network_backend: Mechanism,
    /// TLS between services.
    #[serde(default)]
    pub tls: Tls,
    /// Gateway that exposes the APIs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayReference>,
    /// Domain of the public host names: `<service>.<publicDomain>`.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = 200), regex(pattern = schema::NAME))]
    pub public_domain: String,
    /// Scheme of public URLs.
    #[serde(default)]
    pub public_scheme: Scheme,
    /// Existing database server instead of `mariadb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<ExistingDatabase>,
    /// Existing RabbitMQ servers instead of `rabbitmq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<ExistingMessaging>,
    /// Existing Memcached servers instead of `memcached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<ExistingCache>,
    /// Existing Keystone instead of `keystone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<ExistingIdentity>,
    /// Resources and images of services and their components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["service", "component"],
    ))]
    pub components: Vec<ComponentSettings>,
    /// Extra volumes of all pods, e.g. CA bundles or vendor drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub extra_mounts: Vec<CloudMount>,
    /// Extra labels of all pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,
    /// Extra annotations of all pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Blocks of the parts by field. `add_parts` adds their schemas.
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
    /// The block of a part.
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

/// Named scheduling constraints of pods.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// Name that blocks refer to.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub name: String,
    #[serde(flatten)]
    pub scheduling: Scheduling,
}

/// Backend of block storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageBackend {
    Ceph,
    Lvm,
}

/// TLS between services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.enabled) || !self.enabled",
        "message": "tls.enabled is not supported yet: remove it and terminate TLS at the Gateway",
    },
    { "rule": "!has(self.issuerRef)", "message": "tls.issuerRef is not supported yet: remove it" },
]))]
pub struct Tls {
    /// Not supported yet.
    #[serde(default)]
    pub enabled: bool,
    /// Not supported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerReference>,
}

/// Issuer of certificates.
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

/// Existing database server. The operator creates databases and users on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingDatabase {
    /// Host name or address of the server.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub host: String,
    /// Port of the server. Defaults to 3306.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Secret with `username` and `password` of an administrator.
    pub admin_secret_ref: NameReference,
}

/// Existing RabbitMQ servers. All services share one virtual host and one user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingMessaging {
    /// Servers as `host:port`.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub hosts: Vec<String>,
    /// Secret with `username` and `password`.
    pub secret_ref: NameReference,
    /// Virtual host. Defaults to `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub virtual_host: Option<String>,
}

/// Existing Memcached servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExistingCache {
    /// Servers as `host:port`.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub servers: Vec<String>,
}

/// Existing Keystone. The operator registers services and their users in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingIdentity {
    /// URL with the version, e.g. `https://keystone.example.com:5000/v3`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+/v3$"))]
    pub auth_url: String,
    /// Secret with `username` and `password` of an administrator.
    pub admin_secret_ref: NameReference,
}

/// Resources and image of one component of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentSettings {
    /// Field of the service in this spec, e.g. `nova`.
    #[schemars(length(min = 1, max = 32))]
    pub service: String,
    /// Field of the component in the kind of the service, e.g. `scheduler` or `ovs.agents`. `all` means all
    /// components that the list does not name.
    #[serde(default = "all_components")]
    #[schemars(length(min = 1, max = 32))]
    pub component: String,
    #[serde(flatten)]
    pub settings: ContainerSettings,
}

fn all_components() -> String {
    ALL_COMPONENTS.to_owned()
}

/// Volume of pods of some services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CloudMount {
    /// Services whose pods mount the volume, by their field in this spec. Defaults to all services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40), inner(length(min = 1, max = 63)))]
    pub services: Vec<String>,
    #[serde(flatten)]
    pub mount: ExtraMount,
}
