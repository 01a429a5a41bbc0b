//! Pods: security, scheduling, and volumes derived from the mounts of containers.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Lowering, SECRETS_ANNOTATION, addition, value};
use crate::common::{ResourceAmounts, Resources, Scheme, Toleration, TopologySpread};
use crate::name;
use crate::plan::{Check, Container, Host, HostPath, Mount, Pod, Privilege, Probe, Variable, VariableValue};

/// Label with which pods are spread over nodes.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) fn template(lowering: &Lowering<'_>, component: &str, pod: &Pod) -> core::PodTemplateSpec {
    let spec = core::PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(security(pod)),
        init_containers: (!pod.setup.is_empty()).then(|| pod.setup.iter().map(container).collect()),
        containers: pod.containers.iter().map(container).collect(),
        volumes: volumes(lowering, pod),
        host_network: (pod.host != Host::Isolated).then_some(true),
        host_pid: (pod.host == Host::NetworkAndProcesses).then_some(true),
        // Otherwise the pod uses the DNS of the node, which does not resolve Services.
        dns_policy: (pod.host != Host::Isolated).then(|| "ClusterFirstWithHostNet".to_owned()),
        termination_grace_period_seconds: Some(pod.grace_seconds),
        node_selector: (!pod.scheduling.node_selector.is_empty())
            .then(|| pod.scheduling.node_selector.clone()),
        affinity: (!pod.only_on.is_empty()).then(|| only_on(&pod.only_on)),
        tolerations: (!pod.scheduling.tolerations.is_empty())
            .then(|| pod.scheduling.tolerations.iter().map(toleration).collect()),
        topology_spread_constraints: Some(spread(lowering, component, &pod.scheduling.topology_spread)),
        priority_class_name: pod.scheduling.priority_class_name.clone(),
        image_pull_secrets: (!lowering.plan.pull_secrets.is_empty()).then(|| {
            let reference = |name: &String| core::LocalObjectReference { name: name.clone() };
            lowering.plan.pull_secrets.iter().map(reference).collect()
        }),
        ..core::PodSpec::default()
    };
    let metadata = ObjectMeta {
        labels: Some(lowering.instance.labels(Some(component))),
        annotations: secrets_revision(lowering, pod)
            .map(|revision| BTreeMap::from([(SECRETS_ANNOTATION.to_owned(), revision)])),
        ..ObjectMeta::default()
    };
    let mut template = core::PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) };
    addition::apply(&mut template, component, &lowering.plan.additions);
    template
}

/// Match the name of the node, because its hostname label may differ.
fn only_on(nodes: &[String]) -> core::Affinity {
    let term = |node: &String| core::NodeSelectorTerm {
        match_fields: Some(vec![core::NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.clone()]),
        }]),
        ..core::NodeSelectorTerm::default()
    };
    let required = core::NodeSelector { node_selector_terms: nodes.iter().map(term).collect() };
    core::Affinity {
        node_affinity: Some(core::NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            ..core::NodeAffinity::default()
        }),
        ..core::Affinity::default()
    }
}

/// Hash of all Secrets that the pods read only at start, so that a changed value restarts the pods.
fn secrets_revision(lowering: &Lowering<'_>, pod: &Pod) -> Option<String> {
    let mut revisions = BTreeMap::new();
    for container in pod.setup.iter().chain(&pod.containers) {
        for secret in container.rolling_secrets() {
            if let Some(facts) = lowering.observed.secrets.get(secret) {
                revisions.insert(secret, &facts.revision);
            }
        }
    }
    (!revisions.is_empty()).then(|| {
        let text = revisions.iter().fold(String::new(), |mut text, (secret, revision)| {
            let _ = writeln!(text, "{secret}={revision}");
            text
        });
        name::hash(text)
    })
}

fn security(pod: &Pod) -> core::PodSecurityContext {
    let mut containers = pod.setup.iter().chain(&pod.containers);
    let root = containers.any(|container| is_root(container.privilege));
    core::PodSecurityContext {
        run_as_non_root: (!root).then_some(true),
        run_as_user: Some(pod.user),
        run_as_group: Some(pod.user),
        fs_group: Some(pod.user),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(core::SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..core::SeccompProfile::default()
        }),
        sysctls: (pod.host == Host::Isolated).then(|| KEEPALIVE.map(sysctl).to_vec()),
        ..core::PodSecurityContext::default()
    }
}

/// Idle connections to a peer that vanished end within eight seconds: clients use no connection to a lost server, and servers
/// release the locks of lost clients. Kubernetes counts these settings as safe since 1.29. A pod in the network of its
/// node cannot have its own.
const KEEPALIVE: [(&str, &str); 3] = [
    ("net.ipv4.tcp_keepalive_intvl", "2"),
    ("net.ipv4.tcp_keepalive_probes", "2"),
    ("net.ipv4.tcp_keepalive_time", "4"),
];

fn sysctl((name, value): (&str, &str)) -> core::Sysctl {
    core::Sysctl { name: name.to_owned(), value: value.to_owned() }
}

fn is_root(privilege: Privilege) -> bool {
    matches!(privilege, Privilege::Root(_) | Privilege::NodeRoot)
}

fn container_security(privilege: Privilege) -> core::SecurityContext {
    let root = is_root(privilege).then_some(0);
    if let Privilege::Node | Privilege::NodeRoot = privilege {
        return core::SecurityContext {
            privileged: Some(true),
            run_as_user: root,
            run_as_group: root,
            ..core::SecurityContext::default()
        };
    }
    let add = match privilege {
        Privilege::Root(capabilities) if !capabilities.is_empty() => {
            Some(capabilities.iter().map(|&capability| capability.to_owned()).collect())
        }
        _ => None,
    };
    core::SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(core::Capabilities { drop: Some(vec!["ALL".to_owned()]), add }),
        read_only_root_filesystem: Some(true),
        run_as_user: root,
        run_as_group: root,
        ..core::SecurityContext::default()
    }
}

fn container(container: &Container) -> core::Container {
    core::Container {
        name: container.name.to_owned(),
        image: Some(container.image.clone()),
        command: Some(container.command.clone()),
        env: (!container.environment.is_empty())
            .then(|| container.environment.iter().map(variable).collect()),
        volume_mounts: (!container.mounts.is_empty()).then(|| container.mounts.iter().map(mount).collect()),
        ports: (!container.ports.is_empty()).then(|| {
            let port = |port: &crate::plan::Port| core::ContainerPort {
                name: Some(port.name.to_owned()),
                container_port: i32::from(port.number),
                protocol: Some(port.protocol.name().to_owned()),
                ..core::ContainerPort::default()
            };
            container.ports.iter().map(port).collect()
        }),
        startup_probe: container.probes.startup.as_ref().map(probe),
        readiness_probe: container.probes.readiness.as_ref().map(probe),
        liveness_probe: container.probes.liveness.as_ref().map(probe),
        lifecycle: container.before_stop.as_ref().map(|command| core::Lifecycle {
            pre_stop: Some(core::LifecycleHandler {
                exec: Some(core::ExecAction { command: Some(command.clone()) }),
                ..core::LifecycleHandler::default()
            }),
            ..core::Lifecycle::default()
        }),
        resources: resources(&container.resources),
        security_context: Some(container_security(container.privilege)),
        // Conditions report the last output of a program; most programs write it only to their log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..core::Container::default()
    }
}

fn resources(resources: &Resources) -> Option<core::ResourceRequirements> {
    let amounts = |amounts: &ResourceAmounts| {
        let pairs = [("cpu", &amounts.cpu), ("memory", &amounts.memory)];
        let given: BTreeMap<String, Quantity> = pairs
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount.clone()?))))
            .collect();
        (!given.is_empty()).then_some(given)
    };
    let (requests, limits) = (amounts(&resources.requests), amounts(&resources.limits));
    (requests.is_some() || limits.is_some()).then(|| core::ResourceRequirements {
        requests,
        limits,
        ..core::ResourceRequirements::default()
    })
}

fn variable(variable: &Variable) -> core::EnvVar {
    let (value, source) = match &variable.value {
        VariableValue::Text(text) => (Some(text.clone()), None),
        VariableValue::Secret(key) => {
            let secret = core::SecretKeySelector {
                name: key.secret.clone(),
                key: key.key.clone(),
                ..core::SecretKeySelector::default()
            };
            (None, Some(core::EnvVarSource { secret_key_ref: Some(secret), ..core::EnvVarSource::default() }))
        }
        VariableValue::Field(path) => {
            let field = core::ObjectFieldSelector { field_path: (*path).to_owned(), api_version: None };
            (None, Some(core::EnvVarSource { field_ref: Some(field), ..core::EnvVarSource::default() }))
        }
    };
    core::EnvVar { name: variable.name.clone(), value, value_from: source }
}

fn probe(probe: &Probe) -> core::Probe {
    let mut lowered = core::Probe {
        period_seconds: Some(probe.period_seconds),
        timeout_seconds: Some(probe.timeout_seconds),
        failure_threshold: Some(probe.failures),
        ..core::Probe::default()
    };
    match &probe.check {
        Check::Http { scheme, path, port } => {
            lowered.http_get = Some(core::HTTPGetAction {
                path: Some((*path).to_owned()),
                port: IntOrString::Int(i32::from(*port)),
                // HTTP is the default.
                scheme: (*scheme == Scheme::Https).then(|| "HTTPS".to_owned()),
                ..core::HTTPGetAction::default()
            });
        }
        Check::Connect { port } => {
            let port = IntOrString::Int(i32::from(*port));
            lowered.tcp_socket = Some(core::TCPSocketAction { port, host: None });
        }
        Check::Command(command) => {
            lowered.exec = Some(core::ExecAction { command: Some(command.clone()) });
        }
    }
    lowered
}

const ANNOTATIONS_VOLUME: &str = "pod-information";

fn volume_name(mount: &Mount) -> String {
    match mount {
        Mount::File { file, .. } => format!("file-{}", name::slug(file)),
        Mount::Secret { secret, .. } | Mount::SecretFile { secret, .. } => {
            name::part("secret", &name::slug(secret))
        }
        Mount::Scratch { name, .. }
        | Mount::Claim { name, .. }
        | Mount::Volume { name, .. }
        | Mount::Host { name, .. } => (*name).to_owned(),
        Mount::LiveFiles { .. } => "live".to_owned(),
        Mount::Annotations { .. } => ANNOTATIONS_VOLUME.to_owned(),
    }
}

fn mount(mount: &Mount) -> core::VolumeMount {
    let (path, sub_path, read_only) = match mount {
        Mount::File { file: sub_path, path } | Mount::SecretFile { key: sub_path, path, .. } => {
            (path.as_str(), Some(sub_path.clone()), true)
        }
        Mount::Secret { path, .. } | Mount::Annotations { path } | Mount::LiveFiles { path } => {
            (path.as_str(), None, true)
        }
        Mount::Scratch { path, .. } | Mount::Claim { path, .. } | Mount::Volume { path, .. } => {
            (path.as_str(), None, false)
        }
        Mount::Host { path, .. } => (*path, None, false),
    };
    let propagation = match mount {
        Mount::Host { kind: HostPath::HostToContainer, .. } => Some("HostToContainer".to_owned()),
        Mount::Host { kind: HostPath::Bidirectional, .. } => Some("Bidirectional".to_owned()),
        _ => None,
    };
    core::VolumeMount {
        name: volume_name(mount),
        mount_path: path.to_owned(),
        sub_path,
        mount_propagation: propagation,
        read_only: read_only.then_some(true),
        ..core::VolumeMount::default()
    }
}

fn volumes(lowering: &Lowering<'_>, pod: &Pod) -> Option<Vec<core::Volume>> {
    let mounts = pod.setup.iter().chain(&pod.containers).flat_map(|container| &container.mounts);
    // A StatefulSet creates the volumes of its claims.
    let own = mounts.filter(|mount| !matches!(mount, Mount::Claim { .. }));
    let volumes: BTreeMap<String, core::Volume> =
        own.map(|mount| (volume_name(mount), volume(lowering, mount))).collect();
    (!volumes.is_empty()).then(|| volumes.into_values().collect())
}

fn volume(lowering: &Lowering<'_>, mount: &Mount) -> core::Volume {
    let config_map = |name: String| core::ConfigMapVolumeSource {
        name,
        default_mode: Some(0o444),
        ..core::ConfigMapVolumeSource::default()
    };
    let mut volume = core::Volume { name: volume_name(mount), ..core::Volume::default() };
    match mount {
        Mount::Claim { .. } => {}
        Mount::File { file, .. } => {
            volume.config_map = Some(config_map(lowering.files.get(file).cloned().unwrap_or_default()));
        }
        Mount::LiveFiles { .. } => {
            volume.config_map = Some(config_map(super::config::live_name(lowering.instance)));
        }
        Mount::Secret { secret, .. } | Mount::SecretFile { secret, .. } => {
            volume.secret = Some(core::SecretVolumeSource {
                secret_name: Some(secret.clone()),
                default_mode: Some(0o440),
                ..core::SecretVolumeSource::default()
            });
        }
        Mount::Volume { name, .. } => {
            volume.persistent_volume_claim = Some(core::PersistentVolumeClaimVolumeSource {
                claim_name: lowering.instance.part(Some(name)),
                read_only: None,
            });
        }
        Mount::Host { on_host, kind, .. } => {
            let type_ = match kind {
                HostPath::Directory | HostPath::HostToContainer | HostPath::Bidirectional => {
                    "DirectoryOrCreate"
                }
                HostPath::Existing => "Directory",
                HostPath::Device => "CharDevice",
            };
            volume.host_path =
                Some(core::HostPathVolumeSource { path: on_host.clone(), type_: Some(type_.to_owned()) });
        }
        Mount::Scratch { .. } => volume.empty_dir = Some(core::EmptyDirVolumeSource::default()),
        Mount::Annotations { .. } => volume.downward_api = Some(annotations()),
    }
    volume
}

fn annotations() -> core::DownwardAPIVolumeSource {
    let field =
        core::ObjectFieldSelector { field_path: "metadata.annotations".to_owned(), api_version: None };
    let file = core::DownwardAPIVolumeFile {
        path: "annotations".to_owned(),
        field_ref: Some(field),
        ..core::DownwardAPIVolumeFile::default()
    };
    core::DownwardAPIVolumeSource { items: Some(vec![file]), ..core::DownwardAPIVolumeSource::default() }
}

fn toleration(toleration: &Toleration) -> core::Toleration {
    let text = |part: &dyn Fn() -> serde_json::Value| part().as_str().map(str::to_owned);
    core::Toleration {
        key: toleration.key.clone(),
        operator: text(&|| value(&toleration.operator)),
        value: toleration.value.clone(),
        effect: text(&|| value(&toleration.effect)),
        toleration_seconds: toleration.toleration_seconds,
    }
}

fn spread(
    lowering: &Lowering<'_>,
    component: &str,
    wanted: &[TopologySpread],
) -> Vec<core::TopologySpreadConstraint> {
    let by_node = TopologySpread {
        topology_key: HOSTNAME.to_owned(),
        max_skew: 1,
        when_unsatisfiable: crate::common::WhenUnsatisfiable::ScheduleAnyway,
    };
    let wanted = if wanted.is_empty() { std::slice::from_ref(&by_node) } else { wanted };
    wanted
        .iter()
        .map(|spread| core::TopologySpreadConstraint {
            max_skew: spread.max_skew,
            topology_key: spread.topology_key.clone(),
            when_unsatisfiable: value(&spread.when_unsatisfiable).as_str().unwrap_or_default().to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(lowering.instance.selector(component)),
                ..LabelSelector::default()
            }),
            ..core::TopologySpreadConstraint::default()
        })
        .collect()
}
