//! A first VM: image, flavor, networks, security group and keypair, then the VM and its floating IP.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use crate::cluster::settings::{Addresses, Settings};
use crate::command::{Log, last_lines, output};
use crate::directories::Directories;
use crate::progress::{self, Progress, Step};

/// The program that runs in the client's pod.
const PROGRAM: &str = include_str!("launch.py");
/// The provider network of the samples, behind the third interface of the nodes.
const PHYSICAL_NETWORK: &str = "physnet1";
/// The floating IPs, by their number in the provider range.
const FLOATING_IPS: (u32, u32) = (100, 200);
const SSH_PORT: u16 = 22;
/// How long a VM may take from ACTIVE to ssh where QEMU emulates its processor.
const SSH_TIMEOUT: Duration = Duration::from_mins(6);

#[derive(Args)]
pub(crate) struct Arguments {
    /// Name of the VM.
    #[arg(default_value = "vm", value_parser = parse_name)]
    name: String,
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || character == '-';
    if text.starts_with('-') || text.is_empty() || text.len() > 63 || !text.chars().all(is_allowed) {
        return Err("give a host name: at most 63 letters, digits and hyphens".to_owned());
    }
    Ok(text.to_owned())
}

/// One line of the program's output.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    /// A step starts.
    Step(String),
    /// The state of the step.
    Progress(String),
    /// The step ends.
    Done(String),
    /// The VM runs and has this floating IP.
    Address(Ipv4Addr),
    /// The program ends with an error.
    Error(String),
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<()> {
    let address = launch(directories, &arguments.name, &Progress::new())?;
    let key = ensure_key(directories)?;
    progress::notify(&format!("\nVM {} answers at {address}. To log in:\n", arguments.name));
    progress::print(&ssh_command(&key, address));
    progress::notify(&format!(
        "\nTo see it:\n\ncargo xtask openstack server list\ncargo xtask openstack console log show {}",
        arguments.name
    ));
    Ok(())
}

/// Boots a VM unless it exists, waits until it answers, and returns its floating IP.
pub(crate) fn launch(directories: &Directories, name: &str, progress: &Progress) -> Result<Ipv4Addr> {
    let client = Client::start(directories)?;
    let settings = Settings::require(directories)?;
    let key = ensure_key(directories)?;
    let public_key =
        fs::read_to_string(key.with_extension("pub")).context("failed to read the public key")?;
    let log = Log::create(directories, "launch")?;
    let input = input(name, public_key.trim(), &settings.addresses)?;
    let mut command = client.command("python3", false);
    let address = create(command.arg("-").arg(input.to_string()), progress, &log)?;
    wait_for_ssh(address, progress)?;
    Ok(address)
}

/// The key is removed with the cluster.
fn ensure_key(directories: &Directories) -> Result<PathBuf> {
    let path = directories.cluster().join("launch-key");
    if !path.exists() {
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-C", "cargo xtask launch", "-f"]);
        output(generate.arg(&path))?;
    }
    Ok(path)
}

/// The argument of the program. It contains no secret.
fn input(name: &str, public_key: &str, addresses: &Addresses) -> Result<Value> {
    let range = addresses.provider_range;
    let numbered = |number: u32| Ipv4Addr::from(u32::from(range.network()) + number);
    Ok(json!({
        "name": name,
        "publicKey": public_key,
        "projectRange": addresses.project_range()?,
        "provider": {
            "physicalNetwork": PHYSICAL_NETWORK,
            "range": range,
            "gateway": addresses.provider_host_address(),
            "first": numbered(FLOATING_IPS.0),
            "last": numbered(FLOATING_IPS.1),
        },
    }))
}

/// Runs the program, shows its progress and returns the floating IP of the VM.
fn create(command: &mut Command, progress: &Progress, log: &Log) -> Result<Ipv4Addr> {
    let errors = fs::OpenOptions::new().append(true).open(log.path())?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("failed to start kubectl")?;
    let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
    stdin.write_all(PROGRAM.as_bytes()).context("failed to pass the program to the client")?;
    // Python starts the program when its text ends.
    drop(stdin);
    let lines = BufReader::new(child.stdout.take().context("kubectl has no standard output")?).lines();
    let mut step: Option<Step> = None;
    let mut address = None;
    let mut failure = None;
    for line in lines {
        let line = line.context("failed to read the output of the client")?;
        match serde_json::from_str(&line) {
            Ok(Event::Step(name)) => step = Some(progress.step(&name)),
            Ok(Event::Progress(text)) => {
                if let Some(step) = &step {
                    step.update(&text);
                }
            }
            Ok(Event::Done(detail)) => {
                if let Some(step) = step.take() {
                    step.finish('✓', &detail);
                }
            }
            Ok(Event::Address(found)) => address = Some(found),
            Ok(Event::Error(text)) => failure = Some(text),
            Err(_) => log.note(&line)?,
        }
    }
    child.wait().context("failed to wait for kubectl")?;
    if let Some(step) = step {
        step.finish('✗', "failed");
    }
    if let Some(failure) = failure {
        bail!("{failure}");
    }
    address.with_context(|| {
        let text = fs::read_to_string(log.path()).unwrap_or_default();
        format!("the client ended without a VM\n{}\nfull log: {}", last_lines(&text), log.path().display())
    })
}

/// Waits until the VM accepts connections. This host is on the provider network and reaches floating IPs.
fn wait_for_ssh(address: Ipv4Addr, progress: &Progress) -> Result<()> {
    let step = progress.step("ssh");
    let started = Instant::now();
    let target = SocketAddr::new(IpAddr::V4(address), SSH_PORT);
    while TcpStream::connect_timeout(&target, Duration::from_secs(2)).is_err() {
        if started.elapsed() > SSH_TIMEOUT {
            step.finish('✗', "failed");
            bail!(
                "{target} does not answer after {} s: see cargo xtask openstack console log show",
                SSH_TIMEOUT.as_secs()
            );
        }
        thread::sleep(Duration::from_millis(500));
    }
    step.finish('✓', &address.to_string());
    Ok(())
}

/// Floating IPs pass from VM to VM, so the host keys of the last VM must not count.
fn ssh_command(key: &Path, address: Ipv4Addr) -> String {
    format!(
        "ssh -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@{address}",
        key.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_the_networks_of_the_cluster() -> Result<()> {
        let input = input("vm", "ssh-ed25519 AAAA", &Addresses::usual())?;
        assert_eq!(input["name"], "vm");
        assert_eq!(input["projectRange"], "10.200.0.0/24");
        assert_eq!(
            input["provider"],
            json!({
                "physicalNetwork": "physnet1",
                "range": "172.24.4.0/24",
                "gateway": "172.24.4.1",
                "first": "172.24.4.100",
                "last": "172.24.4.200",
            })
        );
        Ok(())
    }

    #[test]
    fn the_events_of_the_program_are_read() -> Result<()> {
        let read = |text: &str| serde_json::from_str::<Event>(text);
        assert_eq!(read(r#"{"step": "image guest"}"#)?, Event::Step("image guest".to_owned()));
        assert_eq!(read(r#"{"progress": "BUILD spawning"}"#)?, Event::Progress("BUILD spawning".to_owned()));
        assert_eq!(read(r#"{"done": "exists"}"#)?, Event::Done("exists".to_owned()));
        assert_eq!(read(r#"{"address": "172.24.4.7"}"#)?, Event::Address(Ipv4Addr::new(172, 24, 4, 7)));
        assert_eq!(read(r#"{"error": "no host"}"#)?, Event::Error("no host".to_owned()));
        assert!(read("a warning").is_err());
        Ok(())
    }

    #[test]
    fn the_address_and_the_error_of_the_program_are_returned() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-launch-{}", std::process::id()));
        let log = Log::create(&Directories::find(Some(cache.clone()))?, "launch")?;
        let run = |script: &str| {
            // Reads its input as the client does.
            let script = format!("cat >/dev/null; {script}");
            create(Command::new("sh").args(["-c", &script]), &Progress::new(), &log)
        };
        let done =
            run(r#"echo '{"step":"a"}'; echo '{"done":""}'; echo noise; echo '{"address":"10.0.0.1"}'"#);
        assert_eq!(done?, Ipv4Addr::new(10, 0, 0, 1));
        let failed = run(r#"echo '{"step":"a"}'; echo '{"error":"no valid host"}'; exit 1"#);
        assert!(failed.is_err_and(|error| error.to_string() == "no valid host"));
        let crashed = run("echo Traceback >&2; exit 1").err().map(|error| error.to_string());
        assert!(crashed.is_some_and(|text| text.contains("Traceback") && text.contains("launch.log")));
        fs::remove_dir_all(cache)?;
        Ok(())
    }

    #[test]
    fn the_ssh_command_ignores_host_keys_of_earlier_vms() {
        assert_eq!(
            ssh_command(Path::new("/c/launch-key"), Ipv4Addr::new(172, 24, 4, 101)),
            "ssh -i /c/launch-key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
             root@172.24.4.101"
        );
    }

    #[test]
    fn a_name_is_a_host_name() {
        for good in ["vm", "vm-2", "Web1"] {
            assert_eq!(parse_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "-vm", "a b", "a.b", "ä", &"a".repeat(64)] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }
}
