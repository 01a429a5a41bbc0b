//! The documents name tests that exist and link to files that exist.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails, also in what it shares with others")]

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a directory whose names end so, without build outputs.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_test_that_a_document_names_exists() {
    let sources: Vec<String> =
        files(&root(), "rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let name = Regex::new("`([a-z]+(?:_[a-z0-9]+){4,})`").unwrap();
    let mut missing = Vec::new();
    let mut count = 0;
    for document in files(&root(), "md") {
        for capture in name.captures_iter(&fs::read_to_string(&document).unwrap()) {
            count += 1;
            let function = format!("fn {}(", &capture[1]);
            if !sources.iter().any(|source| source.contains(&function)) {
                missing.push(format!("{}: {}", document.display(), &capture[1]));
            }
        }
    }
    assert!(count > 3, "the documents name no tests");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_file_that_a_document_links_to_exists() {
    let link = Regex::new(r"\]\(([^)#:]+)(?:#[^)]*)?\)").unwrap();
    let mut missing = Vec::new();
    for document in files(&root(), "md") {
        for capture in link.captures_iter(&fs::read_to_string(&document).unwrap()) {
            if !document.parent().unwrap().join(&capture[1]).exists() {
                missing.push(format!("{}: {}", document.display(), &capture[1]));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
