//! Documents of oslo.config: sections of options, in a stable order, with options that take several values.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A document. Sections and options come out sorted, `DEFAULT` first, so that equal settings are equal bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    sections: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Overrides by section and option, as a user writes them. An option that takes several values has one a line.
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

    /// Sets an option that takes several values; without any it is left out.
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

    /// All settings of two documents; those of the other win.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (section, options) in other.sections {
            self.section(&section).extend(options);
        }
        self
    }

    /// Lets a user's settings win over ours.
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
    fn overrides_win_and_may_have_several_values() {
        let overrides =
            Overrides::from([("a".to_owned(), BTreeMap::from([("b".to_owned(), "1\n2".to_owned())]))]);
        let document = Document::new().set("a", "b", "0").merge(Some(&overrides));
        assert_eq!(document.render(), "[a]\nb = 1\nb = 2\n");
    }
}
