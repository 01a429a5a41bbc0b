//! Programs built from Go modules that are pinned under `xtask/go`.

mod traefik;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use crate::command::{Log, output};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::store::{self, Key, Part};

/// A pinned module and its program or programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// API server, controller manager, scheduler, kubelet, proxy and kubectl in one program.
    Kubernetes,
    Etcd,
    /// With its shim and command line.
    Containerd,
    Registry,
    Pause,
    Coredns,
    LocalPathProvisioner,
    Traefik,
    /// For the tests of the chart.
    Helm,
}

#[cfg(test)]
const ALL: [Program; 9] = [
    Program::Kubernetes,
    Program::Registry,
    Program::Pause,
    Program::Etcd,
    Program::Containerd,
    Program::Coredns,
    Program::LocalPathProvisioner,
    Program::Traefik,
    Program::Helm,
];

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::Registry => "registry",
            Self::Pause => "pause",
            Self::Coredns => "coredns",
            Self::LocalPathProvisioner => "local-path-provisioner",
            Self::Traefik => "traefik",
            Self::Helm => "helm",
        }
    }

    /// The name of the step that builds it.
    pub(crate) fn step(self) -> String {
        format!("build {}", self.name())
    }

    /// Modules that contain their program are tools in go.mod; the others have a main package under `xtask/go`.
    fn target(self) -> &'static str {
        match self {
            Self::Containerd | Self::LocalPathProvisioner | Self::Traefik | Self::Helm => "tool",
            _ => ".",
        }
    }

    fn module(self, directories: &Directories) -> PathBuf {
        directories.checkout.join("xtask/go").join(self.name())
    }

    /// Kubernetes reports the version that the linker sets: the one that go.mod pins.
    fn linker_flags(self, module: &Path) -> Result<String> {
        let mut flags = "-s -w".to_owned();
        if self == Self::Kubernetes {
            let version = pinned_version(module, "k8s.io/kubernetes")?;
            flags.push_str(" -X k8s.io/component-base/version.gitVersion=");
            flags.push_str(&version);
        }
        Ok(flags)
    }

    fn key(self, directories: &Directories) -> Result<Key> {
        let key = Key::default().text(go_version()?).text("-trimpath").path(&self.module(directories))?;
        Ok(if self == Self::Traefik { key.text(traefik::NO_PROVIDERS) } else { key })
    }

    /// The hash of the program's inputs.
    pub(crate) fn version(self, directories: &Directories) -> Result<String> {
        Ok(self.key(directories)?.digits())
    }

    /// The directory of the built program.
    pub(crate) fn directory(self, directories: &Directories) -> Result<PathBuf> {
        Ok(store::part_path(directories, self.name(), self.key(directories)?))
    }

    /// Adds the step that builds it.
    pub(crate) fn add_step<'a>(self, graph: &mut Graph<'a>, directories: &'a Directories) {
        graph.add(self.step(), Weight::Heavy, &[], move |log| Ok(self.build(directories, log)?.detail()));
    }

    pub(crate) fn build(self, directories: &Directories, log: &Log) -> Result<Part> {
        let module = self.module(directories);
        store::ensure(directories, self.name(), self.key(directories)?, |directory| {
            if self == Self::Traefik {
                let copy = traefik::prepare(&module, directory, log)?;
                self.compile(&copy, directory, log)?;
                return traefik::clean_up(&copy);
            }
            self.compile(&module, directory, log)
        })
    }

    fn compile(self, module: &Path, directory: &Path, log: &Log) -> Result<()> {
        log.run(
            Command::new("go")
                // The linker removes debug information, so the compiler need not produce it: a fifth of its time.
                .args(["build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags"])
                .arg(self.linker_flags(module)?)
                .arg("-o")
                .arg(directory)
                .arg(self.target())
                .env("CGO_ENABLED", "0")
                .current_dir(module),
        )
    }
}

/// The version of Go, on which the key of every program depends.
fn go_version() -> Result<&'static str> {
    static VERSION: OnceLock<String> = OnceLock::new();
    if let Some(version) = VERSION.get() {
        return Ok(version);
    }
    let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
    Ok(VERSION.get_or_init(|| version.trim().to_owned()))
}

/// The CRDs of the Gateway API in one file, of the version that go.mod pins.
pub(crate) fn gateway_api_manifests(directories: &Directories, log: &Log) -> Result<Part> {
    const MODULE: &str = "sigs.k8s.io/gateway-api";
    let module = directories.checkout.join("xtask/go/gateway-api");
    store::ensure(directories, "gateway-api", Key::default().path(&module)?, |directory| {
        let source = module_source(&module, MODULE, log)?.join("config/crd/standard");
        let mut files: Vec<PathBuf> = fs::read_dir(&source)
            .with_context(|| format!("failed to list {}", source.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        let manifests: Vec<String> = files.iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
        Ok(fs::write(directory.join("manifests.yaml"), manifests.join("\n---\n"))?)
    })
}

/// The directory with the source of a dependency, of the version that go.mod pins.
fn module_source(module: &Path, dependency: &str, log: &Log) -> Result<PathBuf> {
    log.run(Command::new("go").args(["mod", "download", dependency]).current_dir(module))?;
    let source =
        output(Command::new("go").args(["list", "-m", "-f", "{{.Dir}}", dependency]).current_dir(module))?;
    Ok(PathBuf::from(source.trim()))
}

fn pinned_version(module: &Path, dependency: &str) -> Result<String> {
    let text = fs::read_to_string(module.join("go.mod"))
        .with_context(|| format!("failed to read go.mod in {}", module.display()))?;
    text.lines()
        .filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(dependency))
        .find_map(|rest| rest.split_whitespace().next().filter(|word| word.starts_with('v')))
        .map(ToOwned::to_owned)
        .with_context(|| format!("go.mod in {} does not pin {dependency}", module.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_pinned_module() -> Result<()> {
        let directories = Directories::find(Some(std::env::temp_dir().join("xtask-golang-test")))?;
        for program in ALL {
            assert!(program.module(&directories).join("go.mod").exists(), "{}", program.name());
        }
        let kubernetes = Program::Kubernetes;
        let flags = kubernetes.linker_flags(&kubernetes.module(&directories))?;
        assert!(flags.contains("gitVersion=v1.36."), "{flags}");
        Ok(())
    }
}
