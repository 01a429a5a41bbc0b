//! Settings of Nova.

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
    /// Number of pods of each component without its own `replicas`. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// Compute API.
    #[serde(default)]
    pub api: Component,
    /// Instance metadata API.
    #[serde(default)]
    pub metadata: Component,
    /// Scheduler, which selects compute nodes for instances.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// Conductor, which accesses the database for compute nodes.
    #[serde(default)]
    pub conductor: Component,
    /// noVNC console proxy.
    #[serde(default)]
    pub console: Console,
    #[serde(flatten)]
    pub exposure: Exposure,
    /// Databases of Nova.
    #[serde(default)]
    pub database: NovaDatabase,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub cache: ServiceCacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    /// Users that Nova uses for other services instead of its own user.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_auth: ServiceAuth,
    /// Cells. `cell0` and `cell1` always exist; add `cell1` only to assign its compute nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub cells: Vec<Cell>,
    #[serde(flatten)]
    pub common: Common,
}

/// CEL expression: the cell has its own database and message bus.
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

/// Scheduler.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    #[serde(flatten)]
    pub component: Component,
    /// External scheduler, which ranks compute nodes.
    #[serde(default)]
    pub external_scheduler: ExternalScheduler,
}

/// External scheduler, which ranks the compute nodes for an instance.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.enabled) || !self.enabled || has(self.endpoint)",
    "message": "externalScheduler.enabled requires externalScheduler.endpoint",
}]))]
pub struct ExternalScheduler {
    /// Whether the scheduler calls it.
    #[serde(default)]
    pub enabled: bool,
    /// URL of the external scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: Option<String>,
}

/// noVNC console proxy.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Console {
    #[serde(flatten)]
    pub component: Component,
    /// Public host name of consoles, on the same Gateway as the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
}

/// Databases of Nova.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaDatabase {
    /// Database of `cell1`.
    #[serde(flatten)]
    pub cell: DatabaseSettings,
    /// Name of the API database, which all cells share. Defaults to `nova_api`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub api_database: Option<String>,
    /// Name of the database of `cell0`, which holds instances that failed to schedule. Defaults to `nova_cell0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub cell_database: Option<String>,
}

/// Users that Nova uses for other services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAuth {
    /// Secret with `username` and `password` of the user for Placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_service_user_ref: Option<NameReference>,
    /// Secret with `username` and `password` of the user for Neutron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neutron_service_user_ref: Option<NameReference>,
    /// Secret with `username` and `password` of the user for Glance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glance_service_user_ref: Option<NameReference>,
    /// Secret with `username` and `password` of the user for Cinder.
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

/// Cell: compute nodes with their own database and message bus.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.name != 'cell0'", "message": "cell0 has no compute nodes: remove it" },
    { "rule": "self.name != 'cell1' || !has(self.conductor)", "message": "cell1 uses the conductor of the service: set spec.conductor" },
]))]
pub struct Cell {
    /// Name of the cell. `cell1` uses the database and message bus of the service.
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
    /// Conductor of the cell.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conductor: Component,
}

impl Cell {
    /// Whether it is an additional cell.
    pub(super) fn is_own(&self) -> bool {
        self.name != FIRST_CELL
    }
}

/// The cell that always exists.
pub(super) const FIRST_CELL: &str = "cell1";
