//! Objects in YAML files, checked against their schemas when they are read.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use kube::core::{DynamicObject, ObjectMeta};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::{GROUP, Kind};
use openstack_operator_model::service::{AnyService, Invalid};
use openstack_operator_services::ALL;
use serde_json::Value;
use snafu::{ResultExt, Snafu, ensure};

use crate::schema;

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to read {file}"))]
    Read { file: String, source: std::io::Error },
    #[snafu(display("failed to read {file} as YAML"))]
    Parse {
        file: String,
        #[snafu(source(from(serde_saphyr::Error, Box::new)))]
        source: Box<serde_saphyr::Error>,
    },
    #[snafu(transparent)]
    Rejected { source: Problems },
    #[snafu(display("there is no object of group {GROUP} in {files}: the kinds are {}", kind_names()))]
    Nothing { files: String },
}

/// All problems of the input.
#[derive(Debug)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(formatter, "{}", lines.join("\nerror: "))
    }
}

impl std::error::Error for Problems {}

/// A problem, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) origin: Origin,
    /// The object, if it is known.
    pub(crate) object: Option<String>,
    pub(crate) invalid: Invalid,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.as_ref().map(|object| format!(" ({object})")).unwrap_or_default();
        write!(formatter, "{}{object}: {}", self.origin, self.invalid)
    }
}

/// Where an object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: String,
    pub(crate) document: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, document {}", self.file, self.document)
    }
}

/// An object of one of the operator's kinds.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    pub(crate) object: DynamicObject,
}

/// The namespace of objects without one, and whether others must have it too.
#[derive(Clone, Debug)]
pub(crate) enum Namespace {
    /// From the command line: objects of another namespace are rejected.
    Given(String),
    Default(String),
}

/// The objects of the input.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) documents: Vec<Document>,
    /// Objects of other groups.
    pub(crate) skipped: Vec<String>,
}

/// Reads objects from files; `-` is standard input.
pub(crate) fn read(files: &[PathBuf], namespace: &Namespace) -> Result<Input, Error> {
    let mut texts = Vec::new();
    for file in files {
        let (file, text) = load(file)?;
        texts.push((file, text));
    }
    let mut input = Input { documents: Vec::new(), skipped: Vec::new() };
    let mut problems = Vec::new();
    for (file, text) in &texts {
        let values: Vec<Value> =
            serde_saphyr::from_multiple(text).context(ParseSnafu { file: file.clone() })?;
        for (index, value) in values.into_iter().enumerate() {
            let origin = Origin { file: file.clone(), document: index + 1 };
            for value in items(value) {
                match document(&origin, value, namespace) {
                    Ok(Classified::Ours(document)) => input.documents.push(*document),
                    Ok(Classified::Foreign(title)) => input.skipped.push(title),
                    Err(found) => problems.extend(found),
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems).into());
    }
    let files: Vec<&str> = texts.iter().map(|(file, _)| file.as_str()).collect();
    ensure!(!input.documents.is_empty(), NothingSnafu { files: files.join(", ") });
    Ok(input)
}

fn load(file: &Path) -> Result<(String, String), Error> {
    if file == Path::new("-") {
        let name = "standard input".to_owned();
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context(ReadSnafu { file: name.clone() })?;
        return Ok((name, text));
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).context(ReadSnafu { file: name.clone() })?;
    Ok((name, text))
}

/// The objects of a `List`, as kubectl prints them, or the one object.
fn items(mut value: Value) -> Vec<Value> {
    let is_list = value.get("kind").and_then(Value::as_str) == Some("List");
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(other) => {
            value["items"] = other;
            vec![value]
        }
        None => vec![value],
    }
}

/// A document by the group of its kind.
enum Classified {
    Ours(Box<Document>),
    Foreign(String),
}

fn document(origin: &Origin, mut value: Value, namespace: &Namespace) -> Result<Classified, Vec<Problem>> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let title = format!("{kind} {name}").trim().to_owned();
    let problem = |invalid: Invalid| Problem {
        origin: origin.clone(),
        object: (!title.is_empty()).then(|| title.clone()),
        invalid,
    };
    let one = |path: &str, reason: String| vec![problem(Invalid::new(path, reason))];
    if version.is_empty() || kind.is_empty() {
        return Err(one("apiVersion, kind", "both are required: this is not a Kubernetes object".to_owned()));
    }
    if version.split('/').next() != Some(GROUP) {
        return Ok(Classified::Foreign(title));
    }
    let service = service(&version, &kind).map_err(|invalid| vec![problem(invalid)])?;
    if name.is_empty() {
        return Err(one("metadata.name", "is required".to_owned()));
    }
    let schema = schema::of(service);
    let mut found: Vec<Problem> = schema::check(&schema, &value, None).into_iter().map(problem).collect();
    found.extend(unknown_metadata(&value).map(problem));
    if !found.is_empty() {
        return Err(found);
    }
    schema::fill_defaults(&schema, &mut value);
    let mut object: DynamicObject =
        serde_json::from_value(value).map_err(|error| one("metadata", format!("cannot be read: {error}")))?;
    let chosen =
        choose(namespace, object.metadata.namespace.as_deref()).map_err(|invalid| vec![problem(invalid)])?;
    object.metadata.namespace = Some(chosen.clone());
    let key = Key { kind: service.kind(), namespace: chosen, name };
    Ok(Classified::Ours(Box::new(Document { origin: origin.clone(), key, object })))
}

/// A field that the metadata of Kubernetes objects does not have; decoding would drop it.
fn unknown_metadata(value: &Value) -> Option<Invalid> {
    let written = value.get("metadata")?;
    let known: ObjectMeta = serde_json::from_value(written.clone()).ok()?;
    let known = serde_json::to_value(known).ok()?;
    let is_lost =
        |(field, value): &(&String, &Value)| !value.is_null() && known.get(field.as_str()).is_none();
    let (field, _) = written.as_object()?.iter().find(is_lost)?;
    Some(Invalid::new(format!("metadata.{field}"), "there is no such field"))
}

fn service(version: &str, kind: &str) -> Result<&'static dyn AnyService, Invalid> {
    let Some(service) = ALL.iter().copied().find(|service| service.kind().kind == kind) else {
        return Err(Invalid::new("kind", format!("there is no kind {kind}; there are {}", kind_names())));
    };
    let served = service.kind().api_version();
    if served != version {
        return Err(Invalid::new("apiVersion", format!("{version} is not served: write {served}")));
    }
    Ok(service)
}

fn choose(namespace: &Namespace, written: Option<&str>) -> Result<String, Invalid> {
    match (namespace, written) {
        (Namespace::Given(given), Some(written)) if given != written => Err(Invalid::new(
            "metadata.namespace",
            format!("{written:?} is not the namespace of the command line, {given:?}: remove one of them"),
        )),
        (_, Some(written)) => Ok(written.to_owned()),
        (Namespace::Given(namespace) | Namespace::Default(namespace), None) => Ok(namespace.clone()),
    }
}

fn kind_names() -> String {
    ALL.iter().map(|service| service.kind()).map(|Kind { kind, .. }| kind).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin() -> Origin {
        Origin { file: "cloud.yaml".to_owned(), document: 2 }
    }

    fn rejection(value: Value) -> String {
        let namespace = Namespace::Given("a".to_owned());
        Problems(document(&origin(), value, &namespace).err().unwrap()).to_string()
    }

    #[test]
    fn a_problem_names_file_document_object_path_and_reason() {
        let value = json!({ "apiVersion": "openstack.k8s.io/v1alpha1", "kind": "Memcached",
                            "metadata": { "name": "m" }, "spec": { "replicas": 12 } });
        assert_eq!(
            rejection(value),
            "cloud.yaml, document 2 (Memcached m): spec.replicas: must be at most 9, and 12 is not"
        );
    }

    #[test]
    fn unknown_fields_of_metadata_are_rejected() {
        let value = json!({ "apiVersion": "openstack.k8s.io/v1alpha1", "kind": "Memcached",
                            "metadata": { "name": "m", "lables": { "a": "b" }, "creationTimestamp": null }, "spec": {} });
        assert!(rejection(value).ends_with(": metadata.lables: there is no such field"));
    }

    #[test]
    fn unknown_kinds_and_versions_are_rejected_with_a_remedy() {
        let value =
            json!({ "apiVersion": "openstack.k8s.io/v1", "kind": "Memcached", "metadata": { "name": "m" } });
        assert!(
            rejection(value).ends_with("openstack.k8s.io/v1 is not served: write openstack.k8s.io/v1alpha1")
        );
        let value = json!({ "apiVersion": "openstack.k8s.io/v1alpha1", "kind": "Ironic" });
        assert!(rejection(value).contains("there is no kind Ironic; there are OpenStackControlPlane, "));
    }

    #[test]
    fn another_namespace_than_that_of_the_command_line_is_rejected() {
        let value = json!({ "apiVersion": "openstack.k8s.io/v1alpha1", "kind": "Memcached",
                            "metadata": { "name": "m", "namespace": "b" }, "spec": {} });
        assert!(rejection(value).contains("\"b\" is not the namespace of the command line, \"a\""));
    }

    #[test]
    fn a_list_is_read_by_its_items_and_other_groups_are_skipped() {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }
        ] });
        let mut found = items(list);
        assert_eq!(found.len(), 1);
        let read = document(&origin(), found.remove(0), &Namespace::Default("a".to_owned()));
        assert!(matches!(read, Ok(Classified::Foreign(title)) if title == "Namespace n"));
    }
}
