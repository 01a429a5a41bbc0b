//! Bad input gets an error that names the value and the remedy, and makes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// What the tool says when it refuses to do as told.
fn refusal(cache: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--cache").arg(cache).args(arguments).output()?;
    assert!(!output.status.success(), "{arguments:?} was not refused");
    assert!(!cache.join("cluster").exists(), "{arguments:?} was refused, but began a cluster");
    Ok(String::from_utf8(output.stderr)?)
}

fn place(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("xtask-command-line-{test}-{}", std::process::id()))
}

#[test]
fn a_number_of_nodes_out_of_range_is_refused() -> Result<()> {
    for number in ["0", "10", "many"] {
        // Refused before anything is looked at: the directory is not even made.
        let text = refusal(&place("nodes"), &["cluster", "up", "--nodes", number])?;
        assert!(text.contains(&format!("'{number}'")), "{text}");
    }
    Ok(())
}

#[test]
fn values_that_cannot_work_are_named_with_a_remedy() -> Result<()> {
    let cache = place("values");
    let cases: [(&[&str], &str); 11] = [
        (&["cluster", "power-off", "node7"], "make one with cargo xtask cluster up"),
        (&["cluster", "power-on", "node7"], "make one with cargo xtask cluster up"),
        (
            &["cluster", "up", "--pod-range", "10.96.0.0/15"],
            "--pod-range 10.96.0.0/15 and --service-range 10.96.0.0/16 overlap: change one of them",
        ),
        (&["images", "build", "keystoned"], "there is no image \"keystoned\": the table has base"),
        (&["up", "--timeout", "soon"], "give a number of seconds, minutes or hours"),
        (
            &["up", "--sample", "no-such.yaml"],
            "no-such.yaml is no file: pass the manifest of a control plane",
        ),
        (&["up", "--context", "a"], "--registry <PREFIX>"),
        (
            &["up", "--context", "a", "--registry", "b", "--nodes", "2"],
            "leave --nodes and the address options",
        ),
        (
            &["test", "--only", "catalogue", "--service", "swift"],
            "--service swift: no such proof; tests/e2e/proofs has glance, keystone",
        ),
        (&["test", "--only", "unit", "--write"], "--service and --write need --only catalogue"),
        (&["down", "--timeout", "0m"], "give a number of seconds, minutes or hours"),
    ];
    for (arguments, expected) in cases {
        let text = refusal(&cache, arguments)?;
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    Ok(fs::remove_dir_all(cache)?)
}

#[test]
fn a_cache_directory_that_cannot_be_written_is_named() -> Result<()> {
    // A directory cannot be made below a file, whoever asks for it.
    let file = place("file");
    fs::write(&file, "")?;
    let text = refusal(&file.join("cache"), &["cluster", "status"])?;
    fs::remove_file(&file)?;
    assert!(text.contains("cannot write the cache directory") && text.contains("--cache"), "{text}");
    Ok(())
}
