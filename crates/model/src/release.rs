//! Releases of OpenStack, and values that differ between releases and image families.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::image::Family;

/// Declares every release once, with its number, from the oldest to the newest. An upgrade goes from one to the next.
macro_rules! releases {
    ($($(#[$attribute:meta])* $name:ident = $number:literal),+ $(,)?) => {
        /// OpenStack release.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Release {
            $($(#[$attribute])* #[serde(rename = $number)] $name,)+
        }

        impl Release {
            /// From the oldest to the newest.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            pub const fn number(self) -> &'static str {
                match self {
                    $(Self::$name => $number,)+
                }
            }
        }
    };
}

releases! {
    #[default] Epoxy = "2025.1",
    Gazpacho = "2026.1",
}

impl Release {
    pub const OLDEST: Self = Self::ALL[0];
    pub const NEWEST: Self = Self::ALL[Self::ALL.len() - 1];

    /// The release that an upgrade from this one leads to.
    pub fn next(self) -> Option<Self> {
        Self::ALL.iter().copied().find(|release| *release > self)
    }

    /// Why data of this release cannot be used with another one, and the supported way.
    pub fn refusal(self, wanted: Self) -> Option<String> {
        let numbers: Vec<&str> = Self::ALL.iter().map(|release| release.number()).collect();
        refusal(&numbers, self as usize, wanted as usize)
    }
}

/// Why a change between two releases of a list is refused.
fn refusal(numbers: &[&str], from: usize, to: usize) -> Option<String> {
    let (known, wanted) = (numbers[from], numbers[to]);
    if to < from {
        return Some(format!(
            "services of release {known} wrote the data, and release {wanted} cannot use it: set it to {known}. To go \
             back, restore backups from before the upgrade in a new cloud with release {wanted}"
        ));
    }
    (to > from + 1).then(|| {
        let next = numbers[from + 1];
        format!(
            "release {wanted} cannot use data of release {known}: releases cannot be skipped. Set it to {next} first, \
             and wait until that upgrade is complete"
        )
    })
}

/// Number of an unknown release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRelease(pub String);

impl fmt::Display for UnknownRelease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Release::ALL.iter().map(|release| release.number()).collect();
        write!(formatter, "unknown release {:?}: known releases are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownRelease {}

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(number: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().copied();
        all.find(|release| release.number() == number).ok_or_else(|| UnknownRelease(number.to_owned()))
    }
}

/// What the pods of an object run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    pub release: Release,
    pub family: Family,
}

impl Runtime {
    /// Every release in every family.
    pub fn all() -> impl Iterator<Item = Self> {
        let families = |release: &Release| Family::ALL.map(|family| Self { release: *release, family });
        Release::ALL.iter().flat_map(families)
    }
}

/// A range of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    first: Release,
    last: Release,
}

impl Releases {
    pub const ALL: Self = Self { first: Release::OLDEST, last: Release::NEWEST };

    pub const fn since(first: Release) -> Self {
        Self { first, ..Self::ALL }
    }

    pub const fn until(last: Release) -> Self {
        Self { last, ..Self::ALL }
    }

    pub fn contains(self, release: Release) -> bool {
        (self.first..=self.last).contains(&release)
    }

    pub fn last(self) -> Release {
        self.last
    }
}

/// Image families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    All,
    Only(Family),
}

impl Families {
    pub fn contains(self, family: Family) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == family,
        }
    }
}

/// A value that differs in some releases and families, e.g. the module of an API.
#[derive(Clone, Copy, Debug)]
pub struct Varying<T: 'static> {
    pub usual: T,
    /// The first one that applies counts.
    pub exceptions: &'static [(Releases, Families, T)],
}

impl<T: Copy> Varying<T> {
    /// A value that is the same everywhere.
    pub const fn same(usual: T) -> Self {
        Self { usual, exceptions: &[] }
    }

    pub fn of(&self, runtime: Runtime) -> T {
        let applies = |(releases, families, _): &&(Releases, Families, T)| {
            releases.contains(runtime.release) && families.contains(runtime.family)
        };
        self.exceptions.iter().find(applies).map_or(self.usual, |(_, _, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_parses_from_its_number() {
        for release in Release::ALL {
            assert_eq!(release.number().parse(), Ok(*release));
            assert_eq!(serde_json::to_value(release).ok(), Some(release.number().into()));
        }
        let unknown = "2020.1".parse::<Release>().unwrap_err();
        assert_eq!(unknown.to_string(), "unknown release \"2020.1\": known releases are 2025.1, 2026.1");
    }

    #[test]
    fn releases_are_ordered_by_their_numbers() {
        assert!(Release::ALL.is_sorted_by_key(|release| release.number()));
        assert!(Release::ALL.iter().enumerate().all(|(index, release)| *release as usize == index));
        assert_eq!(Release::Epoxy.next(), Some(Release::Gazpacho));
        assert_eq!(Release::NEWEST.next(), None);
    }

    #[test]
    fn a_release_follows_only_its_predecessor() {
        let numbers = ["1", "2", "3"];
        for from in 0..3 {
            for to in 0..3 {
                let accepted = to == from || to == from + 1;
                assert_eq!(refusal(&numbers, from, to).is_none(), accepted, "{from} to {to}");
            }
        }
        assert!(refusal(&numbers, 0, 2).unwrap().contains("Set it to 2 first"));
        assert!(refusal(&numbers, 1, 0).unwrap().contains("set it to 2. To go back, restore"));
    }

    #[test]
    fn the_first_exception_of_a_release_and_family_counts() {
        const NAME: Varying<&str> = Varying {
            usual: "usual",
            exceptions: &[
                (Releases::until(Release::Epoxy), Families::Only(Family::Debian), "old debian"),
                (Releases::ALL, Families::Only(Family::Debian), "debian"),
            ],
        };
        let names = Runtime::all().map(|runtime| NAME.of(runtime)).collect::<Vec<_>>();
        assert_eq!(names, ["usual", "old debian", "usual", "debian"]);
        assert_eq!(Varying::same(1).of(Runtime { release: Release::Epoxy, family: Family::Kolla }), 1);
    }
}
