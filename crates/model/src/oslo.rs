//! Configuration files of oslo.config: sections of options in a stable order, with multi-valued options.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::plan::{Piece, SecretKey};

/// A configuration file. Sections and options are sorted, `DEFAULT` first, so equal settings render equally.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    sections: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Overrides by section and option, as the user writes them. A multi-valued option has one value per line.
pub type Overrides = BTreeMap<String, BTreeMap<String, String>>;

impl Document {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an option to one value.
    #[must_use]
    pub fn set(mut self, section: &str, option: &str, value: impl std::fmt::Display) -> Self {
        self.section(section).insert(option.to_owned(), vec![value.to_string()]);
        self
    }

    /// Sets a multi-valued option. Without values it is omitted.
    #[must_use]
    pub fn set_all(mut self, section: &str, option: &str, values: &[String]) -> Self {
        if !values.is_empty() {
            self.section(section).insert(option.to_owned(), values.to_vec());
        }
        self
    }

    /// Sets several options of a section.
    #[must_use]
    pub fn section_of<const N: usize>(mut self, section: &str, options: [(&str, &str); N]) -> Self {
        for (option, value) in options {
            self = self.set(section, option, value);
        }
        self
    }

    /// Merges two documents. The other takes precedence.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (section, options) in other.sections {
            self.section(&section).extend(options);
        }
        self
    }

    /// Applies the overrides of the user.
    #[must_use]
    pub fn merge(mut self, overrides: Option<&Overrides>) -> Self {
        for (section, options) in overrides.into_iter().flatten() {
            for (option, value) in options {
                let values = value.lines().map(str::to_owned).collect();
                self.section(section).insert(option.clone(), values);
            }
        }
        self
    }

    fn section(&mut self, name: &str) -> &mut BTreeMap<String, Vec<String>> {
        self.sections.entry(name.to_owned()).or_default()
    }

    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, options) in default_first(&self.sections) {
            if !text.is_empty() {
                text.push('\n');
            }
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{name}]");
            for (option, values) in options {
                for value in values {
                    let _ = writeln!(text, "{option} = {value}");
                }
            }
        }
        text
    }
}

fn default_first<T>(sections: &BTreeMap<String, T>) -> impl Iterator<Item = (&String, &T)> {
    let first = sections.get_key_value("DEFAULT");
    first.into_iter().chain(sections.iter().filter(|(name, _)| *name != "DEFAULT"))
}

/// A configuration file with values of Secrets. It is the template of a Secret; nothing but the engine fills in the values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecretDocument {
    /// Lines by section and option.
    sections: BTreeMap<String, BTreeMap<String, Vec<Piece>>>,
}

impl SecretDocument {
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Whether it sets an option.
    pub fn contains(&self, section: &str, option: &str) -> bool {
        self.sections.get(section).is_some_and(|options| options.contains_key(option))
    }

    /// Sets an option to values of Secrets, one per line.
    pub fn set(&mut self, section: &str, option: &str, values: &[SecretKey]) {
        let pieces = values.iter().flat_map(|key| line(option, vec![Piece::Option(key.clone())]));
        self.insert(section, option, pieces.collect());
    }

    /// Sets an option to one value that consists of pieces, e.g. a URL.
    pub fn set_template(&mut self, section: &str, option: &str, value: Vec<Piece>) {
        self.insert(section, option, line(option, value).collect());
    }

    /// Sets a multi-valued option to all keys of a ring, the key that signs first.
    pub fn set_keys(&mut self, section: &str, option: &str, ring: &str) {
        let (before, after) = (format!("{option} = "), "\n".to_owned());
        self.insert(section, option, vec![Piece::Keys { ring: ring.to_owned(), before, after }]);
    }

    fn insert(&mut self, section: &str, option: &str, lines: Vec<Piece>) {
        self.sections.entry(section.to_owned()).or_default().insert(option.to_owned(), lines);
    }

    pub fn template(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (name, options) in default_first(&self.sections) {
            let space = if pieces.is_empty() { "" } else { "\n" };
            pieces.push(Piece::Text(format!("{space}[{name}]\n")));
            pieces.extend(options.values().flatten().cloned());
        }
        pieces
    }
}

fn line(option: &str, value: Vec<Piece>) -> impl Iterator<Item = Piece> {
    let (start, end) = (Piece::Text(format!("{option} = ")), Piece::Text("\n".to_owned()));
    std::iter::once(start).chain(value).chain([end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_values_of_secrets_is_a_template_without_values() {
        let mut document = SecretDocument::default();
        document.set("b", "kek", &[SecretKey::new("new", "key"), SecretKey::new("old", "key")]);
        document.set_keys("b", "ring", "keys");
        document.set_template("DEFAULT", "url", vec![Piece::Escaped(SecretKey::new("s", "password"))]);
        let text = |text: &str| Piece::Text(text.to_owned());
        let option = |secret: &str| Piece::Option(SecretKey::new(secret, "key"));
        let ring = Piece::Keys { ring: "keys".into(), before: "ring = ".into(), after: "\n".into() };
        let expected = vec![
            text("[DEFAULT]\n"),
            text("url = "),
            Piece::Escaped(SecretKey::new("s", "password")),
            text("\n"),
            text("\n[b]\n"),
            text("kek = "),
            option("new"),
            text("\n"),
            text("kek = "),
            option("old"),
            text("\n"),
            ring,
        ];
        assert_eq!(document.template(), expected);
        assert!(document.contains("b", "kek") && !document.contains("a", "kek"));
    }

    #[test]
    fn sections_are_sorted_with_default_first() {
        let document = Document::new().set("cache", "enabled", true).set("DEFAULT", "debug", false);
        assert_eq!(document.render(), "[DEFAULT]\ndebug = false\n\n[cache]\nenabled = true\n");
    }

    #[test]
    fn overrides_take_precedence_and_can_have_several_values() {
        let overrides =
            Overrides::from([("a".to_owned(), BTreeMap::from([("b".to_owned(), "1\n2".to_owned())]))]);
        let document = Document::new().set("a", "b", "0").merge(Some(&overrides));
        assert_eq!(document.render(), "[a]\nb = 1\nb = 2\n");
    }
}
