//! Conformance: Tempest's tests on the cloud that `up` made, and tables of their results.

mod explanations;
mod pod;
mod results;
mod selection;
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
use selection::Suite;

/// The document with the tables, each between two marks.
pub(crate) const DOCUMENT: &str = "docs/conformance.md";
/// The command that creates or repairs a cloud.
const REMEDY: &str = "run cargo xtask up";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Tests to run.
    #[arg(long, value_enum, default_value_t = Suite::Smoke)]
    suite: Suite,
    /// Write the tables to docs/conformance.md.
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let document = Document::new(&directories.checkout, DOCUMENT);
    if arguments.write {
        document.require_markers(arguments.suite.parts())?;
    }
    // Without the lock `down` could remove the cloud, and two runs would delete each other's objects.
    let _lock = directories.lock()?;
    let settings = Settings::load(directories)?.with_context(|| format!("there is no cluster: {REMEDY}"))?;
    let kubectl = Kubectl::local(directories)?;
    let cloud = ready_cloud(&kubectl)?;
    let tests = arguments.suite.tests(&cloud)?;
    let identity = identity(&kubectl, &cloud)?;
    let log = Log::create(directories, pod::NAME)?;
    let started = Instant::now();
    let run = run_pod(directories, &settings, &kubectl, &identity, &tests, &log)?;
    let mut versions = vec![
        ("openstack-operator".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("OpenStack".to_owned(), RELEASE.to_owned()),
        ("Kubernetes".to_owned(), kubernetes_version(&kubectl)?),
        ("nodes".to_owned(), settings.nodes.to_string()),
    ];
    versions.extend(run.versions.clone());
    let outcomes = run.outcomes();
    let skipped = match arguments.suite {
        Suite::Smoke => table::skipped(&outcomes),
        Suite::Full | Suite::Plugins => table::skipped_by_reason(&outcomes),
    };
    let failed = table::failed(&outcomes, EXPLANATIONS);
    let tables = [table::versions(&versions), table::counts(&outcomes), skipped, failed];
    for (part, table) in arguments.suite.parts().into_iter().zip(&tables) {
        progress::print(&format!("## {part}\n\n{}\n", table.trim()));
        if arguments.write {
            document.write(part, table.trim())?;
        }
    }
    progress::notify(&format!("{} tests in {} s", outcomes.len(), started.elapsed().as_secs()));
    let mut complaints = explanations::complaints(EXPLANATIONS, &outcomes, arguments.suite);
    if !run.removed {
        complaints.push("cleanup failed: the next run repeats it".to_owned());
    }
    for complaint in &complaints {
        progress::notify(complaint);
    }
    if complaints.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    progress::notify(&format!("details are in {}", log.path().display()));
    Ok(ExitCode::FAILURE)
}

/// The cloud, which must be Ready: results of an incomplete cloud have no meaning.
fn ready_cloud(kubectl: &Kubectl) -> Result<Value> {
    let clouds = list(kubectl, KIND)?;
    let [cloud] = clouds.as_slice() else {
        bail!("namespace {NAMESPACE} has {} clouds, and must have one: {REMEDY}", clouds.len());
    };
    let name = cloud["metadata"]["name"].as_str().context("the cloud has no name")?;
    if !is_ready(cloud) {
        bail!("cloud {name} is not ready: {REMEDY}, and wait until it is done");
    }
    Ok(cloud.clone())
}

/// The login of the cloud's administrator.
fn identity(kubectl: &Kubectl, cloud: &Value) -> Result<Identity> {
    let name = cloud["metadata"]["name"].as_str().unwrap_or_default();
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
    let answer = answer.with_context(|| format!("failed to list {kind}: {REMEDY}"))?;
    let mut answer: Value = serde_json::from_str(&answer).context("kubectl answered no JSON")?;
    serde_json::from_value(answer["items"].take()).context("kubectl answered no list")
}

/// Whether the current generation of an object is Ready.
pub(crate) fn is_ready(object: &Value) -> bool {
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

/// Runs the tests in a pod of the cloud's namespace and deletes the pod.
fn run_pod(
    directories: &Directories,
    settings: &Settings,
    kubectl: &Kubectl,
    identity: &Identity,
    tests: &str,
    log: &Log,
) -> Result<Run> {
    let builder = Builder::new(directories);
    let origin = Origin::local(&builder, settings);
    let images = Images { client: origin.reference("client")?, guest: origin.reference("guest")? };
    let manifest = pod::manifest(identity, &settings.addresses, &images, tests)?;
    let path = directories.cluster().join("conformance.json");
    fs::write(&path, manifest.to_string()).with_context(|| format!("failed to write {}", path.display()))?;
    // The pod of an interrupted run would continue and use the objects of this one.
    remove_pod(kubectl, log)?;
    kubectl.apply(Some(NAMESPACE), &path, log)?;
    let run = wait_until("the pod with the tests runs", || has_started(kubectl))
        .with_context(|| format!("see kubectl --namespace {NAMESPACE} describe pod {}", pod::NAME))
        .and_then(|()| follow(kubectl, log));
    remove_pod(kubectl, log)?;
    run
}

fn has_started(kubectl: &Kubectl) -> bool {
    phase(kubectl).is_ok_and(|phase| !matches!(phase.as_str(), "" | "Pending"))
}

fn is_running(kubectl: &Kubectl) -> bool {
    phase(kubectl).is_ok_and(|phase| !matches!(phase.as_str(), "Succeeded" | "Failed"))
}

fn phase(kubectl: &Kubectl) -> Result<String> {
    let arguments = ["--namespace", NAMESPACE, "get", "pod", pod::NAME, "--output=jsonpath={.status.phase}"];
    output(kubectl.query().args(arguments))
}

fn remove_pod(kubectl: &Kubectl, log: &Log) -> Result<()> {
    let objects = [format!("pod/{}", pod::NAME), format!("configmap/{}", pod::NAME)];
    let arguments = ["--namespace", NAMESPACE, "delete", "--ignore-not-found"];
    log.run(kubectl.command().args(arguments).args(objects))
}

/// Shows each test as it ends, until the pod has ended.
fn follow(kubectl: &Kubectl, log: &Log) -> Result<Run> {
    let mut file = OpenOptions::new().append(true).open(log.path())?;
    let mut run = Run::default();
    let mut read = 0;
    // The connection may break during the hours of a full run.
    loop {
        let mut command = kubectl.command();
        command.args(["--namespace", NAMESPACE, "logs", "--follow", pod::NAME]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().context("kubectl has no output")?;
        let before = read;
        for line in BufReader::new(lines).lines().skip(before) {
            let line = line.context("failed to read the log of the pod")?;
            read += 1;
            writeln!(file, "{line}").with_context(|| format!("failed to write {}", log.path().display()))?;
            // Other lines are output of the programs that the pod starts.
            if let Ok(event) = serde_json::from_str::<Event>(&line) {
                show(&event, &run);
                run.add(event);
            }
        }
        child.wait()?;
        if !is_running(kubectl) && read == before {
            break;
        }
    }
    if !run.ended {
        bail!("the tests did not run to their end: the log of the pod is {}", log.path().display());
    }
    Ok(run)
}

/// Prints one line per event.
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
        let document = Document::new(&root, DOCUMENT);
        document.require_markers(
            [Suite::Smoke, Suite::Full, Suite::Plugins].into_iter().flat_map(Suite::parts),
        )?;
        document.require_markers(["proofs"])
    }

    #[test]
    fn only_the_current_generation_of_a_cloud_counts_as_ready() {
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
