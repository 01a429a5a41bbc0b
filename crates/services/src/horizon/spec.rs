//! Settings of Horizon.

use std::collections::BTreeMap;

use kube::CustomResource;
use openstack_operator_model::common::{Common, Exposure, Origin};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CacheSettings, IdentityAddress};
use crate::inputs::{self, Input, Inputs, Role, Scale};

/// Web dashboard.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Horizon",
    plural = "horizons",
    namespaced,
    status = "Status",
    shortname = "hzn",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = Rule::new("has(self.spec.cache) && (has(self.spec.cache.clusterRef) || has(self.spec.cache.servers))")
        .message("spec.cache is incomplete: sessions need a Memcached in clusterRef or existing servers in servers")
)]
pub struct HorizonSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: HorizonTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HorizonTemplate {
    /// Number of pods. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub exposure: Exposure,
    /// Memcached servers with the sessions of users.
    #[serde(default)]
    pub cache: CacheSettings,
    #[serde(default)]
    pub keystone: IdentityAddress,
    #[serde(default)]
    pub theme: Theme,
    /// Settings of Django and Horizon by name, e.g. `SESSION_TIMEOUT: 7200`. They override the operator's. A value is JSON, or
    /// else a string; a map is merged into the default. `SECRET_KEY`, `STATIC_ROOT`, `STATIC_URL` and `WEBROOT` cannot be set.
    #[serde(default, deserialize_with = "schema::read_options", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::options")]
    pub settings: BTreeMap<String, String>,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for HorizonTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Cache(&mut self.cache),
            Input::IdentityAddress(&mut self.keystone),
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }
}

/// Theme of all pages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.path) != (!has(self.name) || self.name in ['default', 'material'])", "message": "theme.name is default or material without theme.path, or the name of your own theme with theme.path, its directory in the pods" },
]))]
pub struct Theme {
    /// `default`, `material`, or the name of your own theme.
    #[serde(default = "default_theme")]
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub name: String,
    /// Directory of your own theme in the pods, which `extraMounts` mounts. It contains `_variables.scss` and `_styles.scss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub path: Option<String>,
}

impl Default for Theme {
    fn default() -> Self {
        Self { name: default_theme(), path: None }
    }
}

fn default_theme() -> String {
    "default".to_owned()
}
