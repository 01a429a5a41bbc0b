//! The directories of the tool, and the lock that excludes a second run.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::process;

/// The directories of the tool. Only `checkout` is under version control.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    /// The source of the project.
    pub(crate) checkout: PathBuf,
    /// Everything that the tool creates is below this directory.
    cache: PathBuf,
}

impl Directories {
    pub(crate) fn find(cache: Option<PathBuf>) -> Result<Self> {
        let cache = match cache {
            Some(directory) => std::path::absolute(directory)?,
            None => default_cache()?,
        };
        // The path becomes part of mount options and argument lists without quoting.
        if cache.to_string_lossy().contains([' ', '\t', '\n', ',', ':']) {
            bail!(
                "the cache directory {} has white space, a comma or a colon in its name: pass another with \
                 --cache DIRECTORY",
                cache.display()
            );
        }
        fs::create_dir_all(&cache).map_err(|error| explain_unwritable(&cache, &error))?;
        let probe = cache.join(".writable");
        File::create(&probe).map_err(|error| explain_unwritable(&cache, &error))?;
        fs::remove_file(&probe).with_context(|| format!("failed to remove {}", probe.display()))?;
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the xtask crate has no parent directory")?
            .to_owned();
        Ok(Self { checkout, cache })
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Built parts, by content.
    pub(crate) fn store(&self) -> PathBuf {
        self.cache.join("store")
    }

    /// State of the cluster.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.cache.join("cluster")
    }

    /// Storage of the local registry. It outlives the cluster, so that images are built once.
    pub(crate) fn registry(&self) -> PathBuf {
        self.cache.join("registry")
    }

    /// Layers and containers of image builds.
    pub(crate) fn buildah(&self) -> PathBuf {
        self.cache.join("buildah")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.cache.join("logs")
    }

    /// Locks the cache for this run. A run that a step of the lock's owner started waits for its siblings; any
    /// other run fails at once.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let path = self.cache.join("lock");
        let file = open_lock(&path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                Owner::current().write(&mut lock).map_err(|error| explain_unwritable(&path, &error))?;
                Ok(Lock { _file: lock })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let owner = Owner::read(&mut file);
                if owner.as_ref().is_some_and(|owner| process::ancestors().contains(&owner.process)) {
                    return self.lock_beside_siblings();
                }
                let owner = owner.map_or_else(String::new, |owner| format!(": {owner}"));
                bail!("another cargo xtask is running{owner}; wait for it or stop it")
            }
            Err((_, error)) => Err(error).with_context(|| format!("failed to lock {}", path.display())),
        }
    }

    fn lock_beside_siblings(&self) -> Result<Lock> {
        let path = self.cache.join("lock.nested");
        let lock = Flock::lock(open_lock(&path)?, FlockArg::LockExclusive);
        let lock = lock.map_err(|(_, error)| error);
        Ok(Lock { _file: lock.with_context(|| format!("failed to lock {}", path.display()))? })
    }
}

/// The lock on the cache directory. The kernel releases it when the process ends, however that happens.
pub(crate) struct Lock {
    _file: Flock<File>,
}

/// The run that holds the lock, as the lock file records it.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    process: i32,
    command: String,
}

impl Owner {
    fn current() -> Self {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|argument| argument.to_string_lossy().into_owned());
        let command: Vec<String> =
            ["cargo".to_owned(), "xtask".to_owned()].into_iter().chain(words).collect();
        Self { process: process::current(), command: command.join(" ") }
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{} {}\n", self.process, self.command).as_bytes())
    }

    /// Reads the owner; an owner that has not written the file yet is unknown.
    fn read(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let (process, command) = text.trim_end().split_once(' ')?;
        Some(Self { process: process.parse().ok()?, command: command.to_owned() })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {}, {}", self.process, self.command)
    }
}

/// Opens a lock file without truncating it: it may name its owner.
fn open_lock(path: &Path) -> Result<File> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| explain_unwritable(path, &error))
}

fn default_cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(
            std::env::var_os("HOME").context("HOME is not set: set it, or pass --cache DIRECTORY")?,
        )
        .join(".cache"),
    };
    Ok(base.join("openstack-operator"))
}

fn explain_unwritable(path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::StorageFull => "free some space there",
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "make it writable, or pass --cache DIRECTORY (or set OPENSTACK_OPERATOR_CACHE)"
        }
        _ => "pass --cache DIRECTORY to use another directory",
    };
    anyhow::anyhow!("cannot write the cache directory {}: {error}: {remedy}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_inside_another_locks_beside_it() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-directories-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let outer = directories.lock()?;
        let owner = Owner::read(&mut open_lock(&cache.join("lock"))?);
        assert_eq!(owner, Some(Owner::current()));
        drop(directories.lock()?);
        drop(outer);
        fs::remove_dir_all(cache)?;
        Ok(())
    }
}
