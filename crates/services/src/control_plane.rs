//! The control plane: one object that stands for a whole cloud, and consists of one object for each service.

use kube::CustomResource;
use openstack_operator_model::common::{
    Exposure, GatewayReference, NameReference, Origin, Scheme, is_default,
};
use openstack_operator_model::image::{Images, Release};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{Child, Plan, Skipped};
use openstack_operator_model::schema;
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::{Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keystone::{self, KeystoneSpec, KeystoneTemplate};
use crate::mariadb::{self, MariaDBSpec, MariaDBTemplate};
use crate::memcached::{self, MemcachedSpec, MemcachedTemplate};
use crate::rabbitmq::{self, RabbitMQSpec, RabbitMQTemplate};

pub const KIND: Kind = Kind::own("OpenStackControlPlane", "openstackcontrolplanes");

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
    /// What block storage of the cloud's services stands on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_backend: Option<StorageBackend>,
    /// What networks of the cloud stand on.
    #[serde(default)]
    pub network_backend: NetworkBackend,
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
    #[serde(default)]
    pub mariadb: Toggled<MariaDBTemplate>,
    #[serde(default)]
    pub rabbitmq: Toggled<RabbitMQTemplate>,
    #[serde(default)]
    pub memcached: Toggled<MemcachedTemplate>,
    #[serde(default)]
    pub keystone: Toggled<KeystoneTemplate>,
}

fn region() -> String {
    "RegionOne".to_owned()
}

fn domain() -> String {
    "openstack.local".to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageBackend {
    Ceph,
    Lvm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkBackend {
    #[default]
    Ovn,
    Ovs,
}

/// Encryption between services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.enabled) || !self.enabled",
    "message": "tls.enabled is not served yet: leave it out, and end TLS at the Gateway",
}]))]
pub struct Tls {
    #[serde(default)]
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerReference>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IssuerReference {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    #[serde(default)]
    pub kind: IssuerKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuerKind {
    #[default]
    Issuer,
    ClusterIssuer,
}

/// A service of the cloud, which can be left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Toggled<T> {
    /// Whether the cloud has this service.
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(flatten)]
    pub template: T,
}

fn yes() -> bool {
    true
}

impl<T: serde::de::DeserializeOwned> Default for Toggled<T> {
    fn default() -> Self {
        // What nothing is said of is what an empty block would be: the fields' own defaults are the only ones.
        #[expect(
            clippy::expect_used,
            reason = "every field of every template has a default; a test reads them all"
        )]
        serde_json::from_value(serde_json::json!({})).expect("an empty block is a complete one")
    }
}

pub struct Service;

impl service::Service for Service {
    type Object = OpenStackControlPlane;
    const KIND: Kind = KIND;
    const NAME: &'static str = "controlplane";
    const LONGEST_NAME: usize = name::LONGEST_PARENT;

    fn needs(_object: &OpenStackControlPlane) -> Needs {
        Needs::default()
    }

    fn plan(context: &Context<'_, OpenStackControlPlane>) -> Result<Plan, Invalid> {
        let spec = &context.object.spec;
        let origin = || Origin { release: spec.release, images: spec.images.clone() };
        let mut plan = Plan::default();
        let mut parts = Parts { cloud: context.name, plan: &mut plan };
        if spec.mariadb.enabled {
            let template = spec.mariadb.template.clone();
            parts.add(
                mariadb::KIND,
                "mariadb",
                Stage::Infrastructure,
                &MariaDBSpec { origin: origin(), template },
            )?;
        }
        if spec.rabbitmq.enabled {
            let template = spec.rabbitmq.template.clone();
            parts.add(
                rabbitmq::KIND,
                "rabbitmq",
                Stage::Infrastructure,
                &RabbitMQSpec { origin: origin(), template },
            )?;
        }
        if spec.memcached.enabled {
            let template = spec.memcached.template.clone();
            let child = MemcachedSpec { origin: origin(), template };
            parts.add(memcached::KIND, "memcached", Stage::Infrastructure, &child)?;
        }
        if spec.keystone.enabled {
            match keystone(context) {
                Ok(template) => {
                    plan.endpoint = crate::shared::public_url(&template.exposure);
                    let mut parts = Parts { cloud: context.name, plan: &mut plan };
                    parts.add(
                        keystone::KIND,
                        "keystone",
                        Stage::Identity,
                        &KeystoneSpec { origin: origin(), template },
                    )?;
                }
                Err(reason) => {
                    let name = name::part(context.name, "keystone");
                    plan.skipped.push(Skipped { kind: keystone::KIND, name, reason });
                }
            }
        }
        Ok(plan)
    }
}

struct Parts<'a> {
    cloud: &'a str,
    plan: &'a mut Plan,
}

impl Parts<'_> {
    fn add(&mut self, kind: Kind, service: &str, stage: Stage, spec: &impl Serialize) -> Result<(), Invalid> {
        let spec = serde_json::to_value(spec)
            .map_err(|error| Invalid::new(format!("spec.{service}"), format!("has no JSON form: {error}")))?;
        self.plan.children.push(Child { kind, name: name::part(self.cloud, service), stage, spec });
        Ok(())
    }
}

/// Keystone's own settings, with the cloud's where it is silent; or why it cannot be.
fn keystone(context: &Context<'_, OpenStackControlPlane>) -> Result<KeystoneTemplate, String> {
    let spec = &context.object.spec;
    let mut template = spec.keystone.template.clone();
    inherit(&mut template.exposure, context, "keystone");
    if template.bootstrap.region == region() {
        template.bootstrap.region.clone_from(&spec.region);
    }
    let cluster = |service: &str| Some(NameReference { name: name::part(context.name, service) });
    if template.database.host.is_none() && template.database.cluster_ref.is_none() {
        if !spec.mariadb.enabled {
            return Err("it needs mariadb, which is not enabled, or a database.host of its own".to_owned());
        }
        template.database.cluster_ref = cluster("mariadb");
    }
    if template.cache.servers.is_empty() && template.cache.cluster_ref.is_none() && spec.memcached.enabled {
        template.cache.cluster_ref = cluster("memcached");
    }
    if template.notifications.enabled && template.messaging.cluster_ref.is_none() {
        if !spec.rabbitmq.enabled {
            return Err("its notifications need rabbitmq, which is not enabled".to_owned());
        }
        template.messaging.cluster_ref = cluster("rabbitmq");
    }
    Ok(template)
}

/// Fills in how an API is reached from what the cloud says.
fn inherit(exposure: &mut Exposure, context: &Context<'_, OpenStackControlPlane>, service: &str) {
    let spec = &context.object.spec;
    if exposure.public_hostname.is_none() {
        exposure.public_hostname = Some(format!("{service}.{}", spec.public_domain));
    }
    if exposure.gateway_ref.is_none() {
        exposure.gateway_ref.clone_from(&spec.gateway_ref);
    }
    exposure.public_scheme.get_or_insert(spec.public_scheme);
}
