//! Acknowledged writes, and those among them that the cloud does not have.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// What a write creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Project,
    Port,
    Keypair,
    Server,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Port => "port",
            Self::Keypair => "keypair",
            Self::Server => "server",
        }
    }
}

/// A write that an API has acknowledged.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Write {
    /// When it was acknowledged, in seconds since 1970.
    pub(super) time: f64,
    pub(super) kind: Kind,
    pub(super) id: String,
}

/// The identifiers of everything that exists, by kind.
pub(super) type Found = BTreeMap<Kind, BTreeSet<String>>;

/// The acknowledged writes until a time, without those that the drill has deleted itself.
pub(super) fn acknowledged<'a>(
    writes: &'a [Write],
    until: f64,
    released: &BTreeSet<String>,
) -> Vec<&'a Write> {
    writes.iter().filter(|write| write.time <= until && !released.contains(&write.id)).collect()
}

/// The acknowledged writes that the cloud does not have.
pub(super) fn missing<'a>(acknowledged: &[&'a Write], found: &Found) -> Vec<&'a Write> {
    let is_found = |write: &Write| found.get(&write.kind).is_some_and(|ids| ids.contains(&write.id));
    acknowledged.iter().copied().filter(|write| !is_found(write)).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    fn write(time: f64, kind: Kind, id: &str) -> Write {
        Write { time, kind, id: id.to_owned() }
    }

    #[test]
    fn an_acknowledged_write_that_is_not_found_is_missing() -> Result<()> {
        let writes =
            [write(1.0, Kind::Project, "a"), write(2.0, Kind::Project, "b"), write(3.0, Kind::Port, "a")];
        let found: Found = serde_json::from_str(r#"{"project": ["a", "x"], "port": [], "server": []}"#)?;
        let acknowledged = acknowledged(&writes, 10.0, &BTreeSet::new());
        assert_eq!(acknowledged.len(), 3);
        let missing: Vec<(Kind, &str)> =
            missing(&acknowledged, &found).iter().map(|write| (write.kind, write.id.as_str())).collect();
        assert_eq!(missing, [(Kind::Project, "b"), (Kind::Port, "a")]);
        Ok(())
    }

    #[test]
    fn later_writes_and_those_the_drill_has_deleted_do_not_count() {
        let writes = [
            write(1.0, Kind::Server, "deleted"),
            write(2.0, Kind::Server, "kept"),
            write(9.0, Kind::Server, "later"),
        ];
        let released = BTreeSet::from(["deleted".to_owned()]);
        let ids: Vec<&str> =
            acknowledged(&writes, 5.0, &released).iter().map(|write| write.id.as_str()).collect();
        assert_eq!(ids, ["kept"]);
    }
}
