//! The engine, its keys, and the outcomes of a reconcile.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use kube::core::DynamicObject;
use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::Stall;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::Instance;
use openstack_operator_model::service::{AnyService, Invalid, Site};

use crate::intent::AppliedIntents;
use crate::node_claim::Reservations;
use crate::ports::{PortError, Ports};
use crate::registration::Registrations;
use crate::route::NeedIndex;

/// Finalizer of every object: the operator removes external resources before Kubernetes deletes the object.
pub const FINALIZER: &str = "openstack.k8s.io/cleanup";

/// Identifies an object of the operator's kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Whether a reference from the same namespace names this object.
    pub(crate) fn matches(&self, reference: &Reference) -> bool {
        reference.kind == self.kind.kind && reference.name == self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}

/// Outcome of a reconcile; it determines when the next one runs.
#[derive(Debug)]
pub enum Outcome {
    /// Everything is in place; check again for drift, or when a key rotation is due.
    Done { recheck: Option<Duration> },
    /// Something else must happen first; a watch event or the delay triggers the next reconcile.
    Waiting { after: Option<Duration> },
    /// The user must change something.
    Stalled,
    /// The object no longer exists.
    Gone,
    /// An error; retry with increasing delay.
    Failed { message: String },
}

impl Outcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Waiting { .. } => "waiting",
            Self::Stalled => "stalled",
            Self::Gone => "gone",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Why a reconcile stopped early.
#[derive(Debug)]
pub(crate) enum Stop {
    Port(PortError),
    Stall(Stall),
}

impl From<PortError> for Stop {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

pub struct Engine {
    pub services: &'static [&'static dyn AnyService],
    pub site: Site,
    pub ports: Ports,
    /// Which objects depend on which.
    pub needs: NeedIndex,
    pub(crate) applied: AppliedIntents,
    pub(crate) reservations: Reservations,
    pub(crate) registrations: Registrations,
}

impl Engine {
    pub fn new(services: &'static [&'static dyn AnyService], site: Site, ports: Ports) -> Self {
        Self {
            services,
            site,
            ports,
            needs: NeedIndex::default(),
            applied: AppliedIntents::default(),
            reservations: Reservations::default(),
            registrations: Registrations::default(),
        }
    }

    pub(crate) fn service(&self, kind: Kind) -> Option<&'static dyn AnyService> {
        self.services.iter().copied().find(|service| service.kind() == kind)
    }

    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        self.services.iter().map(|service| service.kind()).find(|kind| kind.kind == name)
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.services.iter().map(|service| service.kind()).collect()
    }
}

/// The object's identity, as lowering needs it.
pub fn instance(service: &dyn AnyService, object: &DynamicObject) -> Instance {
    Instance {
        kind: service.kind(),
        service: service.name(),
        name: object.metadata.name.clone().unwrap_or_default(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
    }
}

/// Runs pure code of a service. **Invariant:** a panic stalls only this object.
pub(crate) fn catch_panic<T>(step: &str, pure: impl FnOnce() -> Result<T, Invalid>) -> Result<T, Stop> {
    match catch_unwind(AssertUnwindSafe(pure)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(invalid)) => Err(Stop::Stall(Stall::InvalidSpec(invalid.to_string()))),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            Err(Stop::Stall(Stall::Bug(format!(
                "panic while {step}: {text}; this is a bug in the operator, please report it"
            ))))
        }
    }
}
