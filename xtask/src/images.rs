//! Container images and the guest disk, built from `images/` and pushed to the local registry.

pub(crate) mod buildah;
pub(crate) mod origin;
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
use crate::host;
use crate::process;
use crate::progress::{self, Progress};
use crate::registry::{self, PushRegistry};
use crate::store::{self, Key};
use buildah::Buildah;
use table::Table;

/// The step after which images can be pushed.
pub(crate) const PUSH_STEP: &str = "push registry";
/// The path of the table's images in the registry.
pub(crate) const PROJECT: &str = "openstack";
/// The tag that every image has besides the tag of its content.
pub(crate) const RELEASE: &str = "2025.1";

/// The step that builds an image of the table.
pub(crate) fn step(image: &str) -> String {
    format!("image {image}")
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build and push the images whose recipe changed; without names, all images of the table.
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
    for name in &wanted {
        if builder.table()?.image(name)?.program.is_some() {
            builder.add_program(&mut graph, name)?;
        }
    }
    Program::Registry.add_step(&mut graph, directories);
    builder.add_steps(&mut graph, &wanted)?;
    let progress = Progress::new();
    host::ensure_tools(directories, &progress)?;
    graph.run(directories, &progress)
}

/// Builds images; all steps share it.
pub(crate) struct Builder {
    pub(crate) directories: Directories,
    buildah: Buildah,
    registry: OnceLock<PushRegistry>,
    table: OnceLock<Table>,
    /// The hash of each image's inputs, read once: a file that changes during the builds counts for the next run.
    keys: OnceLock<BTreeMap<String, Key>>,
}

impl Builder {
    pub(crate) fn new(directories: &Directories) -> Self {
        Self {
            directories: directories.clone(),
            buildah: Buildah::new(directories),
            registry: OnceLock::new(),
            table: OnceLock::new(),
            keys: OnceLock::new(),
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

    /// The hash of an image's inputs.
    fn key(&self, image: &str) -> Result<Key> {
        let keys = if let Some(keys) = self.keys.get() {
            keys
        } else {
            let table = self.table()?;
            let mut keys = BTreeMap::new();
            for image in table.images() {
                keys.insert(image.name.clone(), table.key(&self.recipes(), image)?);
            }
            self.keys.get_or_init(|| keys)
        };
        keys.get(image).cloned().with_context(|| format!("there is no image {image:?}"))
    }

    /// Name and content tag of an image of the table, without the registry.
    pub(crate) fn name(&self, image: &str) -> Result<String> {
        Ok(format!("{PROJECT}/{image}:{}", self.digits(image)?))
    }

    /// The content tag of an image of the table.
    pub(crate) fn digits(&self, image: &str) -> Result<String> {
        Ok(self.key(image)?.digits())
    }

    /// The path of the program in an image, on the host.
    pub(crate) fn program(&self, image: &str) -> Result<PathBuf> {
        let program = self.table()?.image(image)?.program()?;
        Ok(store::part_path(&self.directories, program, self.key(image)?).join(program))
    }

    /// Adds the steps that build these images and their bases.
    pub(crate) fn add_steps<'a>(&'a self, graph: &mut Graph<'a>, names: &[&str]) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for &name in names {
            let mut next = Some(name);
            while let Some(name) = next {
                wanted.insert(name);
                next = self.table()?.image(name)?.base.as_deref();
            }
        }
        if !graph.contains(PUSH_STEP) {
            graph.add(PUSH_STEP, Weight::Light, &[&Program::Registry.step()], |log| {
                self.buildah.clean_up(log)?;
                let registry = PushRegistry::start(&self.directories)?;
                Ok(self.registry.get_or_init(|| registry).address.clone())
            });
        }
        // The table lists a base before its derived images.
        for image in self.table()?.images().iter().filter(|image| wanted.contains(image.name.as_str())) {
            let name = image.name.clone();
            if graph.contains(&step(&name)) {
                continue;
            }
            let mut after = vec![PUSH_STEP.to_owned()];
            after.extend(image.base.as_deref().map(step));
            if image.program.is_some() {
                after.push(self.add_program(graph, &name)?);
            }
            let after: Vec<&str> = after.iter().map(String::as_str).collect();
            graph.add(step(&name), Weight::Packages, &after, move |log| self.ensure(&name, log));
        }
        Ok(())
    }

    /// Adds the step that builds the program of an image, unless the graph has it, and returns its name.
    pub(crate) fn add_program<'a>(&'a self, graph: &mut Graph<'a>, image: &str) -> Result<String> {
        let image = self.table()?.image(image)?;
        let program = image.program()?;
        let step = format!("build {program}");
        if !graph.contains(&step) {
            graph.add(&step, Weight::Heavy, &[], move |log| self.build_program(&image.name, program, log));
        }
        Ok(step)
    }

    /// Builds and pushes an image of the table, unless the registry has it.
    fn ensure(&self, name: &str, log: &Log) -> Result<String> {
        let started = Instant::now();
        let table = self.table()?;
        let image = table.image(name)?;
        let full = self.name(name)?;
        if self.has(&full) && (image.recipe != "guest" || self.guest_disk()?.exists()) {
            // A later build may have moved the tag of the release.
            registry::tag(&self.directories, &full, RELEASE)?;
            return Ok("cached".to_owned());
        }
        let context = self.context(name, &self.recipes().join(&image.recipe))?;
        let mut arguments = table.arguments(image)?;
        match &image.base {
            Some(base) => {
                let base = self.name(base)?;
                self.buildah.fetch(self.push_address()?, &base, log)?;
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
        if image.program.is_some() {
            link_or_copy(&self.program(name)?, &context.join("program"))?;
        }
        self.buildah.build(&full, &context, &arguments, log)?;
        let size = self.buildah.size(&full)?;
        if image.recipe == "guest" {
            store::ensure(&self.directories, "guest", self.key("guest")?, |directory| {
                self.buildah.copy_out(&full, "guest.qcow2", directory, log)
            })?;
        }
        self.push(&full, log)?;
        registry::tag(&self.directories, &full, RELEASE)?;
        // No other image needs it here, and the registry has it.
        if !table.images().iter().any(|other| other.base.as_deref() == Some(name)) {
            self.buildah.forget(&full, log)?;
        }
        store::remove(&context)?;
        Ok(format!("{}, built in {:.0} s", progress::size(size), started.elapsed().as_secs_f64()))
    }

    /// The minimal system of the base image.
    fn bootstrap(&self, log: &Log) -> Result<PathBuf> {
        let table = self.table()?;
        let packages = table.bootstrap_packages.join(",");
        let key = Key::default().text(&table.suite).text(&packages);
        let part = store::ensure(&self.directories, "bootstrap", key, |directory| {
            let mut command = Process::new("mmdebstrap");
            command.args(["--variant=minbase", &format!("--include={packages}"), &table.suite]);
            log.run(command.arg(directory.join("rootfs.tar")))
        })?;
        Ok(part.path.join("rootfs.tar"))
    }

    /// Builds the program of an image.
    fn build_program(&self, image: &str, program: &str, log: &Log) -> Result<String> {
        let part = store::ensure(&self.directories, program, self.key(image)?, |directory| {
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
            let target =
                metadata["target_directory"].as_str().context("cargo reports no target directory")?;
            let built = Path::new(target).join("release").join(program);
            fs::copy(&built, directory.join(program))
                .with_context(|| format!("failed to copy {}", built.display()))?;
            Ok(())
        })?;
        Ok(part.detail())
    }

    /// A new build context with the files of the recipe.
    pub(crate) fn context(&self, name: &str, recipe: &Path) -> Result<PathBuf> {
        let context = self.directories.buildah().join("contexts").join(name);
        store::remove(&context)?;
        fs::create_dir_all(&context).with_context(|| format!("failed to create {}", context.display()))?;
        output(Process::new("cp").arg("-a").arg(recipe.join(".")).arg(&context))?;
        Ok(context)
    }

    /// Builds and pushes an image that is not in the table.
    pub(crate) fn build_other(&self, name: &str, context: &Path, log: &Log) -> Result<()> {
        self.buildah.build(name, context, &[], log)?;
        self.push(name, log)?;
        self.buildah.forget(name, log)
    }

    fn push(&self, name: &str, log: &Log) -> Result<()> {
        self.buildah.push(self.push_address()?, name, log)
    }

    fn push_address(&self) -> Result<&str> {
        Ok(&self.registry.get().context("the push registry does not run")?.address)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        registry::has(&self.directories, name)
    }

    /// The path of the guest disk on the host.
    fn guest_disk(&self) -> Result<PathBuf> {
        Ok(store::part_path(&self.directories, "guest", self.key("guest")?).join("guest.qcow2"))
    }
}

fn link_or_copy(source: &Path, target: &Path) -> Result<()> {
    if fs::hard_link(source, target).is_err() {
        fs::copy(source, target)
            .with_context(|| format!("failed to copy {} to {}", source.display(), target.display()))?;
    }
    Ok(())
}
