//! The catalogue: proofs that services work, and a table of their results with the hashes they were obtained with.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::cloud::{KIND, NAMESPACE};
use crate::command::output;
use crate::conformance::{DOCUMENT, is_ready};
use crate::directories::Directories;
use crate::document::Document;
use crate::images::Builder;
use crate::kubectl::Kubectl;
use crate::progress;
use crate::store::Key;

/// The part of the document with the table.
pub(super) const PART: &str = "proofs";
/// Names of the checks that run proofs contain this.
pub(super) const PREFIX: &str = "::proof::";
const PROOFS: &str = "tests/e2e/proofs";
const SAMPLE: &str = "samples/extended.yaml";
const KIND_LABEL: &str = "openstack.k8s.io/kind";
/// Begins a line of a proof that names further services, which have no proof.
const ALSO_PROVES: &str = "# Also proves: ";
/// Begins the line of a proof that runs in a pod of another image than the client.
const RUNS_IN: &str = "# Runs in: ";
const HEADER: &str = "| service | proof | date | images | render |\n|---|---|---|---|---|\n";

/// A service of the list that the operator generates.
#[derive(Deserialize)]
struct Service {
    field: String,
    kind: String,
    images: Vec<String>,
}

/// The inputs of a proof, which decide whether its result still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Inputs {
    /// The keys of the service's images.
    images: String,
    /// The hash of the service's objects.
    render: String,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    service: String,
    verdict: String,
    date: String,
    inputs: Inputs,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [service, verdict, date, images, render] = cells.as_slice() else { return None };
        let inputs = Inputs { images: (*images).to_owned(), render: (*render).to_owned() };
        let [service, verdict, date] = [service, verdict, date].map(|cell| (*cell).to_owned());
        (service != "service").then_some(Self { service, verdict, date, inputs })
    }

    fn line(&self) -> String {
        let Self { service, verdict, date, inputs: Inputs { images, render } } = self;
        format!("| {service} | {verdict} | {date} | {images} | {render} |\n")
    }
}

/// Fails if there is no proof of a service that the user names.
pub(super) fn require_proof(directories: &Directories, service: &str) -> Result<()> {
    let services = proven_services(directories)?;
    if services.iter().any(|name| name == service) {
        return Ok(());
    }
    bail!("--service {service}: no such proof; {PROOFS} has {}", services.join(", "))
}

/// The images of the pods that run proofs, besides the client.
pub(super) fn images(directories: &Directories) -> Result<Vec<String>> {
    let mut images = Vec::new();
    for service in proven_services(directories)? {
        let program = read_proof(directories, &service)?;
        images.extend(program.lines().filter_map(|line| line.strip_prefix(RUNS_IN)).map(ToOwned::to_owned));
    }
    Ok(images)
}

/// The cloud of `cargo xtask up`.
pub(super) struct ExistingCloud {
    /// NAMESPACE/NAME.
    name: String,
    /// Kinds of its services, separated by commas.
    kinds: String,
}

impl ExistingCloud {
    /// Variables for the checks.
    pub(super) fn variables(self) -> [(&'static str, String); 2] {
        [("E2E_CLOUD", self.name), ("E2E_KINDS", self.kinds)]
    }
}

/// The cloud of `cargo xtask up`, if there is one.
pub(super) fn existing_cloud(kubectl: &Kubectl) -> Result<Option<ExistingCloud>> {
    let arguments = ["--namespace", NAMESPACE, "get", KIND, "--output=json"];
    // A cluster without the operator does not know the kind.
    let Ok(answer) = output(kubectl.query().args(arguments)) else { return Ok(None) };
    let answer: Value = serde_json::from_str(&answer).context("kubectl printed no JSON")?;
    let Some(cloud) = answer["items"].as_array().and_then(|items| items.first()) else { return Ok(None) };
    let name = cloud["metadata"]["name"].as_str().context("the cloud has no name")?;
    if !is_ready(cloud) {
        bail!("cloud {name} is not Ready: run cargo xtask up, or cargo xtask down for a new cloud");
    }
    let services = cloud["status"]["services"].as_array().into_iter().flatten();
    let kinds: Vec<&str> = services.filter_map(|service| service["kind"].as_str()).collect();
    Ok(Some(ExistingCloud { name: format!("{NAMESPACE}/{name}"), kinds: kinds.join(",") }))
}

/// Prints the results of the proofs that ran, and writes them to the document if asked to.
pub(super) fn report(
    directories: &Directories,
    builder: &Builder,
    log: &str,
    destination: Destination,
) -> Result<()> {
    let verdicts = verdicts(log);
    if verdicts.is_empty() {
        bail!("no proof ran: the output of the checks says why");
    }
    let document = Document::new(&directories.checkout, DOCUMENT);
    let inputs = inputs(directories, builder)?;
    let date = jiff::Timestamp::now().to_string().chars().take("2026-01-31".len()).collect::<String>();
    let table = table(&rows(&document.read_part(PART)?), &verdicts, &inputs, &date);
    progress::print(&format!("## {PART}\n\n{table}"));
    if destination == Destination::Document {
        document.write(PART, table.trim())?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Terminal,
    Document,
}

/// Prints which results of the document no longer hold.
pub(super) fn print_stale(directories: &Directories, builder: &Builder) -> Result<()> {
    let document = Document::new(&directories.checkout, DOCUMENT);
    let stale = stale(&rows(&document.read_part(PART)?), &inputs(directories, builder)?);
    for line in &stale {
        progress::notify(&format!("stale proof: {line}"));
    }
    if !stale.is_empty() {
        progress::notify("cargo xtask test --only catalogue --write renews them");
    }
    Ok(())
}

/// The inputs of every proof by its service, in this checkout.
fn inputs(directories: &Directories, builder: &Builder) -> Result<BTreeMap<String, Inputs>> {
    let path = directories.checkout.join("deploy/services.json");
    let list = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let services: Vec<Service> = serde_json::from_str(&list)
        .with_context(|| format!("{} is not the list of services", path.display()))?;
    let objects = render(directories, builder)?;
    let mut inputs = BTreeMap::new();
    for name in proven_services(directories)? {
        let program = read_proof(directories, &name)?;
        let (mut images, mut kinds) = (Vec::new(), Vec::new());
        for field in subjects(&name, &program) {
            let service = services.iter().find(|service| service.field == field);
            let service = service.with_context(|| format!("{PROOFS}/{name}.py: {field} is not a service"))?;
            for image in &service.images {
                images.push(format!("{image}:{}", builder.digits(image)?));
            }
            kinds.push(service.kind.as_str());
        }
        inputs.insert(name, Inputs { images: images.join(" "), render: render_hash(&objects, &kinds) });
    }
    Ok(inputs)
}

/// The services that a program proves.
fn subjects<'a>(name: &'a str, program: &'a str) -> impl Iterator<Item = &'a str> {
    let others = program.lines().filter_map(|line| line.strip_prefix(ALSO_PROVES));
    std::iter::once(name).chain(others.flat_map(|others| others.split(", ")))
}

fn read_proof(directories: &Directories, service: &str) -> Result<String> {
    let path = directories.checkout.join(PROOFS).join(format!("{service}.py"));
    fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

fn proven_services(directories: &Directories) -> Result<Vec<String>> {
    let place = directories.checkout.join(PROOFS);
    let entries = fs::read_dir(&place).with_context(|| format!("failed to read {}", place.display()))?;
    let mut services = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "py") {
            services.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    services.sort();
    Ok(services)
}

/// The objects that the operator renders from the sample.
fn render(directories: &Directories, builder: &Builder) -> Result<Vec<Value>> {
    let mut command = Command::new(builder.program("operator")?);
    command.args(["render", "--images-family", "debian", "--output", "json", "-f"]);
    let answer = output(command.arg(directories.checkout.join(SAMPLE)))?;
    let mut answer: Value = serde_json::from_str(&answer).context("the operator rendered no JSON")?;
    serde_json::from_value(answer["items"].take()).context("the operator rendered no list")
}

/// The hash of the objects of some kinds of services.
fn render_hash(objects: &[Value], kinds: &[&str]) -> String {
    let own = objects.iter().filter(|object| {
        let kind = object["metadata"]["labels"][KIND_LABEL].as_str();
        kind.is_some_and(|kind| kinds.contains(&kind))
    });
    own.fold(Key::default(), |key, object| key.text(&object.to_string())).digits()
}

/// Verdicts by service, from the output of the checks.
fn verdicts(log: &str) -> BTreeMap<String, &'static str> {
    let mut verdicts = BTreeMap::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("test ")) {
        let Some((name, result)) = line.split_once(" ... ") else { continue };
        let Some((_, service)) = name.split_once(PREFIX) else { continue };
        let verdict = if result.starts_with("ok") {
            "passed"
        } else if result.starts_with("FAILED") {
            "failed"
        } else {
            continue;
        };
        verdicts.insert(service.to_owned(), verdict);
    }
    verdicts
}

fn rows(table: &str) -> Vec<Row> {
    table.lines().filter_map(Row::parse).collect()
}

/// The table with new rows for the services that have a verdict. Other services keep their rows.
fn table(
    known: &[Row],
    verdicts: &BTreeMap<String, &'static str>,
    inputs: &BTreeMap<String, Inputs>,
    date: &str,
) -> String {
    let mut table = HEADER.to_owned();
    for (service, inputs) in inputs {
        let old = known.iter().find(|row| row.service == *service).cloned();
        let new = verdicts.get(service).map(|verdict| Row {
            service: service.clone(),
            verdict: (*verdict).to_owned(),
            date: date.to_owned(),
            inputs: inputs.clone(),
        });
        table.extend(new.or(old).map(|row| row.line()));
    }
    table
}

/// One line for each service whose result is missing or was obtained with other inputs.
fn stale(known: &[Row], inputs: &BTreeMap<String, Inputs>) -> Vec<String> {
    let mut lines = Vec::new();
    for (service, inputs) in inputs {
        let Some(row) = known.iter().find(|row| row.service == *service) else {
            lines.push(format!("{service}: no result"));
            continue;
        };
        if row.inputs.images != inputs.images {
            lines.push(format!("{service}: images are {}, were {}", inputs.images, row.inputs.images));
        }
        if row.inputs.render != inputs.render {
            lines.push(format!("{service}: render is {}, was {}", inputs.render, row.inputs.render));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOG: &str = "running\ntest cloud::operator_is_installed ... ok (3.0 s)\n\
                       test cloud::proof::glance ... ok (4.2 s)\ntest cloud::proof::nova ... FAILED (9.0 s)\n\
                       test cloud::proof::neutron ... not run: needs cloud::cloud_becomes_ready\n";

    fn inputs() -> BTreeMap<String, Inputs> {
        let inputs = |name: &str| Inputs { images: format!("{name}:1"), render: "2".to_owned() };
        ["glance", "neutron", "nova"].map(|name| (name.to_owned(), inputs(name))).into()
    }

    #[test]
    fn results_replace_the_rows_of_their_services_only() {
        let known = format!("{HEADER}| neutron | passed | 2026-01-01 | neutron:0 ovn:0 | 0 |\n");
        let new = table(&rows(&known), &verdicts(LOG), &inputs(), "2026-02-03");
        assert_eq!(
            new,
            format!(
                "{HEADER}| glance | passed | 2026-02-03 | glance:1 | 2 |\n\
                 | neutron | passed | 2026-01-01 | neutron:0 ovn:0 | 0 |\n\
                 | nova | failed | 2026-02-03 | nova:1 | 2 |\n"
            )
        );
        assert_eq!(rows(&new).len(), 3);
    }

    #[test]
    fn a_result_is_stale_when_its_inputs_differ() {
        let known = "| glance | passed | 2026-02-03 | glance:1 | 2 |\n\
                     | neutron | passed | 2026-01-01 | neutron:0 | 0 |\n";
        assert_eq!(
            stale(&rows(known), &inputs()),
            [
                "neutron: images are neutron:1, were neutron:0",
                "neutron: render is 2, was 0",
                "nova: no result"
            ]
        );
    }

    #[test]
    fn a_proof_may_prove_further_services() {
        let program = "\"\"\"Nova works.\"\"\"\n\n# Also proves: compute, console\n";
        assert_eq!(subjects("nova", program).collect::<Vec<_>>(), ["nova", "compute", "console"]);
        assert_eq!(subjects("glance", "").collect::<Vec<_>>(), ["glance"]);
    }

    #[test]
    fn a_render_hash_covers_the_objects_of_one_kind() {
        let object = |kind: &str, value: u32| json!({ "kind": "Service", "metadata": { "labels": { KIND_LABEL: kind } }, "value": value });
        let hash = |objects: &[Value]| render_hash(objects, &["Nova"]);
        let before = hash(&[object("Nova", 1), object("Glance", 1)]);
        assert_eq!(before, hash(&[object("Nova", 1), object("Glance", 2)]));
        assert_ne!(before, hash(&[object("Nova", 2), object("Glance", 1)]));
    }
}
