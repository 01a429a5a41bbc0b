//! Rules for the source, checked here instead of in review.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Longer files are hard to read.
const MOST_LINES: usize = 400;

/// The files under version control with this ending, and their text.
fn files(ending: &str) -> Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("failed to list the files with git")?;
    let mut files = Vec::new();
    for name in String::from_utf8(output.stdout)?.lines().filter(|name| name.ends_with(ending)) {
        let path = root.join(name);
        // Git also lists files that are deleted but not committed.
        if path.is_file() {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{name} is not text"))?;
            files.push((PathBuf::from(name), text));
        }
    }
    anyhow::ensure!(!files.is_empty(), "no file matches *{ending}");
    Ok(files)
}

#[test]
fn every_module_opens_with_one_sentence() -> Result<()> {
    for (path, text) in files(".rs")? {
        assert!(text.starts_with("//! "), "{} does not open with //!", path.display());
    }
    Ok(())
}

#[test]
fn no_file_is_too_long() -> Result<()> {
    for (path, text) in files(".rs")? {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines, more than {MOST_LINES}", path.display());
    }
    Ok(())
}

#[test]
fn no_function_is_exempt_from_the_length_limit() -> Result<()> {
    let settings = files("clippy.toml")?;
    let is_counted = settings.iter().any(|(_, text)| text.contains("too-many-lines-threshold = 60\n"));
    assert!(is_counted, "clippy.toml does not limit the length of functions");
    // In two parts, so that this file does not contain the name of the lint.
    let lint = ["clippy::too_many", "lines"].join("_");
    for (path, text) in files(".rs")? {
        assert!(!text.contains(&lint), "{} allows {lint}: split the function", path.display());
    }
    Ok(())
}

#[test]
fn links_between_documents_resolve() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, text) in files(".md")? {
        let directory = root.join(path.parent().unwrap_or(Path::new("")));
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = target.split('#').next().unwrap_or_default();
            assert!(directory.join(file).exists(), "{} links to {target}", path.display());
        }
    }
    Ok(())
}

#[test]
fn tests_that_documents_name_exist() -> Result<()> {
    let sources = files(".rs")?;
    let mut found = 0;
    for (path, text) in files(".md")? {
        for name in text.split('`').filter(|part| is_test_name(part)) {
            found += 1;
            let function = format!("fn {name}(");
            let exists = sources.iter().any(|(_, source)| source.contains(&function));
            assert!(exists, "{} names {name}, which is no test", path.display());
        }
    }
    assert!(found > 5, "the documents name {found} tests");
    Ok(())
}

fn is_test_name(text: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    text.matches('_').count() >= 4 && text.chars().all(|character| character == '_' || is_plain(character))
}

/// Words that OpenStack and Kubernetes operators do not use for these things.
const REPLACED_WORDS: [&str; 11] = [
    "told", "muster", "speaking", "lacks", "begun", "anew", "nobody", "somebody", "whoever", "faces",
    "screens",
];

#[test]
fn replaced_words_do_not_return() -> Result<()> {
    for ending in [".rs", ".md", ".yaml", ".py", ".sh", ".toml", ".template"] {
        for (path, text) in files(ending)?.into_iter().filter(|(path, _)| !path.ends_with("tests/tidy.rs")) {
            let mut words = text.split(|character: char| !character.is_alphanumeric());
            let found = words.find(|word| REPLACED_WORDS.contains(&word.to_lowercase().as_str()));
            assert_eq!(found, None, "in {}", path.display());
        }
    }
    Ok(())
}

#[test]
fn recipes_contain_no_address() -> Result<()> {
    // Packages have names; the configuration of the build host determines their source.
    for ending in ["Containerfile", ".toml"] {
        for (path, text) in files(ending)? {
            let address = text.lines().find(|line| line.contains("://"));
            assert_eq!(address, None, "in {}", path.display());
        }
    }
    Ok(())
}
