//! What several services say in the same way.

use openstack_operator_model::common::{
    Common, ContainerSettings, Origin, PodSettings, ResourceAmounts, Resources, Scheduling,
};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::plan::{Check, HostPath, Mount, Probe, Probes, Workload};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Invalid};

use crate::cloud::QUORUM;
use crate::program::Amounts;

pub(crate) mod api;
mod claims;
mod identity;

pub(crate) use claims::*;
pub(crate) use identity::*;

/// Label of nodes that run virtual machines.
const HYPERVISOR_LABEL: &str = "node-role.kubernetes.io/hypervisor";

/// Reference of the image that a component runs: its own, that of the object, or that of the family.
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
    context.site.images.reference(names, &origin.images, &image, origin.release)
}

/// CPU and memory of a component: its own, those of the object, or ours.
pub(crate) fn component_resources(
    settings: &ContainerSettings,
    pods: &PodSettings,
    amounts: Amounts,
) -> Resources {
    resources(&settings.resources.or(&pods.container.resources), amounts)
}

/// Address of a Service inside the cluster.
pub(crate) fn service_host<K>(context: &Context<'_, K>, service: &str) -> String {
    format!("{service}.{}.svc", context.namespace)
}

/// Complete addresses of the pods of a set, for what does not search domains.
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

/// What the user gives, with our amounts where nothing is given; but never a request that is more than its limit, which
/// no pod may have.
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

/// Refuses settings for files that a service does not have: nobody would read them.
pub(crate) fn check_extra_config(common: &Common, files: &[&str]) -> Result<(), Invalid> {
    match common.extra_config.keys().find(|file| !files.contains(&file.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Invalid::new(
            format!("spec.extraConfig.{unknown:?}"),
            format!("names no file of this service: write {}", files.join(" or ")),
        )),
    }
}

pub(crate) fn command<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Starts uWSGI with the settings that a service has for it.
pub(crate) fn uwsgi_command(service: &str) -> Vec<String> {
    command(["uwsgi", "--ini", &format!("/etc/{service}/uwsgi.ini")])
}

/// Asks a service's own check whether its data fits the new image. Its warnings are for people to read, and stop nobody.
pub(crate) fn upgrade_check(service: &str) -> Vec<String> {
    command(["bash", "-c", &format!("{service}-status upgrade check || [ $? = 1 ]")])
}

/// Where containers see a script of the plan.
pub(crate) fn script_path(file: &str) -> String {
    format!("/etc/openstack/{file}")
}

/// A script that is a file of the plan, run so that signals reach it and its children are waited for.
pub(crate) fn script(path: &str) -> Vec<String> {
    command(["dumb-init", "--", "bash", path])
}

pub(crate) fn probe(check: Check, period_seconds: i32, timeout_seconds: i32, failures: i32) -> Probe {
    Probe { check, period_seconds, timeout_seconds, failures }
}

/// Probes of a program that serves nobody directly: ready while a process of this user is connected to a port of others.
pub(crate) fn connected_to(port: u16, user: i64) -> Probes {
    connected(&format!(
        "cat /proc/net/tcp* | awk '$4 == \"01\" && $8 == {user} && $3 ~ /:{port:04X}$/ {{ found = 1 }} END {{ exit !found }}'"
    ))
}

/// The same where others of the same user share the network: only connections of the container's own processes count.
pub(crate) fn connected_itself_to(port: u16) -> Probes {
    connected(&format!(
        "find /proc/[0-9]*/fd -lname 'socket:*' -printf '%l\\n' 2>/dev/null | cat - /proc/net/tcp* | awk \
'/^socket:/ {{ own[substr($1, 9, length($1) - 9)] }} $4 == \"01\" && $10 in own && $3 ~ /:{port:04X}$/ {{ found = 1 }} END {{ exit !found }}'"
    ))
}

fn connected(question: &str) -> Probes {
    let check = || Check::Command(command(["bash", "-c", question]));
    Probes {
        startup: Some(probe(check(), 3, 5, 200)),
        readiness: Some(probe(check(), 20, 5, 3)),
        liveness: None,
    }
}

pub(crate) fn scratch(name: &'static str, path: &str) -> Mount {
    Mount::Scratch { name, path: path.to_owned() }
}

/// A path of the node that is the same inside.
pub(crate) fn host(name: &'static str, path: &'static str, kind: HostPath) -> Mount {
    Mount::Host { name, path, on_host: path.to_owned(), kind }
}

/// A directory of the node that is the same inside, made where it is missing.
pub(crate) fn host_directory(name: &'static str, path: &'static str) -> Mount {
    host(name, path, HostPath::Directory)
}

/// Workloads of nodes, and the same for nodes that cannot be left yet.
pub(crate) fn with_leaving(workloads: Vec<Workload>, leaving: &[String]) -> Vec<Workload> {
    let kept: Vec<Workload> = workloads.iter().filter_map(|workload| workload.leaving(leaving)).collect();
    workloads.into_iter().chain(kept).collect()
}

/// Where pods of nodes run: on nodes that a label calls hypervisors, where a user names no others.
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

/// A rule of a cloud that has either something existing or a part of its own.
pub(crate) fn either(existing: &str, field: &str, part: &str, what: &str) -> (String, String) {
    (
        format!(
            "!has(self.spec.{existing}) || !has(self.spec.{part}) || has(self.spec.{part}.enabled) && !self.spec.{part}.enabled"
        ),
        format!("spec.{existing}.{field} names {what} and spec.{part} deploys one: remove one of them"),
    )
}

/// Rules of a cloud that keep the members of a part from becoming fewer, and its volumes from being changed, whether
/// its block is there or not.
pub(crate) fn keeps_members(part: &str, instead: &str) -> Vec<(String, String)> {
    let block = format!("self.spec.{part}");
    // They do not concern a part that goes, or that something existing takes the place of.
    let gone =
        format!("has(self.spec.{instead}) || has({block}) && has({block}.enabled) && !{block}.enabled");
    let members = |of: &str| {
        let block = format!("{of}.spec.{part}");
        format!(
            "(has({block}) && has({block}.replicas) ? {block}.replicas : ({of}.spec.highAvailability ? {QUORUM} : 1))"
        )
    };
    let smaller = (
        format!("{gone} || {} >= {}", members("self"), members("oldSelf")),
        format!(
            "spec.{part}.replicas cannot be reduced yet: it defaults to {QUORUM} with highAvailability and to 1 without"
        ),
    );
    // The API server knows no bound of what `string` makes of a longer text, and would take the rule for too costly.
    let volume = |field: &str, reason: &str| {
        let is_set = |of: &str| format!("(has({of}.spec.{part}) && has({of}.spec.{part}.{field}))");
        let value = |of: &str| format!("{of}.spec.{part}.{field}");
        let (now, before) = (is_set("self"), is_set("oldSelf"));
        (
            format!("{gone} || {now} == {before} && (!{now} || {} == {})", value("self"), value("oldSelf")),
            format!("spec.{part}.{field} cannot be changed{reason}"),
        )
    };
    vec![
        smaller,
        volume(
            "storageSize",
            " yet: resize the PersistentVolumeClaims if their storage class allows expansion",
        ),
        volume("storageClass", ": existing volumes keep their storage class"),
    ]
}
