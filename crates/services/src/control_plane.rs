//! The control plane: one object that stands for a whole cloud, and consists of one object for each service.

use kube::CustomResource;
use openstack_operator_model::common::{
    CacheSettings, DatabaseSettings, Exposure, GatewayReference, IdentitySettings, MessagingSettings,
    NameReference, Origin, Scheme, is_default,
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

use crate::compute::{self, NovaComputeSpec, NovaComputeTemplate};
use crate::glance::{self, GlanceSpec, GlanceTemplate};
use crate::keystone::{self, KeystoneSpec, KeystoneTemplate};
use crate::mariadb::{self, MariaDBSpec, MariaDBTemplate};
use crate::memcached::{self, MemcachedSpec, MemcachedTemplate};
use crate::neutron::{self, Mechanism, NeutronSpec, NeutronTemplate};
use crate::nova::{self, NovaSpec, NovaTemplate};
use crate::ovn::{self, OVNNetworkSpec, OVNNetworkTemplate};
use crate::placement::{self, PlacementSpec};
use crate::rabbitmq::{self, RabbitMQSpec, RabbitMQTemplate};
use crate::shared::api;
use crate::template::ApiTemplate;

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
    validation = Rule::new("!has(self.spec.neutron) || !has(self.spec.neutron.mechanism) || self.spec.neutron.mechanism == self.spec.networkBackend")
        .message("spec.neutron.mechanism must be what spec.networkBackend is: leave it out"),
    validation = Rule::new("self.spec.networkBackend == 'ovs' || !has(self.spec.neutron) || !has(self.spec.neutron.ovs)")
        .message("spec.neutron.ovs has no use without networkBackend ovs: switches of OVN are set up in spec.ovn"),
    validation = Rule::new("self.spec.networkBackend == 'ovn' || !has(self.spec.ovn) || !has(self.spec.ovn.bridgeMappings)")
        .message("spec.ovn has no use with networkBackend ovs: switches are set up in spec.neutron.ovs"),
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
    /// What networks of the cloud stand on: OVN, or Open vSwitch with Neutron's own agents. It cannot be changed later.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "networkBackend cannot be changed: ports of servers would have to be made anew",
    }]))]
    pub network_backend: Mechanism,
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
    #[serde(default)]
    pub glance: Toggled<GlanceTemplate>,
    #[serde(default)]
    pub placement: Toggled<ApiTemplate>,
    #[serde(default)]
    pub ovn: Toggled<OVNNetworkTemplate>,
    #[serde(default)]
    pub neutron: Toggled<NeutronTemplate>,
    #[serde(default)]
    pub nova: Toggled<NovaTemplate>,
    /// Nodes that run servers.
    #[serde(default)]
    pub compute: Toggled<NovaComputeTemplate>,
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
        let mut cloud = Cloud { name: context.name, spec, plan: Plan::default() };
        macro_rules! part {
            ($field:ident, $kind:expr, $stage:ident, $object:ident, $settle:expr) => {
                if spec.$field.enabled {
                    let mut template = spec.$field.template.clone();
                    let settled: Result<(), String> = $settle(&cloud, &mut template);
                    let origin = Origin { release: spec.release, images: spec.images.clone() };
                    let settled = settled.map(|()| $object { origin, template });
                    cloud.add($kind, stringify!($field), Stage::$stage, settled)?;
                }
            };
        }
        part!(mariadb, mariadb::KIND, Infrastructure, MariaDBSpec, |_: &Cloud<'_>, _: &mut _| Ok(()));
        part!(rabbitmq, rabbitmq::KIND, Infrastructure, RabbitMQSpec, |_: &Cloud<'_>, _: &mut _| Ok(()));
        part!(memcached, memcached::KIND, Infrastructure, MemcachedSpec, |_: &Cloud<'_>, _: &mut _| Ok(()));
        if spec.network_backend == Mechanism::Ovn {
            part!(ovn, ovn::KIND, Infrastructure, OVNNetworkSpec, |_: &Cloud<'_>, _: &mut _| Ok(()));
        }
        part!(keystone, keystone::KIND, Identity, KeystoneSpec, Cloud::keystone);
        if cloud.plan.children.iter().any(|child| child.kind == keystone::KIND) {
            let mut exposure = spec.keystone.template.exposure.clone();
            cloud.exposure(&mut exposure, "keystone");
            cloud.plan.endpoint = api::public_url(&exposure);
        }
        part!(glance, glance::KIND, CoreServices, GlanceSpec, Cloud::glance);
        part!(placement, placement::KIND, CoreServices, PlacementSpec, Cloud::placement);
        part!(neutron, neutron::KIND, CoreServices, NeutronSpec, Cloud::neutron);
        part!(nova, nova::KIND, CoreServices, NovaSpec, Cloud::nova);
        part!(compute, compute::KIND, Compute, NovaComputeSpec, Cloud::compute);
        Ok(cloud.plan)
    }
}

/// A cloud whose parts are being put together.
struct Cloud<'a> {
    name: &'a str,
    spec: &'a OpenStackControlPlaneSpec,
    plan: Plan,
}

impl Cloud<'_> {
    /// Adds a part, or says why it cannot be.
    fn add(
        &mut self,
        kind: Kind,
        service: &str,
        stage: Stage,
        spec: Result<impl Serialize, String>,
    ) -> Result<(), Invalid> {
        let name = name::part(self.name, service);
        match spec {
            Ok(spec) => {
                let spec = serde_json::to_value(spec).map_err(|error| {
                    Invalid::new(format!("spec.{service}"), format!("has no JSON form: {error}"))
                })?;
                self.plan.children.push(Child { kind, name, stage: Some(stage), spec });
            }
            Err(reason) => self.plan.skipped.push(Skipped { kind, name, reason }),
        }
        Ok(())
    }

    fn reference(&self, service: &str) -> NameReference {
        NameReference { name: name::part(self.name, service) }
    }

    /// Fills in how an API is reached from what the cloud says.
    fn exposure(&self, exposure: &mut Exposure, service: &str) {
        if exposure.public_hostname.is_none() {
            exposure.public_hostname = Some(format!("{service}.{}", self.spec.public_domain));
        }
        if exposure.gateway_ref.is_none() {
            exposure.gateway_ref.clone_from(&self.spec.gateway_ref);
        }
        exposure.public_scheme.get_or_insert(self.spec.public_scheme);
    }

    fn database(&self, settings: &mut DatabaseSettings) -> Result<(), String> {
        if settings.host.is_none() && settings.cluster_ref.is_none() {
            if !self.spec.mariadb.enabled {
                return Err(
                    "it needs mariadb, which is not enabled, or a database.host of its own".to_owned()
                );
            }
            settings.cluster_ref = Some(self.reference("mariadb"));
        }
        Ok(())
    }

    fn messaging(&self, settings: &mut MessagingSettings, what: &str) -> Result<(), String> {
        if settings.cluster_ref.is_none() {
            if !self.spec.rabbitmq.enabled {
                return Err(format!("{what} rabbitmq, which is not enabled"));
            }
            settings.cluster_ref = Some(self.reference("rabbitmq"));
        }
        Ok(())
    }

    fn cache(&self, settings: &mut CacheSettings) {
        if settings.servers.is_empty() && settings.cluster_ref.is_none() && self.spec.memcached.enabled {
            settings.cluster_ref = Some(self.reference("memcached"));
        }
    }

    fn identity(&self, settings: &mut IdentitySettings) -> Result<(), String> {
        self.other(&mut settings.cluster_ref, "keystone", self.spec.keystone.enabled)
    }

    /// Fills in a reference to another part of the cloud.
    fn other(&self, given: &mut Option<NameReference>, service: &str, enabled: bool) -> Result<(), String> {
        if given.is_none() {
            if !enabled {
                return Err(format!("it needs {service}, which is not enabled"));
            }
            *given = Some(self.reference(service));
        }
        Ok(())
    }

    fn keystone(&self, template: &mut KeystoneTemplate) -> Result<(), String> {
        self.exposure(&mut template.exposure, "keystone");
        if template.bootstrap.region == region() {
            template.bootstrap.region.clone_from(&self.spec.region);
        }
        self.cache(&mut template.cache);
        self.database(&mut template.database)?;
        if template.notifications.enabled {
            self.messaging(&mut template.messaging, "its notifications need")?;
        }
        Ok(())
    }

    fn api(&self, template: &mut ApiTemplate, service: &str) -> Result<(), String> {
        self.exposure(&mut template.exposure, service);
        self.cache(&mut template.cache);
        self.database(&mut template.database)?;
        self.identity(&mut template.keystone)
    }

    fn glance(&self, template: &mut GlanceTemplate) -> Result<(), String> {
        self.api(&mut template.api, "glance")
    }

    fn placement(&self, template: &mut ApiTemplate) -> Result<(), String> {
        self.api(template, "placement")
    }

    fn neutron(&self, template: &mut NeutronTemplate) -> Result<(), String> {
        self.exposure(&mut template.exposure, "neutron");
        self.cache(&mut template.cache);
        self.database(&mut template.database)?;
        self.messaging(&mut template.messaging, "it needs")?;
        self.identity(&mut template.keystone)?;
        match self.spec.network_backend {
            Mechanism::Ovn => self.other(&mut template.ovn.cluster_ref, "ovn", self.spec.ovn.enabled)?,
            Mechanism::Ovs => template.mechanism = Some(Mechanism::Ovs),
        }
        if self.spec.nova.enabled {
            self.other(&mut template.nova.cluster_ref, "nova", true)?;
        }
        Ok(())
    }

    fn nova(&self, template: &mut NovaTemplate) -> Result<(), String> {
        self.exposure(&mut template.exposure, "nova");
        let console = || format!("novnc.{}", self.spec.public_domain);
        template.console.public_hostname.get_or_insert_with(console);
        self.cache(&mut template.cache);
        self.database(&mut template.database.cell)?;
        self.messaging(&mut template.messaging, "it needs")?;
        for cell in &mut template.cells {
            self.database(&mut cell.database)?;
            self.messaging(&mut cell.messaging, "a cell needs")?;
        }
        self.identity(&mut template.keystone)
    }

    fn compute(&self, template: &mut NovaComputeTemplate) -> Result<(), String> {
        self.identity(&mut template.keystone)?;
        self.other(&mut template.nova.cluster_ref, "nova", self.spec.nova.enabled)?;
        self.other(&mut template.placement.cluster_ref, "placement", self.spec.placement.enabled)
    }
}
