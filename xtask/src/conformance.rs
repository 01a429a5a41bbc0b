//! Conformance: Tempest's smoke tests against the cloud that `up` made, and tables of what came out.

mod explanations;
mod pod;
mod results;
mod table;

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::cloud::{KIND, NAMESPACE};
use crate::cluster::settings::Settings;
use crate::command::{Log, output, wait_until};
use crate::directories::Directories;
use crate::document::Document;
use crate::images::{Builder, RELEASE, origin::Origin};
use crate::kubectl::Kubectl;
use crate::progress;
use explanations::EXPLANATIONS;
use pod::{Identity, Images};
use results::{Event, Run, Verdict, plain};

/// The document that shows the tables, each between marks of its own.
const DOCUMENT: &str = "docs/conformance.md";
/// The tables in the order in which they are printed.
const PARTS: [&str; 4] = ["versions", "counts", "skipped", "failed"];
/// What makes a cloud, or brings one that is not well back.
const REMEDY: &str = "run cargo xtask up";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Write the tables into docs/conformance.md too.
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let document = Document::new(&directories.checkout, DOCUMENT);
    if arguments.write {
        document.require_markers(PARTS)?;
    }
    // Nobody may take the cloud away meanwhile, and two runs would remove what the other has made.
    let _lock = directories.lock()?;
    let settings = Settings::load(directories)?.with_context(|| format!("there is no cluster: {REMEDY}"))?;
    let kubectl = Kubectl::local(directories)?;
    let identity = identity(&kubectl)?;
    let log = Log::create(directories, pod::NAME)?;
    let started = Instant::now();
    let run = run_pod(directories, &settings, &kubectl, &identity, &log)?;
    let mut versions = vec![
        ("openstack-operator".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("OpenStack".to_owned(), RELEASE.to_owned()),
        ("Kubernetes".to_owned(), kubernetes_version(&kubectl)?),
        ("nodes".to_owned(), settings.nodes.to_string()),
    ];
    versions.extend(run.versions.clone());
    let outcomes = run.outcomes();
    let tables = [
        table::versions(&versions),
        table::counts(&outcomes),
        table::skipped(&outcomes),
        table::failed(&outcomes, EXPLANATIONS),
    ];
    for (part, table) in PARTS.into_iter().zip(&tables) {
        progress::print(&format!("## {part}\n\n{}\n", table.trim()));
        if arguments.write {
            document.write(part, table.trim())?;
        }
    }
    progress::notify(&format!("{} tests in {} s", outcomes.len(), started.elapsed().as_secs()));
    let mut complaints = explanations::complaints(EXPLANATIONS, &outcomes);
    if !run.removed {
        complaints.push("not all that the tests made could be removed: the next run tries again".to_owned());
    }
    for complaint in &complaints {
        progress::notify(complaint);
    }
    if complaints.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    progress::notify(&format!("what failed and how is in {}", log.path().display()));
    Ok(ExitCode::FAILURE)
}

/// The administrator of the cloud, which must be well: tests of half a cloud say nothing.
fn identity(kubectl: &Kubectl) -> Result<Identity> {
    let clouds = list(kubectl, KIND)?;
    let [cloud] = clouds.as_slice() else {
        bail!("namespace {NAMESPACE} has {} clouds, and must have one: {REMEDY}", clouds.len());
    };
    let name = cloud["metadata"]["name"].as_str().context("the cloud has no name")?;
    if !is_ready(cloud) {
        bail!("cloud {name} is not ready: {REMEDY}, and wait until it is done");
    }
    let keystone = format!("{name}-keystone");
    let found = list(kubectl, "keystones.openstack.k8s.io")?;
    let found = found.iter().find(|object| object["metadata"]["name"] == *keystone);
    let identity = found.and_then(|object| object.pointer("/status/provides/identity"));
    let identity =
        identity.with_context(|| format!("Keystone {keystone} names no administrator: {REMEDY}"))?;
    serde_json::from_value(identity.clone()).with_context(|| format!("Keystone {keystone} says {identity}"))
}

/// Objects of a kind in the cloud's namespace.
fn list(kubectl: &Kubectl, kind: &str) -> Result<Vec<Value>> {
    let arguments = ["--namespace", NAMESPACE, "get", kind, "--output=json"];
    let answer = output(kubectl.query().args(arguments));
    let answer = answer.with_context(|| format!("the cluster does not tell of clouds: {REMEDY}"))?;
    let mut answer: Value = serde_json::from_str(&answer).context("kubectl answered no JSON")?;
    serde_json::from_value(answer["items"].take()).context("kubectl answered no list")
}

/// Whether an object is Ready as it is written now.
fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn kubernetes_version(kubectl: &Kubectl) -> Result<String> {
    let answer = output(kubectl.query().args(["version", "--output=json"]))?;
    let answer: Value = serde_json::from_str(&answer).context("kubectl answered no JSON")?;
    let version = answer["serverVersion"]["gitVersion"].as_str();
    version.map(ToOwned::to_owned).context("the API server names no version")
}

/// Runs the tests in a pod of the cloud's namespace and removes the pod, whatever came out.
fn run_pod(
    directories: &Directories,
    settings: &Settings,
    kubectl: &Kubectl,
    identity: &Identity,
    log: &Log,
) -> Result<Run> {
    let builder = Builder::new(directories);
    let origin = Origin::local(&builder, settings);
    let images = Images { client: origin.reference("client")?, guest: origin.reference("guest")? };
    let manifest = pod::manifest(identity, &settings.addresses, &images)?;
    let path = directories.cluster().join("conformance.json");
    fs::write(&path, manifest.to_string()).with_context(|| format!("failed to write {}", path.display()))?;
    // One that an interrupted run left would go on, and use what this one makes.
    remove_pod(kubectl, log)?;
    kubectl.apply(Some(NAMESPACE), &path, log)?;
    let run = wait_until("the pod with the tests runs", || has_started(kubectl))
        .with_context(|| format!("see kubectl --namespace {NAMESPACE} describe pod {}", pod::NAME))
        .and_then(|()| follow(kubectl, log));
    remove_pod(kubectl, log)?;
    run
}

fn has_started(kubectl: &Kubectl) -> bool {
    let arguments = ["--namespace", NAMESPACE, "get", "pod", pod::NAME, "--output=jsonpath={.status.phase}"];
    output(kubectl.query().args(arguments)).is_ok_and(|phase| !matches!(phase.as_str(), "" | "Pending"))
}

fn remove_pod(kubectl: &Kubectl, log: &Log) -> Result<()> {
    let objects = [format!("pod/{}", pod::NAME), format!("configmap/{}", pod::NAME)];
    let arguments = ["--namespace", NAMESPACE, "delete", "--ignore-not-found"];
    log.run(kubectl.command().args(arguments).args(objects))
}

/// Shows each test as it ends, until the pod has told everything.
fn follow(kubectl: &Kubectl, log: &Log) -> Result<Run> {
    let mut file = OpenOptions::new().append(true).open(log.path())?;
    let mut command = kubectl.command();
    command.args(["--namespace", NAMESPACE, "logs", "--follow", pod::NAME]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = child.stdout.take().context("kubectl has no output")?;
    let mut run = Run::default();
    for line in BufReader::new(lines).lines() {
        let line = line.context("failed to read what the pod says")?;
        writeln!(file, "{line}").with_context(|| format!("failed to write {}", log.path().display()))?;
        // What is no event is the chatter of a program that the pod has started; it stays in the log.
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            show(&event, &run);
            run.add(event);
        }
    }
    child.wait()?;
    if !run.ended {
        bail!("the tests did not run to their end: what the pod said is in {}", log.path().display());
    }
    Ok(run)
}

/// One line for each thing that happens.
fn show(event: &Event, run: &Run) {
    match event {
        Event::Step { text } => progress::notify(text),
        Event::Selected { tests } => progress::notify(&format!("{} tests", tests.len())),
        Event::Result(result) => {
            let mark = match result.verdict {
                Verdict::Passed => '✓',
                Verdict::Failed => '✗',
                Verdict::Skipped => '-',
            };
            let number = run.results.len() + 1;
            progress::notify(&format!("  {mark} {number:>3} {} {:.1}s", plain(&result.test), result.seconds));
        }
        Event::Versions { .. } | Event::Ended | Event::Removed => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_document_has_a_place_for_every_table() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Document::new(&root, DOCUMENT).require_markers(PARTS)
    }

    #[test]
    fn a_cloud_is_ready_as_it_is_written_now() {
        let cloud = |status: &str, generation: u32| {
            json!({
                "metadata": { "generation": 2 },
                "status": {
                    "observedGeneration": generation,
                    "conditions": [{ "type": "Available", "status": "True" }, { "type": "Ready", "status": status }],
                },
            })
        };
        assert!(is_ready(&cloud("True", 2)));
        assert!(!is_ready(&cloud("True", 1)));
        assert!(!is_ready(&cloud("False", 2)));
        assert!(!is_ready(&json!({})));
    }
}
