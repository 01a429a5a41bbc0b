//! Runs other programs: their output goes to a log file, and a failure shows its last lines.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::directories::Directories;
use crate::process::Mark;

/// Running commands, by process.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interrupts every running command.
pub(crate) fn interrupt_all() {
    for &process in running().iter() {
        if let Ok(process) = i32::try_from(process) {
            // It may have ended already.
            let _ = kill(Pid::from_raw(process), Signal::SIGINT);
        }
    }
}

/// Lines of a log that a failure shows.
const SHOWN_LINES: usize = 12;

/// The log file of one step, and the mark that the step's commands carry.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    path: PathBuf,
    mark: Mark,
}

impl Log {
    /// Creates an empty log for a step.
    pub(crate) fn create(directories: &Directories, step: &str) -> Result<Self> {
        let directory = directories.logs();
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("failed to create {}", directory.display()))?;
        let path = Self::path_of(directories, step);
        File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
        Ok(Self { path, mark: Mark::step(directories) })
    }

    /// The file of a step's log.
    pub(crate) fn path_of(directories: &Directories, step: &str) -> PathBuf {
        directories.logs().join(format!("{}.log", step.replace([' ', '/', ':'], "-")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self) -> Result<File> {
        OpenOptions::new()
            .append(true)
            .open(&self.path)
            .with_context(|| format!("failed to open {}", self.path.display()))
    }

    /// Adds a line to the log.
    pub(crate) fn note(&self, line: &str) -> Result<()> {
        writeln!(self.append()?, "{line}").with_context(|| format!("failed to write {}", self.path.display()))
    }

    /// Runs a command to its end with its output in this log.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let shown = show(command);
        self.note(&format!("+ {shown}"))?;
        let mut file = self.append()?;
        let from = file.seek(SeekFrom::End(0)).unwrap_or(0);
        let mut child = self
            .mark
            .apply(command)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("failed to start {shown}"))?;
        running().insert(child.id());
        let status = child.wait();
        running().remove(&child.id());
        let status = status.with_context(|| format!("failed to wait for {shown}"))?;
        if !status.success() {
            bail!("{shown}: {status}\n{}\nfull log: {}", self.tail(from), self.path.display());
        }
        Ok(())
    }

    fn tail(&self, from: u64) -> String {
        let mut text = String::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(from))?;
            file.read_to_string(&mut text)
        });
        match read {
            Ok(_) => last_lines(&text),
            Err(error) => format!("(failed to read the log: {error})"),
        }
    }
}

/// The last lines of a log, without those that only report progress.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("go: downloading")).collect();
    let start = lines.len().saturating_sub(SHOWN_LINES);
    lines[start..].iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("failed to start {shown}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}\n{}", output.status, last_lines(&error));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown} printed something that is not text"))
}

/// Waits for a condition, and fails with its name after a timeout.
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    // Enough on a machine that is busy with builds.
    let timeout = Duration::from_mins(3);
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > timeout {
            bail!("timed out after {} s waiting until {description}", timeout.as_secs());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A command from a line whose arguments contain no white space.
pub(crate) fn split(line: &str) -> Command {
    let mut words = line.split_ascii_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

pub(crate) fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_last_lines_without_progress() {
        let text = "go: downloading a\nfirst\n\nsecond\ngo: downloading b\n";
        assert_eq!(last_lines(text), "  | first\n  | second");
    }

    #[test]
    fn a_failing_command_names_its_log() -> Result<()> {
        let directory = std::env::temp_dir().join(format!("xtask-command-{}", std::process::id()));
        let log = Log::create(&Directories::find(Some(directory.clone()))?, "a step")?;
        let failure = log.run(Command::new("sh").args(["-c", "echo the cause >&2; exit 3"]));
        std::fs::remove_dir_all(&directory)?;
        let text = failure.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("the cause") && text.contains("a-step.log"), "{text}");
        Ok(())
    }

    #[test]
    fn a_line_is_split_at_white_space() {
        assert_eq!(show(&split("ip link add a")), "ip link add a");
    }
}
