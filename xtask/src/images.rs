//! Container images and the guest disk, built from `images/` and pushed to the local registry.

pub(crate) mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::command::{Log, output};
use crate::directories::Directories;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::process;
use crate::progress::{self, Progress};
use crate::registry::{self, PushRegistry};
use crate::store::{self, Key};
use crate::{host, images::table::Table};

/// The step after which images can be pushed.
pub(crate) const PUSH_STEP: &str = "push registry";
/// The tag that every image has besides the one of its content.
pub(crate) const RELEASE: &str = "2025.1";
/// The host's certificates: behind a proxy with its own authority, downloads in a build need them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build what changed and push it; without names, everything in the table.
    Build {
        /// Names from images/images.toml.
        names: Vec<String>,
    },
}

pub(crate) fn run(directories: &Directories, command: Command) -> Result<()> {
    let Command::Build { names } = command;
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let builder = Builder::new(directories);
    let mut graph = Graph::default();
    let all = builder.all_names()?;
    let wanted: Vec<&str> = if names.is_empty() {
        all.iter().map(String::as_str).collect()
    } else {
        names.iter().map(String::as_str).collect()
    };
    graph.add(Program::Registry.step(), Weight::Heavy, &[], |log| {
        Ok(Program::Registry.build(directories, log)?.detail())
    });
    builder.add_steps(&mut graph, &wanted)?;
    graph.run(directories, &Progress::new())
}

/// Builds images; shared by all steps that do.
pub(crate) struct Builder {
    pub(crate) directories: Directories,
    registry: OnceLock<PushRegistry>,
    table: OnceLock<Table>,
    /// Names with content tags, computed once: files that change while images are built belong to the next run.
    names: OnceLock<BTreeMap<String, String>>,
}

impl Builder {
    pub(crate) fn new(directories: &Directories) -> Self {
        Self {
            directories: directories.clone(),
            registry: OnceLock::new(),
            table: OnceLock::new(),
            names: OnceLock::new(),
        }
    }

    fn recipes(&self) -> PathBuf {
        self.directories.checkout.join("images")
    }

    pub(crate) fn table(&self) -> Result<&Table> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = Table::read(&self.recipes())?;
        Ok(self.table.get_or_init(|| table))
    }

    pub(crate) fn all_names(&self) -> Result<Vec<String>> {
        Ok(self.table()?.images().iter().map(|image| image.name.clone()).collect())
    }

    /// Name and content tag of an image of the table, without the registry.
    pub(crate) fn name(&self, image: &str) -> Result<String> {
        let names = if let Some(names) = self.names.get() {
            names
        } else {
            let table = self.table()?;
            let mut names = BTreeMap::new();
            for image in table.images() {
                let digits = table.key(&self.recipes(), image)?.digits();
                names.insert(image.name.clone(), format!("openstack/{}:{digits}", image.name));
            }
            self.names.get_or_init(|| names)
        };
        names.get(image).cloned().with_context(|| format!("there is no image {image:?}"))
    }

    /// Adds the steps that build these images and what they are based on.
    pub(crate) fn add_steps<'a>(&'a self, graph: &mut Graph<'a>, names: &[&str]) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for &name in names {
            let mut next = Some(name);
            while let Some(name) = next {
                wanted.insert(name);
                next = self.table()?.image(name)?.base.as_deref();
            }
        }
        if !graph.contains("host tools") {
            graph.add("host tools", Weight::Light, &[], host::ensure_tools);
        }
        if !graph.contains(PUSH_STEP) {
            graph.add(PUSH_STEP, Weight::Light, &["host tools", &Program::Registry.step()], |log| {
                self.clean_up(log)?;
                let registry = PushRegistry::start(&self.directories)?;
                Ok(self.registry.get_or_init(|| registry).address.clone())
            });
        }
        // In the order of the table, in which a base comes before what is built on it.
        for image in self.table()?.images().iter().filter(|image| wanted.contains(image.name.as_str())) {
            let name = image.name.clone();
            if graph.contains(&format!("image {name}")) {
                continue;
            }
            let after = image.base.as_ref().map(|base| format!("image {base}"));
            let after: Vec<&str> = after.as_deref().into_iter().chain([PUSH_STEP]).collect();
            graph.add(format!("image {name}"), Weight::Heavy, &after, move |log| self.ensure(&name, log));
        }
        Ok(())
    }

    /// Builds and pushes an image of the table, unless the registry has it.
    fn ensure(&self, name: &str, log: &Log) -> Result<String> {
        let started = Instant::now();
        let table = self.table()?;
        let image = table.image(name)?;
        let full = self.name(name)?;
        if self.has(&full) && (image.recipe != "guest" || self.guest_disk()?.exists()) {
            return Ok("cached".to_owned());
        }
        let context = self.context(name, &self.recipes().join(&image.recipe))?;
        let mut arguments = table.arguments(image)?;
        match &image.base {
            Some(base) => {
                let base = self.name(base)?;
                self.fetch(&base, log)?;
                arguments.push(("BASE", format!("localhost/{base}")));
            }
            None if image.recipe == "base" => {
                fs::write(context.join("users"), table.users())?;
                link_or_copy(&self.bootstrap(log)?, &context.join("rootfs.tar"))?;
            }
            None => {}
        }
        let constraints = "constraints-2025.1.txt";
        if arguments.iter().any(|(argument, _)| *argument == "PYTHON_PACKAGES") {
            fs::copy(self.recipes().join(constraints), context.join(constraints))?;
        }
        if let Some(program) = &image.program {
            self.build_program(program, &context, log)?;
        }
        self.build(&full, &context, &arguments, log)?;
        let size = self.size(&full)?;
        if image.recipe == "guest" {
            self.export_guest(&full, log)?;
        }
        // The content tag comes last: whoever finds it has nothing more to push.
        self.push(&full, &format!("openstack/{name}:{RELEASE}"), log)?;
        self.push(&full, &full, log)?;
        // Nothing is built on it, and the registry has it now.
        if !table.images().iter().any(|other| other.base.as_deref() == Some(name)) {
            self.forget(&full, log)?;
        }
        store::remove(&context)?;
        Ok(format!("{}, built in {:.0} s", progress::size(size), started.elapsed().as_secs_f64()))
    }

    /// The minimal system that the base image starts from.
    fn bootstrap(&self, log: &Log) -> Result<PathBuf> {
        let table = self.table()?;
        let packages = table.bootstrap_packages.join(",");
        let key = Key::default().text(&table.suite).text(&packages);
        let part = store::ensure(&self.directories, "bootstrap", key, |place| {
            let mut command = Process::new("mmdebstrap");
            command.args(["--variant=minbase", &format!("--include={packages}"), &table.suite]);
            log.run(command.arg(place.join("rootfs.tar")))
        })?;
        Ok(part.path.join("rootfs.tar"))
    }

    /// Puts a program of this workspace into a build context.
    fn build_program(&self, program: &str, context: &Path, log: &Log) -> Result<()> {
        let checkout = &self.directories.checkout;
        let mut cargo = Process::new("cargo");
        cargo.args(["build", "--release", "--locked", "--package", program]).current_dir(checkout);
        log.run(&mut cargo)?;
        let metadata = output(
            Process::new("cargo")
                .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
                .current_dir(checkout),
        )?;
        let metadata: serde_json::Value =
            serde_json::from_str(&metadata).context("cargo's metadata is not JSON")?;
        let target = metadata["target_directory"].as_str().context("cargo does not say where it builds")?;
        let built = Path::new(target).join("release").join(program);
        fs::copy(&built, context.join("program"))
            .with_context(|| format!("failed to copy {}", built.display()))?;
        Ok(())
    }

    /// A fresh build context with the files of the recipe.
    pub(crate) fn context(&self, name: &str, recipe: &Path) -> Result<PathBuf> {
        let context = self.directories.buildah().join("contexts").join(name);
        store::remove(&context)?;
        fs::create_dir_all(&context).with_context(|| format!("failed to create {}", context.display()))?;
        output(Process::new("cp").arg("-a").arg(recipe.join(".")).arg(&context))?;
        Ok(context)
    }

    /// buildah with a storage of its own: images of other programs on this machine are not ours to touch.
    fn buildah(&self, subcommand: &str) -> Result<Process> {
        let place = self.directories.buildah();
        fs::create_dir_all(&place).with_context(|| format!("failed to create {}", place.display()))?;
        // Who may sign what is a matter of the host's configuration; these images are our own.
        let policy = place.join("policy.json");
        if !policy.exists() {
            fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)
                .with_context(|| format!("failed to write {}", policy.display()))?;
        }
        let mut command = Process::new("buildah");
        command.arg("--root").arg(place.join("storage")).arg("--runroot").arg(place.join("run"));
        command.args(["--storage-driver", "overlay", subcommand]);
        if matches!(subcommand, "bud" | "pull" | "push") {
            command.arg("--signature-policy").arg(policy);
        }
        command.env("BUILDAH_ISOLATION", "chroot");
        Ok(command)
    }

    /// Removes the containers of builds that were killed; each would leave a mount behind.
    pub(crate) fn clean_up(&self, log: &Log) -> Result<()> {
        // Without the program nothing can have been built since it was removed.
        if self.directories.buildah().join("storage").exists() && host::find("buildah").is_some() {
            log.run(self.buildah("rm")?.arg("--all"))?;
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
        let mut command = self.buildah("bud")?;
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

    fn push_address(&self) -> Result<&str> {
        Ok(&self.registry.get().context("the registry to push to does not run")?.address)
    }

    pub(crate) fn push(&self, name: &str, target: &str, log: &Log) -> Result<()> {
        let mut command = self.buildah("push")?;
        command.args(["--quiet", "--tls-verify=false"]);
        command.arg(format!("localhost/{name}"));
        command.arg(format!("docker://{}/{target}", self.push_address()?));
        log.run(&mut command)
    }

    /// Brings an image that only the registry has back into the storage of builds.
    fn fetch(&self, name: &str, log: &Log) -> Result<()> {
        if output(self.buildah("inspect")?.args(["--type=image", &format!("localhost/{name}")])).is_ok() {
            return Ok(());
        }
        let source = format!("{}/{name}", self.push_address()?);
        log.run(self.buildah("pull")?.args([
            "--quiet",
            "--tls-verify=false",
            &format!("docker://{source}"),
        ]))?;
        log.run(self.buildah("tag")?.args([&source, &format!("localhost/{name}")]))
    }

    pub(crate) fn forget(&self, name: &str, log: &Log) -> Result<()> {
        log.run(self.buildah("rmi")?.arg(format!("localhost/{name}")))
    }

    fn size(&self, name: &str) -> Result<u64> {
        let images = output(self.buildah("images")?.args(["--json", &format!("localhost/{name}")]))?;
        let images: serde_json::Value =
            serde_json::from_str(&images).context("buildah's list is not JSON")?;
        let size = images.pointer("/0/size").and_then(serde_json::Value::as_str).unwrap_or_default();
        parse_size(size).with_context(|| format!("buildah gives the size of {name} as {size:?}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        registry::has(&self.directories, name)
    }

    /// Where the guest's disk is for programs on the host.
    pub(crate) fn guest_disk(&self) -> Result<PathBuf> {
        let table = self.table()?;
        let key = table.key(&self.recipes(), table.image("guest")?)?;
        Ok(store::place(&self.directories, "guest", key).join("guest.qcow2"))
    }

    fn export_guest(&self, name: &str, log: &Log) -> Result<()> {
        let table = self.table()?;
        let key = table.key(&self.recipes(), table.image("guest")?)?;
        store::ensure(&self.directories, "guest", key, |place| {
            let container =
                output(self.buildah("from")?.arg("--pull-never").arg(format!("localhost/{name}")))?;
            let container = container.trim();
            let root = output(self.buildah("mount")?.arg(container))?;
            fs::copy(Path::new(root.trim()).join("guest.qcow2"), place.join("guest.qcow2"))
                .context("the guest image has no /guest.qcow2")?;
            log.run(self.buildah("rm")?.arg(container))
        })?;
        Ok(())
    }
}

/// buildah writes sizes for people: `139 MB`.
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

fn link_or_copy(source: &Path, target: &Path) -> Result<()> {
    if fs::hard_link(source, target).is_err() {
        fs::copy(source, target)
            .with_context(|| format!("failed to copy {} to {}", source.display(), target.display()))?;
    }
    Ok(())
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
