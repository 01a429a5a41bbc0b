//! Rules about the source itself, so that they need not be remembered in review.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Longer files are hard to read in one sitting.
const MOST_LINES: usize = 400;

/// Every file under version control whose name ends so, with its text.
fn files(ending: &str) -> Result<Vec<(PathBuf, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("failed to ask git for the files")?;
    let mut files = Vec::new();
    for name in String::from_utf8(output.stdout)?.lines().filter(|name| name.ends_with(ending)) {
        let path = root.join(name);
        // Git lists a file that is deleted but not yet committed so.
        if path.is_file() {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{name} is not text"))?;
            files.push((PathBuf::from(name), text));
        }
    }
    anyhow::ensure!(!files.is_empty(), "there is no file *{ending}");
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
fn every_file_can_be_read_in_one_sitting() -> Result<()> {
    for (path, text) in files(".rs")? {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines, more than {MOST_LINES}", path.display());
    }
    Ok(())
}

#[test]
fn no_function_is_excused_from_being_short() -> Result<()> {
    let settings = files("clippy.toml")?;
    let is_counted = settings.iter().any(|(_, text)| text.contains("too-many-lines-threshold = 60\n"));
    assert!(is_counted, "clippy.toml does not say how long a function may be");
    // In two parts, so that this file does not name the lint itself.
    let lint = ["clippy::too_many", "lines"].join("_");
    for (path, text) in files(".rs")? {
        assert!(!text.contains(&lint), "{} sets {lint} aside: split the function", path.display());
    }
    Ok(())
}

#[test]
fn links_between_documents_lead_somewhere() -> Result<()> {
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
fn recipes_fetch_nothing_by_address() -> Result<()> {
    // Packages come by name, from wherever the tools of whoever builds are set to look.
    for ending in ["Containerfile", ".toml"] {
        for (path, text) in files(ending)? {
            let address = text.lines().find(|line| line.contains("://"));
            assert_eq!(address, None, "in {}", path.display());
        }
    }
    Ok(())
}
