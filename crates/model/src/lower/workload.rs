//! Workloads with their Services and disruption budgets.

use k8s_openapi::api::apps::v1::{
    DaemonSetSpec, DaemonSetUpdateStrategy, DeploymentSpec, DeploymentStrategy, RollingUpdateDaemonSet,
    RollingUpdateDeployment, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PodTemplateSpec, ServicePort, ServiceSpec, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{Lowering, Manifest, manifest, pod, value};
use crate::common::TopologySpread;
use crate::kind::{DAEMON_SET, DEPLOYMENT, POD_DISRUPTION_BUDGET, SERVICE, STATEFUL_SET};
use crate::plan::{Claim, Controller, NetworkService, Reach, Workload};

pub(super) fn manifests(lowering: &Lowering<'_>, workload: &Workload) -> Vec<Manifest> {
    let mut manifests: Vec<Manifest> =
        workload.services.iter().map(|service| network_service(lowering, workload, service)).collect();
    // A budget for a single pod would only block drains. Pods of a DaemonSet are not evicted.
    if workload.replicas > 1 && workload.controller != Controller::DaemonSet {
        manifests.push(disruption_budget(lowering, workload));
    }
    manifests.push(controller(lowering, workload));
    manifests
}

fn controller(lowering: &Lowering<'_>, workload: &Workload) -> Manifest {
    let instance = lowering.instance;
    let name = instance.part(workload.suffix.as_deref());
    let mut template = pod::template(lowering, &workload.component, &workload.pod);
    let selector = selector(lowering, workload);
    let (kind, spec) = match &workload.controller {
        Controller::Deployment | Controller::Recreate => {
            (DEPLOYMENT, deployment(workload, selector, template))
        }
        Controller::StatefulSet { claims, volumes_deleted } => {
            if !claims.is_empty() {
                separate(&mut template, workload, &selector);
            }
            let members = workload.services.iter().find(|service| service.reach == Reach::EachPod);
            let service_name = members.map(|service| instance.part(service.suffix.as_deref()));
            let set = StatefulSetSpec {
                replicas: Some(workload.replicas),
                selector,
                service_name,
                template,
                pod_management_policy: Some("Parallel".to_owned()),
                revision_history_limit: Some(3),
                volume_claim_templates: (!claims.is_empty()).then(|| claims.iter().map(claim).collect()),
                persistent_volume_claim_retention_policy: Some(
                    StatefulSetPersistentVolumeClaimRetentionPolicy {
                        when_deleted: Some(if *volumes_deleted { "Delete" } else { "Retain" }.to_owned()),
                        when_scaled: Some("Retain".to_owned()),
                    },
                ),
                ..StatefulSetSpec::default()
            };
            (STATEFUL_SET, value(&set))
        }
        Controller::DaemonSet => {
            if let Some(spec) = &mut template.spec {
                // A DaemonSet has one pod per node.
                spec.topology_spread_constraints = None;
            }
            let rolling =
                RollingUpdateDaemonSet { max_unavailable: Some(IntOrString::Int(1)), max_surge: None };
            let set = DaemonSetSpec {
                selector,
                template,
                update_strategy: Some(DaemonSetUpdateStrategy {
                    type_: Some("RollingUpdate".to_owned()),
                    rolling_update: Some(rolling),
                }),
                revision_history_limit: Some(3),
                ..DaemonSetSpec::default()
            };
            (DAEMON_SET, value(&set))
        }
    };
    let metadata = instance.metadata(&name, Some(&workload.component));
    manifest(kind, &name, &metadata, [("spec", spec)])
}

/// Keeps pods with data on different nodes while there are enough nodes, because a cluster that loses two members at once
/// may lose its quorum. On fewer nodes they still start. A constraint of the user for nodes takes precedence. The number
/// of replicas does not matter, so that more replicas do not restart pods.
fn separate(template: &mut PodTemplateSpec, workload: &Workload, selector: &LabelSelector) {
    let is_chosen = |spread: &TopologySpread| spread.topology_key == pod::HOSTNAME;
    let Some(spec) = &mut template.spec else { return };
    if workload.pod.scheduling.topology_spread.iter().any(is_chosen) {
        return;
    }
    let constraints = spec.topology_spread_constraints.get_or_insert_default();
    constraints.retain(|constraint| constraint.topology_key != pod::HOSTNAME);
    constraints.push(TopologySpreadConstraint {
        max_skew: 1,
        topology_key: pod::HOSTNAME.to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        label_selector: Some(selector.clone()),
        // A node that no member can run on must not count as an empty one.
        node_taints_policy: Some("Honor".to_owned()),
        ..TopologySpreadConstraint::default()
    });
}

fn deployment(workload: &Workload, selector: LabelSelector, template: PodTemplateSpec) -> Value {
    let strategy = if workload.controller == Controller::Recreate {
        DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }
    } else {
        // A new pod is ready before an old one stops, even with one replica.
        DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(1)),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        }
    };
    value(&DeploymentSpec {
        replicas: Some(workload.replicas),
        selector,
        strategy: Some(strategy),
        template,
        revision_history_limit: Some(3),
        ..DeploymentSpec::default()
    })
}

fn claim(claim: &Claim) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta { name: Some(claim.name.to_owned()), ..ObjectMeta::default() },
        spec: Some(super::volume::claim_spec(&claim.size, claim.class.as_ref(), "ReadWriteOnce")),
        ..PersistentVolumeClaim::default()
    }
}

fn selector(lowering: &Lowering<'_>, workload: &Workload) -> LabelSelector {
    let labels = lowering.instance.selector(&workload.component);
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}

fn network_service(lowering: &Lowering<'_>, workload: &Workload, service: &NetworkService) -> Manifest {
    let instance = lowering.instance;
    let name = instance.part(service.suffix.as_deref());
    let mut selector = instance.selector(&workload.component);
    let is_headless = service.reach == Reach::EachPod;
    let mut metadata = instance.metadata(&name, Some(&workload.component));
    let mut external = ServiceSpec::default();
    match &service.reach {
        Reach::Cluster | Reach::EachPod => {}
        Reach::OnePod(pod) => {
            selector.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod.clone());
        }
        Reach::LoadBalancer { annotations } => {
            metadata.annotations = (!annotations.is_empty()).then(|| annotations.clone());
            external.type_ = Some("LoadBalancer".to_owned());
            external.external_traffic_policy = Some("Local".to_owned());
        }
    }
    let ports = service.ports.iter().map(|port| ServicePort {
        name: Some(port.name.to_owned()),
        port: i32::from(port.number),
        target_port: Some(IntOrString::Int(i32::from(port.number))),
        protocol: Some(port.protocol.name().to_owned()),
        ..ServicePort::default()
    });
    let spec = ServiceSpec {
        cluster_ip: is_headless.then(|| "None".to_owned()),
        publish_not_ready_addresses: is_headless.then_some(true),
        selector: Some(selector),
        ports: Some(ports.collect()),
        ..external
    };
    manifest(SERVICE, &name, &metadata, [("spec", value(&spec))])
}

fn disruption_budget(lowering: &Lowering<'_>, workload: &Workload) -> Manifest {
    let instance = lowering.instance;
    let name = instance.part(workload.suffix.as_deref());
    let policy = match workload.controller {
        Controller::Deployment | Controller::Recreate | Controller::DaemonSet => "AlwaysAllow",
        // Unready members of a cluster may still hold data.
        Controller::StatefulSet { .. } => "IfHealthyBudget",
    };
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(selector(lowering, workload)),
        unhealthy_pod_eviction_policy: Some(policy.to_owned()),
        ..PodDisruptionBudgetSpec::default()
    };
    let metadata = instance.metadata(&name, Some(&workload.component));
    manifest(POD_DISRUPTION_BUDGET, &name, &metadata, [("spec", value(&spec))])
}
