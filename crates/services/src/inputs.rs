//! Inputs that a service gets from its cloud, declared once. Needs, CEL rules, the fields that a cloud fills in and
//! the startup order all follow from them.

use openstack_operator_model::common::{
    ContainerSettings, Dependency, Exposure, NameReference, PodAdditions, PodSettings, Reference, Scheduling,
    Storage,
};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;

use crate::concern::{CacheSettings, DatabaseSettings, IdentityAddress, IdentitySettings, MessagingSettings};
use crate::{keystone, mariadb, memcached, rabbitmq};

pub(crate) mod rules;

/// Settings that declare their inputs.
pub trait Inputs: Default {
    /// All inputs, with the settings that hold them.
    fn inputs(&mut self) -> Vec<Input<'_>>;

    /// Settings with all possible inputs, from which schemas and rules are derived.
    fn declaration() -> Self {
        Self::default()
    }
}

/// One input of a service. Fields are paths below `spec`; those of list items contain `[]`.
pub enum Input<'a> {
    /// Public access as `<service>.<publicDomain>`.
    Exposure(&'a mut Exposure),
    /// Another public host name of the service.
    Hostname {
        field: &'static str,
        host: &'static str,
        hostname: &'a mut Option<String>,
    },
    /// Region of the cloud.
    Region {
        field: &'static str,
        region: &'a mut Option<String>,
    },
    Database {
        field: &'static str,
        needed: Needed,
        settings: &'a mut DatabaseSettings,
    },
    Messaging {
        field: &'static str,
        needed: Needed,
        settings: &'a mut MessagingSettings,
    },
    Cache(&'a mut CacheSettings),
    Identity(&'a mut IdentitySettings),
    /// Identity service, for a service without a user of its own.
    IdentityAddress(&'a mut IdentityAddress),
    /// Another service.
    Service {
        field: &'static str,
        kind: Kind,
        link: Link,
        reference: &'a mut Option<NameReference>,
    },
    /// Topics of the parts of the cloud that consume notifications of the service.
    Topics {
        field: &'static str,
        topics: &'a mut Vec<String>,
    },
    /// Scheduling of pods.
    Scheduling {
        field: &'static str,
        role: Role,
        scheduling: &'a mut Scheduling,
    },
    /// Resources and image of a component. A cloud has one list of them for all services.
    Component {
        field: &'static str,
        settings: &'a mut ContainerSettings,
    },
    /// Number of pods.
    Replicas {
        scale: Scale,
        replicas: &'a mut Option<i32>,
    },
    StorageClass(&'a mut Option<String>),
    /// Users for other services. In a cloud the operator creates them.
    Users(&'static str),
    /// Additions of the user to all pods, and dependencies, which a cloud derives.
    Pods {
        depends_on: &'a mut Vec<Dependency>,
        additions: &'a mut PodAdditions,
    },
}

/// When an input is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    Always,
    /// If this CEL expression is true: `self` is the object, `item` an item of the list.
    When(&'static str),
}

/// Dependency of a service on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Planning requires the other service.
    Uses(Needed),
    /// Planning uses the other service if the cloud has it.
    UsesIfEnabled,
    /// Some workloads wait until the other service serves.
    WaitsFor,
}

impl Link {
    /// Whether the cloud must have the other service.
    pub(crate) fn needed(self) -> Option<Needed> {
        match self {
            Self::Uses(needed) => Some(needed),
            Self::WaitsFor => Some(Needed::Always),
            Self::UsesIfEnabled => None,
        }
    }
}

/// All components of a service.
pub(crate) const ALL_COMPONENTS: &str = "all";

/// Role of the nodes for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Control,
    Network,
    Compute,
}

/// How a component tolerates the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Members of a quorum.
    Quorum,
    /// Pods without state.
    Stateless,
}

/// Inputs of all objects with pods.
pub(crate) fn pods(settings: &mut PodSettings, role: Role) -> [Input<'_>; 3] {
    let PodSettings { container, scheduling, depends_on, additions } = settings;
    [
        Input::Component { field: ALL_COMPONENTS, settings: container },
        Input::Scheduling { field: "", role, scheduling },
        Input::Pods { depends_on, additions },
    ]
}

/// Inputs of a cluster with a quorum and volumes.
pub(crate) fn quorum<'a>(
    replicas: &'a mut Option<i32>,
    storage: &'a mut Storage,
    pods: &'a mut PodSettings,
) -> Vec<Input<'a>> {
    let mut inputs = vec![
        Input::Replicas { scale: Scale::Quorum, replicas },
        Input::StorageClass(&mut storage.storage_class),
    ];
    inputs.extend(self::pods(pods, Role::Control));
    inputs
}

/// Needs that follow from the inputs of settings.
pub(crate) fn needs<T: Inputs + Clone>(settings: &T) -> Needs {
    settings.clone().inputs().into_iter().fold(Needs::default(), add_need)
}

fn add_need(needs: Needs, input: Input<'_>) -> Needs {
    match input {
        Input::Database { field, settings, .. } => database_needs(needs, field, settings),
        Input::Messaging { field, settings, .. } => {
            let needs = needs.object(&cluster(field), rabbitmq::KIND, settings.cluster_ref.as_ref());
            needs.secret(&secret(field), name(settings.secret_ref.as_ref()), &LOGIN)
        }
        Input::Cache(settings) => {
            needs.object(&cluster("cache"), memcached::KIND, settings.cluster_ref.as_ref())
        }
        Input::Identity(settings) => identity_needs(needs, settings),
        Input::IdentityAddress(address) => {
            needs.object(&cluster("keystone"), keystone::KIND, address.cluster_ref.as_ref())
        }
        Input::Service { field, kind, link, reference } => {
            let reference = reference.as_ref();
            match link {
                Link::WaitsFor => needs.later(kind, name(reference)),
                Link::Uses(_) | Link::UsesIfEnabled => needs.object(&cluster(field), kind, reference),
            }
        }
        Input::Pods { depends_on, .. } => needs.after(depends_on),
        Input::Exposure(_)
        | Input::Hostname { .. }
        | Input::Region { .. }
        | Input::Topics { .. }
        | Input::Scheduling { .. }
        | Input::Component { .. }
        | Input::Replicas { .. }
        | Input::StorageClass(_)
        | Input::Users(_) => needs,
    }
}

/// Keys of a Secret with a login.
const LOGIN: [&str; 2] = ["username", "password"];
/// Keys of a Secret with an application credential.
const APPLICATION_CREDENTIAL: [&str; 2] = ["application_credential_id", "application_credential_secret"];

fn database_needs(needs: Needs, field: &str, settings: &DatabaseSettings) -> Needs {
    let needs = needs.object(&cluster(field), mariadb::KIND, settings.cluster_ref.as_ref());
    let elsewhere = settings.cluster_ref.is_none() && settings.host.is_none();
    let keys: &[&str] = if elsewhere { &["username", "password", "host"] } else { &LOGIN };
    needs.secret(&secret(field), name(settings.secret_ref.as_ref()), keys).secret(
        &format!("spec.{field}.adminSecretRef"),
        name(settings.admin_secret_ref.as_ref()),
        &LOGIN,
    )
}

fn identity_needs(needs: Needs, settings: &IdentitySettings) -> Needs {
    let credential = settings.app_credential_ref.as_ref().map(|given| given.secret_name.as_str());
    needs
        .object(&cluster("keystone"), keystone::KIND, settings.cluster_ref.as_ref())
        .secret("spec.keystone.appCredentialRef", credential, &APPLICATION_CREDENTIAL)
        .secret(&secret("keystone"), name(settings.secret_ref.as_ref()), &LOGIN)
        .secret("spec.keystone.adminSecretRef", name(settings.admin_secret_ref.as_ref()), &LOGIN)
}

fn cluster(field: &str) -> String {
    format!("spec.{field}.clusterRef")
}

fn secret(field: &str) -> String {
    format!("spec.{field}.secretRef")
}

fn name(reference: Option<&NameReference>) -> Option<&str> {
    reference.map(|reference| reference.name.as_str())
}

/// Objects that must serve before dependent workloads start.
pub(crate) fn waits<T: Inputs + Clone>(settings: &T) -> Vec<Reference> {
    let mut settings = settings.clone();
    let waits = settings.inputs().into_iter().filter_map(|input| match input {
        Input::Service { kind, link: Link::WaitsFor, reference, .. } => {
            Some(Reference::new(kind, reference.as_ref()?.name.clone()))
        }
        _ => None,
    });
    waits.collect()
}
