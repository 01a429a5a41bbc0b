//! Nova's settings.

use kube::CustomResource;
use openstack_operator_model::common::{Common, Component, Exposure, NameReference, Origin, is_default};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{DatabaseSettings, IdentitySettings, MessagingSettings, ServiceCacheSettings};
use crate::inputs::{self, Input, Inputs, Needed, Role, Scale};

/// Compute service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Nova",
    plural = "novas",
    namespaced,
    status = "Status",
    shortname = "nov",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
)]
pub struct NovaSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: NovaTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaTemplate {
    /// Number of pods of every component that has none of its own; 1 where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// The compute API.
    #[serde(default)]
    pub api: Component,
    /// The metadata API, which VMs ask for their own data.
    #[serde(default)]
    pub metadata: Component,
    /// The scheduler, which chooses nodes for VMs.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The conductor, which accesses the database for compute nodes.
    #[serde(default)]
    pub conductor: Component,
    /// The noVNC proxy.
    #[serde(default)]
    pub console: Console,
    #[serde(flatten)]
    pub exposure: Exposure,
    /// The databases of Nova.
    #[serde(default)]
    pub database: NovaDatabase,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub cache: ServiceCacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    /// Users with which Nova calls other services in place of its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_auth: ServiceAuth,
    /// Cells besides `cell0` and `cell1`, which every cloud has, and the compute nodes of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub cells: Vec<Cell>,
    #[serde(flatten)]
    pub common: Common,
}

/// Whether a cell has a database and a message bus of its own, in CEL.
const OWN_CELL: &str = "item.name != 'cell1'";

impl Inputs for NovaTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let needed = Needed::Always;
        let hostname = &mut self.console.public_hostname;
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Hostname { field: "console.publicHostname", host: "novnc", hostname },
            Input::Database { field: "database", needed, settings: &mut self.database.cell },
            Input::Messaging { field: "messaging", needed, settings: &mut self.messaging },
            Input::Cache(&mut self.cache.servers),
            Input::Identity(&mut self.keystone),
        ];
        for cell in self.cells.iter_mut().filter(|cell| cell.is_own()) {
            let needed = Needed::When(OWN_CELL);
            let Cell { database, messaging, conductor, .. } = cell;
            inputs.push(Input::Database { field: "cells[].database", needed, settings: database });
            inputs.push(Input::Messaging { field: "cells[].messaging", needed, settings: messaging });
            let settings = &mut conductor.container;
            inputs.push(Input::Component { field: "cells[].conductor", settings });
        }
        inputs.extend([
            Input::Component { field: "api", settings: &mut self.api.container },
            Input::Component { field: "metadata", settings: &mut self.metadata.container },
            Input::Component { field: "scheduler", settings: &mut self.scheduler.component.container },
            Input::Component { field: "conductor", settings: &mut self.conductor.container },
            Input::Component { field: "console", settings: &mut self.console.component.container },
        ]);
        inputs.push(Input::Users("serviceAuth"));
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }

    fn declaration() -> Self {
        Self { cells: vec![Cell::default()], ..Self::default() }
    }
}

/// The scheduler.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    #[serde(flatten)]
    pub component: Component,
    /// A scheduler outside of Nova.
    #[serde(default)]
    pub external_scheduler: ExternalScheduler,
}

/// A scheduler outside of Nova that orders the nodes for a VM.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.enabled) || !self.enabled || has(self.endpoint)",
    "message": "externalScheduler needs an endpoint where it is enabled",
}]))]
pub struct ExternalScheduler {
    /// Whether it is called.
    #[serde(default)]
    pub enabled: bool,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: Option<String>,
}

/// The noVNC proxy.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Console {
    #[serde(flatten)]
    pub component: Component,
    /// Name under which consoles are reached from outside, through the same Gateway as the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
}

/// The databases of Nova.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaDatabase {
    /// Database of the VMs of `cell1`.
    #[serde(flatten)]
    pub cell: DatabaseSettings,
    /// Name of the database that all cells share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub api_database: Option<String>,
    /// Name of the database of VMs that were never scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub cell_database: Option<String>,
}

/// Secrets with `username` and `password`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAuth {
    /// User for Placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_service_user_ref: Option<NameReference>,
    /// User for Neutron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neutron_service_user_ref: Option<NameReference>,
    /// User for Glance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glance_service_user_ref: Option<NameReference>,
    /// User for Cinder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder_service_user_ref: Option<NameReference>,
}

/// The user for one of the services that Nova calls.
pub(super) struct ServiceUser<'a> {
    /// Section of the configuration.
    pub(super) section: &'static str,
    pub(super) field: &'static str,
    pub(super) secret: Option<&'a NameReference>,
}

impl ServiceAuth {
    pub(super) fn users(&self) -> [ServiceUser<'_>; 4] {
        let user = |section, field, secret| ServiceUser { section, field, secret };
        let Self {
            placement_service_user_ref: placement,
            neutron_service_user_ref: neutron,
            glance_service_user_ref: glance,
            cinder_service_user_ref: cinder,
        } = self;
        [
            user("placement", "spec.serviceAuth.placementServiceUserRef", placement.as_ref()),
            user("neutron", "spec.serviceAuth.neutronServiceUserRef", neutron.as_ref()),
            user("glance", "spec.serviceAuth.glanceServiceUserRef", glance.as_ref()),
            user("cinder", "spec.serviceAuth.cinderServiceUserRef", cinder.as_ref()),
        ]
    }
}

/// A cell: compute nodes with a database and a message bus of their own.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.name != 'cell0'", "message": "cell0 has no compute nodes: leave it out" },
    { "rule": "self.name != 'cell1' || !has(self.conductor)", "message": "the conductor of cell1 is that of the service: set spec.conductor" },
]))]
pub struct Cell {
    /// Name of the cell. The database and the message bus of `cell1` are those of the service.
    #[schemars(length(min = 1, max = 10), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// `NovaCompute` object whose nodes belong to the cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_ref: Option<NameReference>,
    /// Database of the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub database: DatabaseSettings,
    /// Message bus of the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub messaging: MessagingSettings,
    /// The conductor of the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conductor: Component,
}

impl Cell {
    /// Whether it is a cell besides the one that every cloud has.
    pub(super) fn is_own(&self) -> bool {
        self.name != FIRST_CELL
    }
}

/// The cell that every cloud has.
pub(super) const FIRST_CELL: &str = "cell1";
