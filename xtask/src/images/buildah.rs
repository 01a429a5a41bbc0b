//! buildah with a separate storage, which leaves other images of this machine alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{Log, output};
use crate::directories::Directories;
use crate::host;

/// The certificates of the host: downloads of a build may pass a proxy with a private CA.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(crate) struct Buildah {
    directories: Directories,
}

impl Buildah {
    pub(crate) fn new(directories: &Directories) -> Self {
        Self { directories: directories.clone() }
    }

    fn command(&self, subcommand: &str) -> Result<Command> {
        let directory = self.directories.buildah();
        fs::create_dir_all(&directory)
            .with_context(|| format!("failed to create {}", directory.display()))?;
        // The signature policy of the host may reject these local images.
        let policy = directory.join("policy.json");
        if !policy.exists() {
            fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)
                .with_context(|| format!("failed to write {}", policy.display()))?;
        }
        let mut command = Command::new("buildah");
        command.arg("--root").arg(directory.join("storage")).arg("--runroot").arg(directory.join("run"));
        command.args(["--storage-driver", "overlay", subcommand]);
        if matches!(subcommand, "bud" | "pull" | "push") {
            command.arg("--signature-policy").arg(policy);
        }
        command.env("BUILDAH_ISOLATION", "chroot");
        Ok(command)
    }

    /// Removes the containers of killed builds, and their mounts.
    pub(crate) fn clean_up(&self, log: &Log) -> Result<()> {
        // Without the program there are no builds.
        if self.directories.buildah().join("storage").exists() && host::find("buildah").is_some() {
            log.run(self.command("rm")?.arg("--all"))?;
        }
        Ok(())
    }

    pub(crate) fn build(
        &self,
        name: &str,
        context: &Path,
        arguments: &[(&str, String)],
        log: &Log,
    ) -> Result<()> {
        let mut command = self.command("bud")?;
        command.args(["--layers=false", "--pull-never", "--format=oci"]);
        for (argument, value) in arguments {
            if *argument == "PYTHON_PACKAGES" {
                command.arg(format!("--volume={CERTIFICATES}:{CERTIFICATES}:ro"));
            }
            command.arg(format!("--build-arg={argument}={value}"));
        }
        command.arg(format!("--tag=localhost/{name}")).arg(context);
        log.run(&mut command)
    }

    pub(crate) fn push(&self, registry: &str, name: &str, log: &Log) -> Result<()> {
        let mut command = self.command("push")?;
        command.args(["--quiet", "--tls-verify=false"]);
        command.arg(format!("localhost/{name}"));
        command.arg(format!("docker://{registry}/{name}"));
        log.run(&mut command)
    }

    /// Pulls an image that only the registry has.
    pub(crate) fn fetch(&self, registry: &str, name: &str, log: &Log) -> Result<()> {
        if output(self.command("inspect")?.args(["--type=image", &format!("localhost/{name}")])).is_ok() {
            return Ok(());
        }
        let source = format!("{registry}/{name}");
        log.run(self.command("pull")?.args([
            "--quiet",
            "--tls-verify=false",
            &format!("docker://{source}"),
        ]))?;
        log.run(self.command("tag")?.args([&source, &format!("localhost/{name}")]))
    }

    pub(crate) fn forget(&self, name: &str, log: &Log) -> Result<()> {
        log.run(self.command("rmi")?.arg(format!("localhost/{name}")))
    }

    pub(crate) fn size(&self, name: &str) -> Result<u64> {
        let images = output(self.command("images")?.args(["--json", &format!("localhost/{name}")]))?;
        let images: serde_json::Value =
            serde_json::from_str(&images).context("buildah's list is not JSON")?;
        let size = images.pointer("/0/size").and_then(serde_json::Value::as_str).unwrap_or_default();
        parse_size(size).with_context(|| format!("buildah reports the size of {name} as {size:?}"))
    }

    /// Copies a file from the root of an image to a directory of the host.
    pub(crate) fn copy_out(&self, name: &str, file: &str, directory: &Path, log: &Log) -> Result<()> {
        let container = output(self.command("from")?.arg("--pull-never").arg(format!("localhost/{name}")))?;
        let container = container.trim();
        let root = output(self.command("mount")?.arg(container))?;
        fs::copy(Path::new(root.trim()).join(file), directory.join(file))
            .with_context(|| format!("image {name} has no /{file}"))?;
        log.run(self.command("rm")?.arg(container))
    }
}

/// buildah prints sizes as `139 MB`.
fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    let factor: f64 = match unit {
        "B" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size is small and positive"
    )]
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_of_buildah_are_read() {
        assert_eq!(super::parse_size("139 MB"), Some(139_000_000));
        assert_eq!(super::parse_size("1.5 GB"), Some(1_500_000_000));
        assert_eq!(super::parse_size("big"), None);
    }
}
