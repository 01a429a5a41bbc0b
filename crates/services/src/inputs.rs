//! What a service takes from its cloud, declared once: needs, rules of the definition, the fields that a cloud settles
//! and the edges of the start-up graph all follow from it.

use openstack_operator_model::common::{
    ContainerSettings, Dependency, Exposure, NameReference, PodAdditions, PodSettings, Reference, Scheduling,
    Storage,
};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;

use crate::concern::{CacheSettings, DatabaseSettings, IdentitySettings, MessagingSettings};
use crate::{keystone, mariadb, memcached, rabbitmq};

pub(crate) mod rules;

/// Settings that know what they take.
pub trait Inputs: Default {
    /// Everything that is taken, with the settings that say from where.
    fn inputs(&mut self) -> Vec<Input<'_>>;

    /// Settings that take all that such settings can take: what is declared in general is read from these.
    fn declaration() -> Self {
        Self::default()
    }
}

/// One thing that a service takes. Fields are paths below `spec`; those of list items contain `[]`.
pub enum Input<'a> {
    /// A way in from outside, as `<service>.<publicDomain>`.
    Exposure(&'a mut Exposure),
    /// Another name under which the service is reached from outside.
    Hostname {
        field: &'static str,
        host: &'static str,
        hostname: &'a mut Option<String>,
    },
    /// The name of the cloud's region.
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
    /// Another service.
    Service {
        field: &'static str,
        kind: Kind,
        link: Link,
        reference: &'a mut Option<NameReference>,
    },
    /// Nodes for pods.
    Scheduling {
        field: &'static str,
        role: Role,
        scheduling: &'a mut Scheduling,
    },
    /// Resources and image of a component. A cloud has them in one list for all its services.
    Component {
        field: &'static str,
        settings: &'a mut ContainerSettings,
    },
    /// A number of pods.
    Replicas {
        scale: Scale,
        replicas: &'a mut Option<i32>,
    },
    StorageClass(&'a mut Option<String>),
    /// Users for other services, which a cloud creates by itself.
    Users(&'static str),
    /// What the user adds to all pods of the cloud, and the order that the cloud knows by itself.
    Pods {
        depends_on: &'a mut Vec<Dependency>,
        additions: &'a mut PodAdditions,
    },
}

/// When a concern must be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    Always,
    /// Where this holds, in CEL: `self` is the object, `item` an item of the list.
    When(&'static str),
}

/// How a service depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It cannot be planned without what the other provides.
    Uses(Needed),
    /// It uses what the other provides where the cloud has it.
    UsesIfEnabled,
    /// Some of its workloads start when the other is Ready.
    WaitsFor,
    /// Both of `Uses` and `WaitsFor`.
    UsesAndWaitsFor,
}

impl Link {
    fn uses(self) -> bool {
        !matches!(self, Self::WaitsFor)
    }

    fn waits(self) -> bool {
        matches!(self, Self::WaitsFor | Self::UsesAndWaitsFor)
    }

    /// Whether a cloud must have the other service, and when.
    pub(crate) fn needed(self) -> Option<Needed> {
        match self {
            Self::Uses(needed) => Some(needed),
            Self::WaitsFor | Self::UsesAndWaitsFor => Some(Needed::Always),
            Self::UsesIfEnabled => None,
        }
    }
}

/// Stands for all components of a service.
pub(crate) const ALL_COMPONENTS: &str = "all";

/// What kind of node pods belong on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Control,
    Network,
    Compute,
}

/// How a component survives the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Members of a quorum: a majority of three is left.
    Quorum,
    /// Pods that share nothing: another one is left.
    Stateless,
}

/// What all objects with pods take: nodes of a role, and what the user adds to pods.
pub(crate) fn pods(settings: &mut PodSettings, role: Role) -> [Input<'_>; 3] {
    let PodSettings { container, scheduling, depends_on, additions } = settings;
    [
        Input::Component { field: ALL_COMPONENTS, settings: container },
        Input::Scheduling { field: "", role, scheduling },
        Input::Pods { depends_on, additions },
    ]
}

/// What the members of a quorum with volumes of their own take.
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

/// What settings need of others.
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
        Input::Service { field, kind, link, reference } => {
            let reference = reference.as_ref();
            let needs = if link.uses() { needs.object(&cluster(field), kind, reference) } else { needs };
            if link.waits() { needs.later(kind, name(reference)) } else { needs }
        }
        Input::Pods { depends_on, .. } => needs.after(depends_on),
        Input::Exposure(_)
        | Input::Hostname { .. }
        | Input::Region { .. }
        | Input::Scheduling { .. }
        | Input::Component { .. }
        | Input::Replicas { .. }
        | Input::StorageClass(_)
        | Input::Users(_) => needs,
    }
}

/// Keys of a Secret with which somebody logs in.
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

/// Objects that must be Ready before workloads start that wait for them.
pub(crate) fn waits<T: Inputs + Clone>(settings: &T) -> Vec<Reference> {
    let mut settings = settings.clone();
    let waits = settings.inputs().into_iter().filter_map(|input| match input {
        Input::Service { kind, link, reference, .. } if link.waits() => {
            Some(Reference::new(kind, reference.as_ref()?.name.clone()))
        }
        _ => None,
    });
    waits.collect()
}
