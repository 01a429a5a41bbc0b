//! Objects as users write them: YAML files whose first line states the expected result.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// The file's path from the checkout's root.
    pub name: String,
    /// From the first line.
    pub expectation: Expectation,
    pub objects: Vec<Value>,
}

/// The expected result for the objects of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    Accepted,
    /// A part of the API server's message.
    Refused(String),
}

/// Files of this suite.
pub fn files(directory: &str) -> Result<Vec<File>> {
    let files = read(&root().join("tests/apiserver/corpus").join(directory))?;
    ensure!(!files.is_empty(), "corpus/{directory} is empty");
    Ok(files)
}

/// The samples of the project.
pub fn samples() -> Result<Vec<File>> {
    let directory = root().join("samples");
    if directory.exists() { read(&directory) } else { Ok(Vec::new()) }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(directory: &Path) -> Result<Vec<File>> {
    let failure = || format!("failed to read {}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(failure)? {
        let path = entry.with_context(failure)?.path();
        if path.is_dir() {
            paths.extend(read(&path)?.into_iter().map(Ok));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(read_file(&path));
        }
    }
    let mut files = paths.into_iter().collect::<Result<Vec<File>>>()?;
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn read_file(path: &Path) -> Result<File> {
    let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {name}"))?;
    parse(name.clone(), &text).with_context(|| format!("{name} is not a file of the corpus"))
}

fn parse(name: String, text: &str) -> Result<File> {
    let first = text.lines().next().unwrap_or_default();
    let expectation = match first.strip_prefix("# refused:") {
        Some(part) if part.trim().is_empty() => bail!("the first line has no part of the message"),
        Some(part) => Expectation::Refused(part.trim().to_owned()),
        None => Expectation::Accepted,
    };
    let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let objects: Vec<Value> = objects.into_iter().filter(|object| !object.is_null()).collect();
    ensure!(!objects.is_empty(), "it has no object");
    Ok(File { name, expectation, objects })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openstack_operator_services::ALL;

    use super::*;

    #[test]
    fn the_first_line_states_the_expected_result() -> Result<()> {
        let file = parse("x".to_owned(), "# refused: too long\na: 1\n---\nb: \"2\"\n")?;
        assert_eq!(file.expectation, Expectation::Refused("too long".to_owned()));
        assert_eq!(file.objects, [serde_json::json!({ "a": 1 }), serde_json::json!({ "b": "2" })]);
        assert_eq!(parse("x".to_owned(), "a: 1\n")?.expectation, Expectation::Accepted);
        assert!(parse("x".to_owned(), "# refused:\na: 1\n").is_err());
        assert!(parse("x".to_owned(), "# nothing\n").is_err());
        Ok(())
    }

    #[test]
    fn the_directory_of_a_file_matches_its_first_line() -> Result<()> {
        for file in files("accepted")?.iter().chain(&files("defaults")?) {
            assert_eq!(file.expectation, Expectation::Accepted, "{}", file.name);
        }
        for file in files("refused")? {
            assert_ne!(file.expectation, Expectation::Accepted, "{}", file.name);
        }
        Ok(())
    }

    #[test]
    fn every_rule_has_an_object_that_violates_it() -> Result<()> {
        let violated: Vec<String> = [files("refused")?, files("changed")?]
            .concat()
            .into_iter()
            .filter_map(|file| match file.expectation {
                Expectation::Refused(part) => Some(part),
                Expectation::Accepted => None,
            })
            .collect();
        let mut messages = BTreeSet::new();
        for service in ALL.iter() {
            collect_messages(&serde_json::to_value(service.crd())?, &mut messages);
        }
        assert!(messages.len() > 5, "{messages:?}");
        messages.retain(|message| !violated.iter().any(|part| message.contains(part)));
        assert!(messages.is_empty(), "no file of the corpus violates: {messages:#?}");
        Ok(())
    }

    fn collect_messages(value: &Value, messages: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                for rule in rules.into_iter().flatten() {
                    messages
                        .insert(rule["message"].as_str().unwrap_or("a rule without a message").to_owned());
                }
                fields.values().for_each(|value| collect_messages(value, messages));
            }
            Value::Array(items) => items.iter().for_each(|value| collect_messages(value, messages)),
            _ => {}
        }
    }
}
