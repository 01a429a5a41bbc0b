//! `pause`, `resume` and `reconcile`: annotations on objects that the operator reacts to.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Client, Error as KubeError};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::Kind;
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu, ensure};

use crate::check::answer::Unreadable;
use crate::check::gather;
use crate::cluster::{self, ClusterArguments, api};
use crate::output;
use crate::tree::select_below;

/// Any change of an annotation triggers a reconcile of the object; this one has no other meaning.
const RECONCILE_ANNOTATION: &str = "openstack.k8s.io/reconcile";
const MANAGER: &str = "openstack-operator-cli";

/// Stop the operator's work on an object. Its pods keep running, and deletion still works.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator pause cloud -n openstack --with-parts
  openstack-operator pause keystone/cloud-keystone -n openstack")]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    target: Target,
    /// Also the objects below it, e.g. the services of a cloud.
    #[arg(long)]
    with_parts: bool,
}

/// Resume the operator's work on an object that was paused.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator resume cloud -n openstack --with-parts
  openstack-operator resume keystone/cloud-keystone -n openstack")]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    target: Target,
    /// Also the objects below it, e.g. the services of a cloud.
    #[arg(long)]
    with_parts: bool,
}

/// Reconcile an object and the objects below it now, without waiting for a retry or the next drift check.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator reconcile cloud -n openstack
  openstack-operator reconcile keystone/cloud-keystone -n openstack")]
pub(crate) struct ReconcileArguments {
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct Target {
    /// Object, e.g. cloud or keystone/cloud-keystone.
    #[arg(value_name = "[KIND/]NAME")]
    object: String,
    /// Namespace of the object [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display("{reason}"))]
    List { reason: Unreadable },
    #[snafu(display("there is no object {object} in namespace {namespace}"))]
    Unknown { object: String, namespace: String },
    #[snafu(display("several objects are named {object}: write {choices}"))]
    Ambiguous { object: String, choices: String },
    #[snafu(display("forbidden: cannot patch {} {} in namespace {}", key.kind.plural, key.name, key.namespace))]
    Forbidden { key: Key },
    #[snafu(display("failed to patch {key}"))]
    Patch {
        key: Key,
        #[snafu(source(from(KubeError, Box::new)))]
        source: Box<KubeError>,
    },
}

pub(crate) async fn pause(arguments: &PauseArguments) -> Result<ExitCode, Error> {
    let parts = if arguments.with_parts { Parts::Included } else { Parts::Excluded };
    annotate(&arguments.target, parts, PAUSE_ANNOTATION, &json!("true"), "paused").await
}

pub(crate) async fn resume(arguments: &ResumeArguments) -> Result<ExitCode, Error> {
    let parts = if arguments.with_parts { Parts::Included } else { Parts::Excluded };
    annotate(&arguments.target, parts, PAUSE_ANNOTATION, &Value::Null, "resumed").await
}

pub(crate) async fn reconcile(arguments: &ReconcileArguments) -> Result<ExitCode, Error> {
    let now = json!(Timestamp::now().to_string());
    annotate(&arguments.target, Parts::Included, RECONCILE_ANNOTATION, &now, "reconcile requested").await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Included,
    Excluded,
}

async fn annotate(
    target: &Target,
    parts: Parts,
    annotation: &str,
    value: &Value,
    outcome: &str,
) -> Result<ExitCode, Error> {
    let client = target.cluster.client().await?;
    let namespace = target.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let objects =
        gather::objects(&client, Some(&namespace)).await.map_err(|reason| Error::List { reason })?;
    let chosen = choose(&objects, &target.object, &namespace)?.clone();
    let keys = match parts {
        Parts::Included => select_below(&objects, &[chosen]),
        Parts::Excluded => vec![chosen],
    };
    for key in keys {
        patch(&client, &key, annotation, value).await?;
        output::print(&format!("{key}: {outcome}\n"))?;
        let found = objects.iter().find(|(other, _)| *other == key);
        if annotation == RECONCILE_ANNOTATION && found.is_some_and(|(_, object)| is_paused(object)) {
            output::remark(&format!("note: {key} is paused: the operator does nothing until it is resumed"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_paused(object: &DynamicObject) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(PAUSE_ANNOTATION)).is_some_and(|value| value == "true")
}

async fn patch(client: &Client, key: &Key, annotation: &str, value: &Value) -> Result<(), Error> {
    let body = json!({ "metadata": { "annotations": { annotation: value } } });
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api(client, key.kind, Some(&key.namespace))
        .patch_metadata(&key.name, &parameters, &Patch::Merge(body))
        .await;
    match patched {
        Err(KubeError::Api(status)) if status.code == 403 => ForbiddenSnafu { key: key.clone() }.fail(),
        patched => patched.map(drop).context(PatchSnafu { key: key.clone() }),
    }
}

/// The object that `[KIND/]NAME` names. A kind may be written as kubectl accepts it: `keystone`, `keystones`, `Keystone`.
fn choose<'a>(objects: &'a [(Key, DynamicObject)], written: &str, namespace: &str) -> Result<&'a Key, Error> {
    let (kind, name) = written.split_once('/').map_or((None, written), |(kind, name)| (Some(kind), name));
    let is_kind = |known: Kind| {
        kind.is_none_or(|kind| {
            kind.eq_ignore_ascii_case(known.kind) || kind.eq_ignore_ascii_case(known.plural)
        })
    };
    let matching: Vec<&Key> =
        objects.iter().map(|(key, _)| key).filter(|key| key.name == name && is_kind(key.kind)).collect();
    let choices: Vec<String> =
        matching.iter().map(|key| format!("{}/{}", key.kind.kind.to_lowercase(), key.name)).collect();
    ensure!(matching.len() < 2, AmbiguousSnafu { object: written, choices: choices.join(" or ") });
    matching
        .first()
        .copied()
        .ok_or_else(|| Error::Unknown { object: written.to_owned(), namespace: namespace.to_owned() })
}

#[cfg(test)]
mod tests {
    use openstack_operator_services::of_kind;

    use super::*;

    fn object(kind: &str, name: &str) -> (Key, DynamicObject) {
        let key =
            Key { kind: of_kind(kind).unwrap().kind(), namespace: "n".to_owned(), name: name.to_owned() };
        (key, serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap())
    }

    #[test]
    fn an_object_is_named_with_or_without_its_kind() {
        let objects = [object("Keystone", "a"), object("MariaDB", "a"), object("MariaDB", "b")];
        let chosen = |written: &str| {
            choose(&objects, written, "n").map(ToString::to_string).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("b").as_deref(), Ok("MariaDB n/b"));
        assert_eq!(chosen("mariadbs/a").as_deref(), Ok("MariaDB n/a"));
        assert_eq!(chosen("Keystone/a").as_deref(), Ok("Keystone n/a"));
        assert_eq!(chosen("a").unwrap_err(), "several objects are named a: write keystone/a or mariadb/a");
        assert_eq!(chosen("keystone/b").unwrap_err(), "there is no object keystone/b in namespace n");
    }
}
