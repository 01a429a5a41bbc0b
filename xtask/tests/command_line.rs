//! Bad input fails with the value and a remedy, and creates nothing.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The error output of a command that must fail.
fn failure(cache: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--cache").arg(cache).args(arguments).output()?;
    assert!(!output.status.success(), "{arguments:?} did not fail");
    assert!(!cache.join("cluster").exists(), "{arguments:?} created a cluster");
    Ok(String::from_utf8(output.stderr)?)
}

fn temporary_path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("xtask-command-line-{test}-{}", std::process::id()))
}

#[test]
fn a_number_of_nodes_out_of_range_is_rejected() -> Result<()> {
    for number in ["0", "10", "many"] {
        // Rejected before the cache directory is created.
        let text = failure(&temporary_path("nodes"), &["cluster", "up", "--nodes", number])?;
        assert!(text.contains(&format!("'{number}'")), "{text}");
    }
    Ok(())
}

#[test]
fn a_bad_value_is_reported_with_a_remedy() -> Result<()> {
    let cache = temporary_path("values");
    let cases: [(&[&str], &str); 17] = [
        (&["cluster", "power-off", "node7"], "create one with cargo xtask cluster up"),
        (&["cluster", "power-on", "node7"], "create one with cargo xtask cluster up"),
        (
            &["cluster", "up", "--pod-range", "10.96.0.0/15"],
            "--pod-range 10.96.0.0/15 and --service-range 10.96.0.0/16 overlap: change one of them",
        ),
        (&["images", "build", "keystoned"], "there is no image \"keystoned\": the table has base"),
        (&["up", "--timeout", "soon"], "give a number of seconds, minutes or hours"),
        (
            &["up", "--sample", "no-such.yaml"],
            "no-such.yaml is not a file: pass the manifest of a control plane",
        ),
        (&["up", "--context", "a"], "--registry <PREFIX>"),
        (
            &["up", "--context", "a", "--registry", "b", "--nodes", "2"],
            "omit --nodes and the address options",
        ),
        (
            &["test", "--only", "catalogue", "--service", "swift"],
            "--service swift: no such proof; tests/e2e/proofs has barbican, glance, heat, horizon, keystone",
        ),
        (&["test", "--only", "unit", "--write"], "--service and --write need --only catalogue"),
        (&["drill", "--fault", "earthquake"], "no fault \"earthquake\": cargo xtask drill --list shows all"),
        (&["drill", "--short", "--fault", "api-server"], "cannot be used with"),
        (&["down", "--timeout", "0m"], "give a number of seconds, minutes or hours"),
        (&["down", "--timeout", "5m"], "--context <NAME>"),
        (&["launch", "a b"], "give a host name"),
        (&["launch"], "there is no local cluster: run cargo xtask up"),
        (&["openstack", "server", "list"], "there is no local cluster: run cargo xtask up"),
    ];
    for (arguments, expected) in cases {
        let text = failure(&cache, arguments)?;
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    Ok(fs::remove_dir_all(cache)?)
}

#[test]
fn a_second_run_names_the_first_and_leaves_it_alone() -> Result<()> {
    let cache = temporary_path("second");
    fs::create_dir_all(&cache)?;
    let mut first = Command::new("sleep").arg("300").spawn()?;
    fs::write(cache.join("lock"), format!("{} cargo xtask test --only e2e\n", first.id()))?;
    let file = fs::File::open(cache.join("lock"))?;
    let lock =
        nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    let arguments: [&[&str]; 4] =
        [&["down"], &["cluster", "down"], &["images", "build"], &["test", "--only", "format"]];
    let texts: Result<Vec<String>> = arguments.iter().map(|arguments| failure(&cache, arguments)).collect();
    let survived = first.try_wait()?.is_none();
    first.kill()?;
    let owner = format!("process {}, cargo xtask test --only e2e", first.wait().map(|_| first.id())?);
    for text in texts? {
        let expected = format!("another cargo xtask is running: {owner}; wait for it or stop it");
        assert!(text.contains(&expected), "{text}");
    }
    assert!(survived);
    drop(lock);
    Ok(fs::remove_dir_all(cache)?)
}

#[test]
fn the_guard_of_a_drill_repairs_only_if_it_is_not_dismissed() -> Result<()> {
    let cache = temporary_path("guard");
    for (input, expected) in [("done", false), ("", true)] {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("--cache")
            .arg(&cache)
            .arg("drill-guard")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // The end of its input is the end of the drill.
        guard.stdin.take().context("the guard has no input")?.write_all(input.as_bytes())?;
        let output = guard.wait_with_output()?;
        let text = String::from_utf8(output.stderr)?;
        assert!(output.status.success(), "{text}");
        assert_eq!(text.contains("restoring the power and the network"), expected, "{input:?}: {text}");
    }
    Ok(fs::remove_dir_all(cache)?)
}

#[test]
fn a_cache_directory_that_cannot_be_written_is_reported() -> Result<()> {
    // A file cannot contain a directory, even for root.
    let file = temporary_path("file");
    fs::write(&file, "")?;
    let text = failure(&file.join("cache"), &["cluster", "status"])?;
    fs::remove_file(&file)?;
    assert!(text.contains("cannot write the cache directory") && text.contains("--cache"), "{text}");
    Ok(())
}
