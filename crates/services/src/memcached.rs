//! Memcached: independent servers. Clients address each of them.

use kube::CustomResource;
use openstack_operator_model::common::{Origin, PodSettings};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::plan::{
    Check, Container, Controller, NetworkService, Plan, Pod, Port, Probes, Reach, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{CacheServers, Provides, Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::inputs::{self, Input, Inputs, Role, Scale};
use crate::program::Amounts;
use crate::shared;

pub const KIND: Kind = Kind::own("Memcached", "memcacheds");
const PORT: Port = Port::tcp("memcached", 11211);
const USER: i64 = 42457;
const AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "64Mi", memory_limit: "256Mi" };

/// Memcached servers.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    status = "Status",
    shortname = "memc",
    category = "openstack"
)]
pub struct MemcachedSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: MemcachedTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedTemplate {
    /// Number of servers. Each holds a part of the cache. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub common: PodSettings,
}

impl Inputs for MemcachedTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![Input::Replicas { scale: Scale::Quorum, replicas: &mut self.replicas }];
        inputs.extend(inputs::pods(&mut self.common, Role::Control));
        inputs
    }
}

pub struct Service;

impl Part for Service {
    type Object = Memcached;
    type Template = MemcachedTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "memcached";
    const STAGE: Stage = Stage::Infrastructure;
    const PRESENCE: Presence = Presence::ByDefault;

    fn template(object: &Memcached) -> &MemcachedTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.cache.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        vec![shared::exclusive_rule("cache", "servers", "memcached", "existing servers")]
    }

    fn plan(context: &Context<'_, Memcached>) -> Result<Plan, Invalid> {
        let MemcachedSpec { origin, template } = &context.object.spec;
        let common = &template.common;
        let replicas = template.replicas.unwrap_or(1);
        let resources = shared::resources(&common.container.resources, AMOUNTS);
        let limit = resources.limits.memory.as_deref().unwrap_or_default();
        // The rest is for connections and the allocator.
        let megabytes = quantity::bytes(limit, "spec.resources.limits.memory")? / 4 * 3 / (1 << 20);
        let mut command =
            shared::command(["memcached", "-p", "11211", "-U", "0", "-c", "8192", "-o", "modern", "-m"]);
        command.push(megabytes.max(8).to_string());
        let connect = || Check::Connect { port: PORT.number };
        let container = Container {
            name: "memcached",
            image: shared::component_image(
                context,
                ImageNames::same("memcached"),
                &Image::default(),
                common,
                origin,
            ),
            command,
            ports: vec![PORT],
            probes: Probes {
                readiness: Some(shared::probe(connect(), 5, 3, 2)),
                liveness: Some(shared::probe(connect(), 10, 5, 6)),
                ..Probes::default()
            },
            resources,
            ..Container::default()
        };
        let workload = Workload {
            component: "server".into(),
            suffix: None,
            controller: Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false },
            replicas,
            pod: Pod { grace_seconds: 10, ..Pod::new(USER, &common.scheduling, vec![container]) },
            after: Vec::new(),
            services: vec![NetworkService { suffix: None, ports: vec![PORT], reach: Reach::EachPod }],
        };
        let hosts = shared::member_hosts(context, context.name, context.name, replicas);
        let servers = hosts.iter().map(|host| format!("{host}:{}", PORT.number)).collect();
        Ok(Plan {
            workloads: vec![workload],
            provides: Provides { cache: Some(CacheServers { servers }), ..Provides::default() },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: common.additions.clone(),
            ..Plan::default()
        })
    }
}
