//! Tags of images by release, in flags and variables.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use openstack_operator_model::release::{Release, UnknownRelease};
use snafu::{OptionExt, Snafu, ensure};

/// A tag for each release: `RELEASE=TAG`, with commas between several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleaseTags(pub(crate) BTreeMap<Release, String>);

#[derive(Debug, Snafu)]
pub(crate) enum TagsError {
    #[snafu(display("{tag:?} names no release: write e.g. {}={tag}", Release::default().number()))]
    Plain { tag: String },
    #[snafu(display("{entry:?} has no tag: write e.g. {entry}{}", Release::default().number()))]
    Empty { entry: String },
    #[snafu(transparent)]
    Release { source: UnknownRelease },
    #[snafu(display("release {} has two tags: remove one of them", release.number()))]
    Twice { release: Release },
}

impl ReleaseTags {
    /// Merges tags; the last one of a release wins.
    pub(crate) fn merge(all: &[Self]) -> Self {
        Self(all.iter().flat_map(|tags| tags.0.clone()).collect())
    }
}

impl FromStr for ReleaseTags {
    type Err = TagsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut tags = BTreeMap::new();
        // An empty variable counts as unset.
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (release, tag) = entry.split_once('=').context(PlainSnafu { tag: entry })?;
            let release = release.parse()?;
            ensure!(!tag.is_empty(), EmptySnafu { entry });
            ensure!(tags.insert(release, tag.to_owned()).is_none(), TwiceSnafu { release });
        }
        Ok(Self(tags))
    }
}

impl fmt::Display for ReleaseTags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().map(|(release, tag)| format!("{}={tag}", release.number()));
        write!(formatter, "{}", entries.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_are_written() {
        let tags: ReleaseTags = "2025.1=2025.1-20261117".parse().unwrap();
        assert_eq!(tags.0, BTreeMap::from([(Release::Epoxy, "2025.1-20261117".to_owned())]));
        assert_eq!(tags.to_string(), "2025.1=2025.1-20261117");
        assert_eq!(" 2025.1=a , ".parse::<ReleaseTags>().unwrap().to_string(), "2025.1=a");
        assert_eq!("".parse::<ReleaseTags>().unwrap(), ReleaseTags::default());
    }

    #[test]
    fn a_tag_without_exactly_one_release_is_rejected_with_a_remedy() {
        let rejection = |text: &str| text.parse::<ReleaseTags>().unwrap_err().to_string();
        assert_eq!(rejection("nightly"), "\"nightly\" names no release: write e.g. 2025.1=nightly");
        assert_eq!(rejection("2025.1="), "\"2025.1=\" has no tag: write e.g. 2025.1=2025.1");
        assert_eq!(rejection("2020.1=a"), "unknown release \"2020.1\": known releases are 2025.1, 2026.1");
        assert_eq!(rejection("2025.1=a,2025.1=b"), "release 2025.1 has two tags: remove one of them");
    }
}
