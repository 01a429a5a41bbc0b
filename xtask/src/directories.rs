//! Where everything lives on disk, and the lock that keeps two runs apart.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::fcntl::{Flock, FlockArg};

/// The directories of the tool. Only `checkout` is under version control.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    /// The project's own source.
    pub(crate) checkout: PathBuf,
    /// Everything the tool makes is below this directory.
    cache: PathBuf,
}

impl Directories {
    pub(crate) fn find(cache: Option<PathBuf>) -> Result<Self> {
        let cache = match cache {
            Some(directory) => std::path::absolute(directory)?,
            None => default_cache()?,
        };
        // The path becomes part of mount options and of argument lists that know no quoting.
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

    /// Parts that were built, by content.
    pub(crate) fn store(&self) -> PathBuf {
        self.cache.join("store")
    }

    /// State of the cluster that is up, or half up.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.cache.join("cluster")
    }

    /// What the local registry holds. It outlives the cluster, so that images need not be built again.
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

    /// Holds the cache for this run; another run that changes things waits its turn by failing at once.
    pub(crate) fn lock(&self) -> Result<Flock<File>> {
        let path = self.cache.join("lock");
        let file = File::create(&path).map_err(|error| explain_unwritable(&path, &error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(lock),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => bail!(
                "another cargo xtask is at work in {}: wait for it to end, or end it",
                self.cache.display()
            ),
            Err((_, error)) => Err(error).with_context(|| format!("failed to lock {}", path.display())),
        }
    }
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

fn explain_unwritable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::StorageFull => "free some space there",
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "make it writable, or pass --cache DIRECTORY (or set OPENSTACK_OPERATOR_CACHE)"
        }
        _ => "pass --cache DIRECTORY to use another place",
    };
    anyhow::anyhow!("cannot write the cache directory {}: {error}: {remedy}", path.display())
}
