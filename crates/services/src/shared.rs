//! Functions that several services share.

use std::collections::BTreeSet;

use openstack_operator_model::common::{
    Common, ContainerSettings, Origin, PodSettings, ResourceAmounts, Resources, Scheduling, Scheme,
};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::oslo::SecretDocument;
use openstack_operator_model::plan::{
    Check, Endpoint, File, HostPath, Mount, Plan, Port, Probe, Probes, Variable, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Invalid};

use crate::program::Amounts;

pub(crate) mod api;
mod claims;
mod identity;
pub(crate) mod keys;

pub(crate) use claims::*;
pub(crate) use identity::*;

/// Label of compute nodes.
const HYPERVISOR_LABEL: &str = "node-role.kubernetes.io/hypervisor";

/// Image reference of a component: its own, that of the object, or that of the family.
pub(crate) fn component_image<K>(
    context: &Context<'_, K>,
    names: ImageNames,
    own: &Image,
    pods: &PodSettings,
    origin: &Origin,
) -> String {
    let image = Image {
        repository: own.repository.clone().or_else(|| pods.container.image.repository.clone()),
        tag: own.tag.clone().or_else(|| pods.container.image.tag.clone()),
    };
    context.site.images.reference(names, &origin.images, &image, context.runtime)
}

/// Resources of a component: its own, those of the object, or the defaults.
pub(crate) fn component_resources(
    settings: &ContainerSettings,
    pods: &PodSettings,
    amounts: Amounts,
) -> Resources {
    resources(&settings.resources.or(&pods.container.resources), amounts)
}

/// DNS name of a Service.
pub(crate) fn service_host<K>(context: &Context<'_, K>, service: &str) -> String {
    format!("{service}.{}.svc", context.namespace)
}

/// Scheme of every API and probe inside the cluster.
pub(crate) const INTERNAL_SCHEME: Scheme = Scheme::Http;

/// An HTTP server inside the cluster.
pub(crate) fn internal_endpoint(host: impl Into<String>, port: &Port) -> Endpoint {
    Endpoint { scheme: INTERNAL_SCHEME, host: host.into(), port: port.number }
}

/// Fully qualified DNS names of the pods of a StatefulSet, for clients without search domains.
pub(crate) fn member_hosts<K>(
    context: &Context<'_, K>,
    set: &str,
    members: &str,
    replicas: i32,
) -> Vec<String> {
    let Context { namespace, site, .. } = context;
    (0..replicas)
        .map(|ordinal| format!("{set}-{ordinal}.{members}.{namespace}.svc.{}", site.cluster_domain))
        .collect()
}

/// Resources of the user, completed by the defaults. A default request never exceeds a limit of the user, because
/// Kubernetes rejects such pods.
pub(crate) fn resources(given: &Resources, amounts: Amounts) -> Resources {
    let request = |request: &Option<String>, limit: &Option<String>, ours: &str| {
        let fitting = limit.as_deref().map_or(ours, |limit| quantity::smaller(ours, limit)).to_owned();
        Some(request.clone().unwrap_or(fitting))
    };
    let Resources { requests: given_requests, limits } = given;
    let fitting = given_requests
        .memory
        .as_deref()
        .map_or(amounts.memory_limit, |request| quantity::larger(amounts.memory_limit, request));
    Resources {
        requests: ResourceAmounts {
            cpu: request(&given_requests.cpu, &limits.cpu, amounts.cpu),
            memory: request(&given_requests.memory, &limits.memory, amounts.memory),
        },
        limits: ResourceAmounts {
            cpu: limits.cpu.clone(),
            memory: limits.memory.clone().or_else(|| Some(fitting.to_owned())),
        },
    }
}

/// Rejects options for files that the service does not have.
pub(crate) fn check_extra_config(common: &Common, files: &[&str]) -> Result<(), Invalid> {
    match common.extra_config.keys().find(|file| !files.contains(&file.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Invalid::new(
            format!("spec.extraConfig.{unknown:?}"),
            format!("is not a configuration file of this service: use {}", files.join(" or ")),
        )),
    }
}

/// Fields that set options which pods get by their environment.
const FIELDS: [(&str, &str); 10] = [
    ("CONNECTION", "`database`"),
    ("TRANSPORT_URL", "`messaging` of the service or of its cell"),
    ("USERNAME", "`keystone`"),
    ("PASSWORD", "`keystone`"),
    ("APPLICATION_CREDENTIAL_ID", "`keystone`"),
    ("APPLICATION_CREDENTIAL_SECRET", "`keystone`"),
    ("VIRT_TYPE", "`virtType`"),
    ("BRIDGE_MAPPINGS", "`ovs`"),
    ("S3_STORE_ACCESS_KEY", "`storage.s3`"),
    ("S3_STORE_SECRET_KEY", "`storage.s3`"),
];

/// Rejects options that pods get by their environment or by a file of a Secret: oslo.config prefers both to the main file,
/// so they would have no effect.
pub(crate) fn check_overrides(
    common: &Common,
    plan: &Plan,
    secret_options: &SecretDocument,
) -> Result<(), Invalid> {
    let pods = plan.workloads.iter().map(|workload| &workload.pod);
    let containers = pods.flat_map(|pod| pod.setup.iter().chain(&pod.containers));
    let variables = containers.flat_map(|container| &container.environment);
    // Scripts set variables that depend on the node.
    let lines = plan.files.values().filter_map(File::text).flat_map(str::lines);
    let scripted = lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name);
    let variables: BTreeSet<&str> =
        variables.map(|variable| variable.name.as_str()).chain(scripted).collect();
    for (file, sections) in &common.extra_config {
        let options = sections
            .iter()
            .flat_map(|(section, options)| options.keys().map(move |option| (section, option)));
        for (section, option) in options {
            let name = option.to_uppercase().replace('-', "_");
            let variable = format!("OS_{}__{name}", section.to_uppercase().replace('-', "_"));
            let by_environment = variables.contains(variable.as_str());
            if by_environment || secret_options.contains(section, option) {
                let source = if by_environment { "by their environment" } else { "from a Secret" };
                let field = FIELDS.iter().find(|(option, _)| *option == name);
                let instead = field.map_or_else(
                    || "the operator derives its value".to_owned(),
                    |(_, field)| format!("use the field {field}"),
                );
                return Err(Invalid::new(
                    format!("spec.extraConfig.{file:?}.{section}.{option}"),
                    format!(
                        "would have no effect, because the pods get this option {source}: remove it; {instead}"
                    ),
                ));
            }
        }
    }
    Ok(())
}

pub(crate) fn command<const N: usize>(arguments: [&str; N]) -> Vec<String> {
    arguments.map(str::to_owned).to_vec()
}

/// Command that starts uWSGI of a service.
pub(crate) fn uwsgi_command(service: &str) -> Vec<String> {
    command(["uwsgi", "--ini", &format!("/etc/{service}/uwsgi.ini")])
}

/// Command that runs the upgrade check of a service. Warnings do not fail it.
pub(crate) fn upgrade_check(service: &str) -> Vec<String> {
    command(["bash", "-c", &format!("{service}-status upgrade check || [ $? = 1 ]")])
}

/// Path of a script of the plan in containers.
pub(crate) fn script_path(file: &str) -> String {
    format!("/etc/openstack/{file}")
}

/// Command that runs a script of the plan under dumb-init, which forwards signals and reaps children.
pub(crate) fn script(path: &str) -> Vec<String> {
    command(["dumb-init", "--", "bash", path])
}

pub(crate) fn probe(check: Check, period_seconds: i32, timeout_seconds: i32, failures: i32) -> Probe {
    Probe { check, period_seconds, timeout_seconds, failures }
}

/// Probes of a program without clients: it is ready while a process of this user has a connection to the port.
pub(crate) fn connected_to(port: u16, user: i64) -> Probes {
    connected(&format!(
        "cat /proc/net/tcp* | awk '$4 == \"01\" && $8 == {user} && $3 ~ /:{port:04X}$/ {{ found = 1 }} END {{ exit !found }}'"
    ))
}

/// The same for pods on the host network: only connections of processes in the container count.
pub(crate) fn container_connected_to(port: u16) -> Probes {
    connected(&format!(
        "find /proc/[0-9]*/fd -lname 'socket:*' -printf '%l\\n' 2>/dev/null | cat - /proc/net/tcp* | awk \
'/^socket:/ {{ own[substr($1, 9, length($1) - 9)] }} $4 == \"01\" && $10 in own && $3 ~ /:{port:04X}$/ {{ found = 1 }} END {{ exit !found }}'"
    ))
}

fn connected(script: &str) -> Probes {
    let check = || Check::Command(command(["bash", "-c", script]));
    Probes {
        startup: Some(probe(check(), 3, 5, 200)),
        readiness: Some(probe(check(), 20, 5, 3)),
        liveness: None,
    }
}

pub(crate) fn scratch(name: &'static str, path: &str) -> Mount {
    Mount::Scratch { name, path: path.to_owned() }
}

/// A host path that is mounted at the same path.
pub(crate) fn host(name: &'static str, path: &'static str, kind: HostPath) -> Mount {
    Mount::Host { name, path, on_host: path.to_owned(), kind }
}

/// A host directory that is mounted at the same path and created if missing.
pub(crate) fn host_directory(name: &'static str, path: &'static str) -> Mount {
    host(name, path, HostPath::Directory)
}

/// Workloads of nodes, and their copies for nodes that are leaving.
pub(crate) fn with_leaving(workloads: Vec<Workload>, leaving: &[String]) -> Vec<Workload> {
    let kept: Vec<Workload> = workloads.iter().filter_map(|workload| workload.leaving(leaving)).collect();
    workloads.into_iter().chain(kept).collect()
}

/// The object that owns what its pods create on nodes, for scripts.
pub(crate) fn owner<K>(context: &Context<'_, K>, kind: Kind) -> Variable {
    Variable::text("OWNER", format!("{}/{}/{}", kind.kind, context.namespace, context.name))
}

/// Live file with the nodes that belong to the object. Scripts take over what another object left there.
pub(crate) const CLAIMED_NODES: &str = "claimed-nodes";

pub(crate) fn claimed_nodes<K>(context: &Context<'_, K>) -> String {
    context.inputs.claimed.iter().flat_map(|node| [node.as_str(), "\n"]).collect()
}

/// Scheduling of pods on nodes. Defaults to nodes with the label of compute nodes.
pub(crate) fn on_hypervisors(given: &Scheduling) -> Scheduling {
    let mut scheduling = given.clone();
    if scheduling.node_selector.is_empty() {
        scheduling.node_selector.insert(HYPERVISOR_LABEL.to_owned(), String::new());
    }
    scheduling
}

pub(crate) fn file(file: &str, path: &str) -> Mount {
    Mount::File { file: file.to_owned(), path: path.to_owned() }
}

/// Rule that a cloud has either an existing service or a part.
pub(crate) fn exclusive_rule(existing: &str, field: &str, part: &str, servers: &str) -> (String, String) {
    (
        format!(
            "!has(self.spec.{existing}) || !has(self.spec.{part}) || has(self.spec.{part}.enabled) && !self.spec.{part}.enabled"
        ),
        format!("spec.{existing}.{field} names {servers} and spec.{part} deploys one: remove one of them"),
    )
}

/// Rules that the volumes of a part keep their class and size, even if its block is removed. The rule of the block lets
/// the size grow.
pub(crate) fn volume_rules(part: &str, instead: &str) -> Vec<(String, String)> {
    let block = format!("self.spec.{part}");
    // They do not apply to a part that is disabled or replaced by an existing service.
    let gone =
        format!("has(self.spec.{instead}) || has({block}) && has({block}.enabled) && !{block}.enabled");
    let is_set = |of: &str, field: &str| format!("(has({of}.spec.{part}) && has({of}.spec.{part}.{field}))");
    let value = |of: &str, field: &str| format!("{of}.spec.{part}.{field}");
    let (size, class) = ("storageSize", "storageClass");
    let (now, before) = (is_set("self", class), is_set("oldSelf", class));
    let same = format!("{} == {}", value("self", class), value("oldSelf", class));
    vec![
        (
            format!("{gone} || !{} || {}", is_set("oldSelf", size), is_set("self", size)),
            format!("spec.{part}.{size} cannot be removed: volumes do not shrink to the default size"),
        ),
        (
            format!("{gone} || {now} == {before} && (!{now} || {same})"),
            format!("spec.{part}.{class} cannot be changed: existing volumes keep their storage class"),
        ),
    ]
}
