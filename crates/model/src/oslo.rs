//! Configuration files of oslo.config: sections of options in a stable order, with multi-valued options.

use std::collections::BTreeMap;
use std::fmt::Write;

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
        let first = self.sections.get_key_value("DEFAULT");
        let others = self.sections.iter().filter(|(name, _)| *name != "DEFAULT");
        for (name, options) in first.into_iter().chain(others) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
