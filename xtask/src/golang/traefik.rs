//! Traefik without the DNS providers of its ACME client: they are a third of its packages, and the Gateway of the local
//! cluster requests no certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::module_source;
use crate::command::{Log, output};

const CLIENT: &str = "github.com/go-acme/lego/v4";
/// Replaces the package that imports every provider.
pub(super) const NO_PROVIDERS: &str = r#"package dns

import (
	"fmt"

	"github.com/go-acme/lego/v4/challenge"
)

func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("this build has no DNS provider %s", name)
}
"#;

/// Creates a copy of the pinned module that uses a copy of the ACME client without providers, and returns its path.
pub(super) fn prepare(module: &Path, directory: &Path, log: &Log) -> Result<PathBuf> {
    let copy = directory.join("module");
    let client = copy.join("acme");
    output(Command::new("cp").arg("--recursive").arg(module).arg(&copy))?;
    // The module cache is read-only.
    output(
        Command::new("cp")
            .args(["--recursive", "--no-preserve=mode"])
            .arg(module_source(module, CLIENT, log)?)
            .arg(&client),
    )?;
    let providers = client.join("providers/dns");
    fs::remove_dir_all(&providers)
        .and_then(|()| fs::create_dir(&providers))
        .and_then(|()| fs::write(providers.join("providers.go"), NO_PROVIDERS))
        .with_context(|| format!("failed to replace {}", providers.display()))?;
    let replace = format!("-replace={CLIENT}=./acme");
    log.run(Command::new("go").args(["mod", "edit", &replace]).current_dir(&copy))?;
    Ok(copy)
}

/// Removes the copy, which is not part of the result.
pub(super) fn clean_up(copy: &Path) -> Result<()> {
    fs::remove_dir_all(copy).with_context(|| format!("failed to remove {}", copy.display()))
}
