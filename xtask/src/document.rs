//! Documents that show generated tables, each between two marks of its own.

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

    /// Hours of work must not end with a document that has no place for their results.
    pub(crate) fn require_places<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let text = self.read()?;
        for part in parts {
            self.placed(&text, part, "")?;
        }
        Ok(())
    }

    /// Replaces one part. The rest is read anew each time: a person may edit it while results come in.
    pub(crate) fn write(&self, part: &str, table: &str) -> Result<()> {
        let text = self.placed(&self.read()?, part, table)?;
        fs::write(&self.path, text).with_context(|| format!("failed to write {}", self.path.display()))
    }

    /// The table of a part.
    pub(crate) fn read_part(&self, part: &str) -> Result<String> {
        let text = self.read()?;
        let (_, table, _) = self.split(&text, part)?;
        Ok(table.to_owned())
    }

    fn read(&self) -> Result<String> {
        fs::read_to_string(&self.path).with_context(|| format!("failed to read {}", self.path.display()))
    }

    /// The document with another table in the place of a part.
    fn placed(&self, document: &str, part: &str, table: &str) -> Result<String> {
        let (before, _, after) = self.split(document, part)?;
        Ok(format!("{before}\n{table}\n{after}"))
    }

    /// The text up to a part's first mark, its table, and the text from its second mark on.
    fn split<'a>(&self, document: &'a str, part: &str) -> Result<(&'a str, &'a str, &'a str)> {
        let (begin, end) = (format!("<!-- {part} begins -->"), format!("<!-- {part} ends -->"));
        let first = document.find(&begin).map(|position| position + begin.len());
        let marks = first.and_then(|first| Some((first, first + document[first..].find(&end)?)));
        let Some((first, last)) = marks else {
            bail!("{} has no place for {part}: put {begin} and {end} where its table belongs", self.name);
        };
        Ok((&document[..first], &document[first..last], &document[last..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_that_of_the_same_part() -> Result<()> {
        let document = Document::new(Path::new(""), "a.md");
        let before =
            "a\n<!-- plan begins -->\nold\n<!-- plan ends -->\n<!-- crd begins -->\n<!-- crd ends -->\n";
        let after = document.placed(before, "plan", "new")?;
        assert_eq!(after, before.replace("old", "new"));
        assert!(document.placed(before, "fleet", "").is_err_and(|error| error.to_string().contains("a.md")));
        Ok(())
    }
}
