//! Manifests with placeholders: a placeholder is a name in double braces.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::command::Log;
use crate::directories::Directories;
use crate::kubectl::Kubectl;

/// Fills in the placeholders of a manifest, and fails for one without a value.
pub(crate) fn fill(manifest: &str, values: &[(&str, String)]) -> Result<String> {
    let mut text = manifest.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    // `{{ .Name }}`, with spaces, is a template of CoreDNS.
    if let Some(rest) = text.split("{{").skip(1).find(|rest| !rest.starts_with(' ')) {
        bail!("a manifest has no value for {}", rest.lines().next().unwrap_or_default());
    }
    Ok(text)
}

/// Applies a manifest to the local cluster. A file with its text stays for inspection, so it must contain no secret.
pub(crate) fn apply(directories: &Directories, name: &str, text: &str, log: &Log) -> Result<()> {
    let path = directories.cluster().join("manifests").join(format!("{name}.yaml"));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("failed to create {}", directory.display()))?;
    }
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Kubectl::local(directories)?.apply(None, &path, log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_without_a_value_is_reported() -> Result<()> {
        let values = [("a", "1".to_owned())];
        assert_eq!(fill("x: {y: {{a}}}", &values)?, "x: {y: 1}");
        assert_eq!(fill("{{ .Name }}", &values)?, "{{ .Name }}");
        let error = fill("{{a}} {{b}}\n", &values).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("a manifest has no value for b}}"));
        Ok(())
    }
}
