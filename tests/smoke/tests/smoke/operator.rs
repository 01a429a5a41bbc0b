//! The operator runs with least privileges, elects one leader, and replaces a deleted one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, PodSpec, PodTemplateSpec, Probe,
    ServiceAccount,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::DeleteParams;
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use openstack_operator_smoke::pod::{container, metadata, restricted};
use openstack_operator_smoke::wait::{POD_START, await_condition};
use openstack_operator_smoke::{PodSecurity, Sandbox, with_namespace};

const NAME: &str = "openstack-operator";
/// A leader that stops releases its Lease, so this is far more than needed.
const SUCCESSION: Duration = Duration::from_mins(1);

#[tokio::test]
async fn the_operator_elects_a_leader_and_a_successor() -> Result<()> {
    with_namespace("operator", PodSecurity::Restricted, async |sandbox| {
        grant_lease(sandbox).await?;
        sandbox.create(&deployment(sandbox.image("operator")?)).await?;
        await_condition(&sandbox.api(), NAME, "to be complete", POD_START, |deployment: &Deployment| {
            is_deployment_completed().matches_object(Some(deployment))
        })
        .await?;
        let first = leader(sandbox, "to have a leader", |_| true).await?;

        let pods = sandbox.api::<k8s_openapi::api::core::v1::Pod>();
        pods.delete(&first, &DeleteParams::default()).await.context("failed to delete the leader")?;
        let second = leader(sandbox, "to have another leader", |holder| holder != first).await?;
        ensure!(second != first, "the deleted pod {first} still leads");
        Ok(())
    })
    .await
}

/// Waits for a suitable holder of the Lease and returns its name.
async fn leader(sandbox: &Sandbox, expectation: &str, suits: impl Fn(&str) -> bool) -> Result<String> {
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    let lease = await_condition(&sandbox.api(), NAME, expectation, SUCCESSION, |lease: &Lease| {
        holder(lease).is_some_and(|holder| !holder.is_empty() && suits(&holder))
    })
    .await?;
    holder(&lease).context("the Lease has no holder")
}

/// Permissions for the election, in the operator's namespace.
async fn grant_lease(sandbox: &Sandbox) -> Result<()> {
    let text = |text: &str| text.to_owned();
    sandbox.create(&ServiceAccount { metadata: metadata(NAME), ..ServiceAccount::default() }).await?;
    let rule = PolicyRule {
        api_groups: Some(vec![text("coordination.k8s.io")]),
        resources: Some(vec![text("leases")]),
        verbs: ["get", "create", "patch"].map(text).into(),
        ..PolicyRule::default()
    };
    sandbox.create(&Role { metadata: metadata(NAME), rules: Some(vec![rule]) }).await?;
    let binding = RoleBinding {
        metadata: metadata(NAME),
        role_ref: RoleRef {
            api_group: Some(text("rbac.authorization.k8s.io")),
            kind: text("Role"),
            name: text(NAME),
        },
        subjects: Some(vec![Subject {
            kind: text("ServiceAccount"),
            name: text(NAME),
            namespace: Some(sandbox.namespace.clone()),
            ..Subject::default()
        }]),
    };
    sandbox.create(&binding).await.map(drop)
}

fn deployment(image: String) -> Deployment {
    let own_name = EnvVar {
        name: "POD_NAME".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "metadata.name".to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let main = Container {
        command: None,
        env: Some(vec![own_name]),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".to_owned()),
                port: IntOrString::Int(8080),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            ..Probe::default()
        }),
        ..container("operator", image, &[])
    };
    // Not the label of an installation, which would compete with the one of a cloud.
    let labelled = metadata("operator-election");
    Deployment {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..labelled.clone() },
        spec: Some(DeploymentSpec {
            replicas: Some(2),
            selector: LabelSelector { match_labels: labelled.labels.clone(), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(labelled),
                spec: Some(PodSpec {
                    service_account_name: Some(NAME.to_owned()),
                    automount_service_account_token: Some(true),
                    termination_grace_period_seconds: Some(30),
                    ..restricted(main)
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}
