//! Documents with generated tables, each between two markers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub(crate) struct Document {
    /// Path below the checkout.
    name: &'static str,
    path: PathBuf,
}

impl Document {
    pub(crate) fn new(checkout: &Path, name: &'static str) -> Self {
        Self { name, path: checkout.join(name) }
    }

    /// Checks the markers of all parts before the work that produces their tables.
    pub(crate) fn require_markers<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let text = self.read()?;
        for part in parts {
            self.replace(&text, part, "")?;
        }
        Ok(())
    }

    /// Replaces the table of one part. Reads the document again, because the user may edit it meanwhile.
    pub(crate) fn write(&self, part: &str, table: &str) -> Result<()> {
        let text = self.replace(&self.read()?, part, table)?;
        fs::write(&self.path, text).with_context(|| format!("failed to write {}", self.path.display()))
    }

    fn read(&self) -> Result<String> {
        fs::read_to_string(&self.path).with_context(|| format!("failed to read {}", self.path.display()))
    }

    /// The document with another table for a part.
    fn replace(&self, document: &str, part: &str, table: &str) -> Result<String> {
        let (begin, end) = (format!("<!-- {part} begins -->"), format!("<!-- {part} ends -->"));
        let split =
            document.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
        let Some((before, (_, after))) = split else {
            bail!("{} has no markers for {part}: add {begin} and {end} where its table belongs", self.name);
        };
        Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_the_previous_one_of_its_part() -> Result<()> {
        let document = Document::new(Path::new(""), "a.md");
        let before =
            "a\n<!-- plan begins -->\nold\n<!-- plan ends -->\n<!-- crd begins -->\n<!-- crd ends -->\n";
        let after = document.replace(before, "plan", "new")?;
        assert_eq!(after, before.replace("old", "new"));
        assert!(document.replace(before, "fleet", "").is_err_and(|error| error.to_string().contains("a.md")));
        Ok(())
    }
}
