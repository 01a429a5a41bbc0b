//! The process that uses the APIs while faults happen, its events, and questions about what it has created.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::events::Event;
use super::fault::Api;
use super::view::View;
use super::writes::{Found, Write};
use crate::cloud::NAMESPACE;
use crate::cloud::client::{Administrator, administrator};
use crate::command::{last_lines, output, wait_until};
use crate::directories::Directories;
use crate::process;
use crate::store::{self, Key};

/// The program, which needs only the standard library of Python.
const PROGRAM: &str = include_str!("load.py");
/// The name of the process.
const PROCESS: &str = "drill-load";
/// Longer than all faults together take: no process of the drill runs without an end.
const LIMIT_SECONDS: u32 = 24 * 3600;

pub(super) struct Load<'a> {
    directories: &'a Directories,
    directory: PathBuf,
    settings: Settings,
    administrator: Administrator,
    /// How much of the file of events has been read.
    offset: u64,
    /// Answers since the last call of `forget`.
    pub(super) events: Vec<Event>,
    /// All acknowledged writes.
    pub(super) writes: Vec<Write>,
    /// Identifiers of what the drill has deleted itself.
    pub(super) released: BTreeSet<String>,
}

/// The argument of the program. It contains no secret.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    gateway: Ipv4Addr,
    domain: String,
    services: Vec<Api>,
    username: String,
    password_file: PathBuf,
    events: PathBuf,
    limit_seconds: u32,
    /// Addresses of the instances under observation, by name.
    instances: BTreeMap<String, Ipv4Addr>,
}

impl<'a> Load<'a> {
    /// Starts the process and waits until all of its streams run.
    pub(super) fn start(
        directories: &'a Directories,
        view: &View,
        gateway: Ipv4Addr,
        instances: BTreeMap<String, Ipv4Addr>,
    ) -> Result<Self> {
        // A drill that was killed leaves its files.
        stop(directories)?;
        let directory = directories.cluster().join("drill");
        store::remove(&directory)?;
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join("load.py"), PROGRAM))
            .with_context(|| format!("failed to write {}", directory.display()))?;
        let administrator = administrator(&view.kubectl)?;
        let settings = Settings {
            gateway,
            domain: view.domain.clone(),
            services: view.apis.clone(),
            username: administrator.username.clone(),
            password_file: directory.join("password"),
            events: directory.join("events"),
            limit_seconds: LIMIT_SECONDS,
            instances,
        };
        let (events, writes, released) = Default::default();
        let mut load =
            Self { directories, directory, settings, administrator, offset: 0, events, writes, released };
        load.refresh_password(view)?;
        let mut command = load.command("load", &serde_json::to_value(&load.settings)?);
        process::ensure(directories, PROCESS, &load.log(), &mut command, Key::default())?;
        let mut answer = Ok(());
        wait_until("the load runs", || {
            answer = load.read_events();
            answer.is_err() || load.events.contains(&Event::Started)
        })?;
        answer.map(|()| load)
    }

    fn log(&self) -> PathBuf {
        self.directory.join("load.log")
    }

    fn command(&self, mode: &str, settings: &Value) -> Command {
        let mut command = Command::new("python3");
        command.arg(self.directory.join("load.py")).arg(mode).arg(settings.to_string());
        command
    }

    /// Reads the events since the last call, and fails if the process has ended.
    pub(super) fn read_events(&mut self) -> Result<()> {
        let is_alive = process::find(self.directories, PROCESS)?.is_some();
        if let Some(text) = read_lines(&self.settings.events, &mut self.offset)? {
            for line in text.lines() {
                let event = serde_json::from_str(line).with_context(|| format!("not an event: {line}"))?;
                match event {
                    Event::Write(write) => self.writes.push(write),
                    other => self.events.push(other),
                }
            }
        }
        if !is_alive {
            let text = fs::read_to_string(self.log()).unwrap_or_default();
            bail!("the load has ended\n{}\nfull log: {}", last_lines(&text), self.log().display());
        }
        Ok(())
    }

    /// Forgets the answers so far, between two faults.
    pub(super) fn forget(&mut self) {
        self.events.clear();
    }

    /// Passes the current password of the administrator to the process.
    pub(super) fn refresh_password(&self, view: &View) -> Result<()> {
        let Administrator { secret, secret_key, .. } = &self.administrator;
        let template = format!("--output=go-template={{{{index .data {secret_key:?} | base64decode}}}}");
        let get = ["--namespace", NAMESPACE, "get", "secret", secret, &template];
        let password = output(view.kubectl.query().args(get))?;
        let path = &self.settings.password_file;
        let unfinished = path.with_extension("unfinished");
        let mut options = OpenOptions::new();
        // Only the owner reads it.
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
        file.and_then(|mut file| file.write_all(password.as_bytes()))
            .and_then(|()| fs::rename(&unfinished, path))
            .with_context(|| format!("failed to write {}", path.display()))
    }

    /// The identifiers of everything that the load has created and the cloud has.
    pub(super) fn found(&self) -> Result<Found> {
        self.ask("found", json!({}))
    }

    /// Deletes the instances that the load has created: they occupy memory.
    pub(super) fn release(&mut self) -> Result<()> {
        let deleted: Vec<String> = self.ask("release", json!({}))?;
        self.released.extend(deleted);
        Ok(())
    }

    /// The nodes of the instances under observation, by the name of the instance.
    pub(super) fn nodes_of_instances(&self) -> Result<BTreeMap<String, String>> {
        self.ask("instances", json!({}))
    }

    /// Starts instances that do not answer.
    pub(super) fn reboot(&self, instances: &[String]) -> Result<()> {
        self.ask("reboot", json!({ "reboot": instances }))
    }

    /// Ends the process and deletes everything that it has created.
    pub(super) fn end(self) -> Result<()> {
        stop(self.directories)?;
        let cleaned: Result<()> = self.ask("clean", json!({}));
        store::remove(&self.directory)?;
        cleaned.context("failed to delete what the load has created")
    }

    fn ask<T: DeserializeOwned>(&self, mode: &str, further: Value) -> Result<T> {
        let mut settings = serde_json::to_value(&self.settings)?;
        if let (Some(settings), Value::Object(further)) = (settings.as_object_mut(), further) {
            settings.extend(further);
        }
        let answer = output(&mut self.command(mode, &settings))?;
        serde_json::from_str(&answer).with_context(|| format!("{mode} answered {answer}"))
    }
}

fn stop(directories: &Directories) -> Result<()> {
    process::stop(directories, PROCESS, Signal::SIGTERM)
}

/// The complete lines of a file from an offset on; none if it does not exist yet.
fn read_lines(path: &Path, offset: &mut u64) -> Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(*offset))?;
            file.read_to_string(&mut text)
        })
        .with_context(|| format!("failed to read {}", path.display()))?;
    // The last line may be incomplete.
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    *offset += text.len() as u64;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_read_and_each_once() -> Result<()> {
        let path = std::env::temp_dir().join(format!("xtask-drill-events-{}", std::process::id()));
        let mut offset = 0;
        assert_eq!(read_lines(&path, &mut offset)?, None);
        fs::write(&path, "a\nb")?;
        assert_eq!(read_lines(&path, &mut offset)?.as_deref(), Some("a\n"));
        assert_eq!(read_lines(&path, &mut offset)?.as_deref(), Some(""));
        fs::write(&path, "a\nb\nc\n")?;
        assert_eq!(read_lines(&path, &mut offset)?.as_deref(), Some("b\nc\n"));
        fs::remove_file(path)?;
        Ok(())
    }

    /// Seen: after the loss of a node, one of a hundred connections to the Gateway reached a pod that was gone.
    #[test]
    fn a_query_survives_a_failed_connection_and_a_stream_counts_it() -> Result<()> {
        let check = "
attempts = iter(range(9))
def connect(connection):
    if next(attempts) < 2:
        raise OSError(113, 'No route to host')
http.client.HTTPConnection.connect = connect
settings = dict.fromkeys(['gateway', 'domain', 'services', 'username', 'passwordFile'], '')
try:
    Cloud(settings).connect()
    sys.exit('a stream connects again')
except Failure:
    assert Cloud(settings, QUERY_CONNECTIONS).connect()
";
        let program = PROGRAM.replace("__name__ ==", "None ==");
        output(Command::new("python3").arg("-c").arg(program + check))?;
        Ok(())
    }

    #[test]
    fn the_program_reads_the_settings_that_it_gets() {
        let settings = [
            "gateway",
            "domain",
            "services",
            "username",
            "passwordFile",
            "events",
            "limitSeconds",
            "instances",
        ];
        for setting in settings {
            assert!(PROGRAM.contains(&format!("settings[\"{setting}\"]")), "{setting}");
        }
        let settings = Settings {
            gateway: Ipv4Addr::LOCALHOST,
            domain: String::new(),
            services: vec![Api::Keystone],
            username: String::new(),
            password_file: PathBuf::new(),
            events: PathBuf::new(),
            limit_seconds: 1,
            instances: BTreeMap::new(),
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert!(text.contains("\"limitSeconds\":1") && text.contains("\"passwordFile\""), "{text}");
        assert!(text.contains("\"services\":[\"keystone\"]"), "{text}");
    }
}
