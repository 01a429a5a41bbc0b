//! The daemons of a Ceph cluster: those that run, and those that a command requests.

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::NAMESPACE;
use crate::command::output;
use crate::kubectl::Kubectl;

pub(super) const OSDS: &str = "ceph-osd";
pub(super) const METADATA_SERVER: &str = "ceph-mds-a";
pub(super) const OBJECT_GATEWAY: &str = "ceph-rgw-a";

/// What a command requests. What runs already stays.
#[derive(Args, Default)]
pub(crate) struct Request {
    /// Number of OSDs, which is also the number of copies of all data [default: the current number, or 1].
    #[arg(long, value_enum)]
    osds: Option<Osds>,
    /// Run a metadata server with the file system "cephfs".
    #[arg(long)]
    filesystem: bool,
    /// Run an object gateway, for S3 and Swift.
    #[arg(long)]
    object_store: bool,
}

/// A number of OSDs. With two, a lost OSD would stop all writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Osds {
    #[value(name = "1")]
    One,
    #[value(name = "3")]
    Three,
}

impl Osds {
    pub(super) fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Three => 3,
        }
    }

    /// The number of copies of a new pool.
    pub(super) fn copies(self) -> u64 {
        self.count()
    }

    /// The number of copies without which a pool accepts no writes.
    pub(super) fn least_copies(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Three => 2,
        }
    }
}

/// The daemons of a cluster besides monitor and manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) osds: Osds,
    pub(super) filesystem: bool,
    pub(super) object_store: bool,
}

impl Layout {
    /// The daemons that run and those of the request.
    pub(super) fn plan(kubectl: &Kubectl, request: &Request) -> Result<Self> {
        let get = ["--namespace", NAMESPACE, "get", "statefulsets,deployments", "--output=json"];
        let answer = output(kubectl.query().args(get))?;
        let workloads = serde_json::from_str(&answer).context("kubectl did not return JSON")?;
        Self::merge(Self::running(&workloads).as_ref(), request)
    }

    /// The layout of an existing cluster.
    fn running(workloads: &Value) -> Option<Self> {
        let items = workloads["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let find = |name: &str| items.iter().find(|item| item["metadata"]["name"] == name);
        let count = find(OSDS)?["spec"]["replicas"].as_u64().unwrap_or(1);
        Some(Self {
            osds: if count == Osds::One.count() { Osds::One } else { Osds::Three },
            filesystem: find(METADATA_SERVER).is_some(),
            object_store: find(OBJECT_GATEWAY).is_some(),
        })
    }

    fn merge(running: Option<&Self>, request: &Request) -> Result<Self> {
        let current = running.map(|running| running.osds);
        if current == Some(Osds::Three) && request.osds == Some(Osds::One) {
            bail!(
                "Ceph has 3 OSDs and --osds 1 would remove some with their data: run cargo xtask ceph down first, or omit \
                 --osds"
            );
        }
        Ok(Self {
            osds: request.osds.or(current).unwrap_or(Osds::One),
            filesystem: request.filesystem || running.is_some_and(|running| running.filesystem),
            object_store: request.object_store || running.is_some_and(|running| running.object_store),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(osds: Option<Osds>) -> Request {
        Request { osds, ..Request::default() }
    }

    #[test]
    fn a_new_cluster_has_what_is_requested() -> Result<()> {
        assert_eq!(Layout::running(&json!({ "items": [] })), None);
        let layout = Layout::merge(None, &Request { object_store: true, ..request(None) })?;
        assert_eq!(layout, Layout { osds: Osds::One, filesystem: false, object_store: true });
        Ok(())
    }

    #[test]
    fn what_runs_stays() -> Result<()> {
        let workloads = json!({ "items": [
            { "metadata": { "name": OSDS }, "spec": { "replicas": 3 } },
            { "metadata": { "name": METADATA_SERVER } },
        ] });
        let running = Layout::running(&workloads);
        let expected = Layout { osds: Osds::Three, filesystem: true, object_store: false };
        assert_eq!(running.as_ref(), Some(&expected));
        assert_eq!(Layout::merge(running.as_ref(), &request(None))?, expected);
        let fewer = Layout::merge(running.as_ref(), &request(Some(Osds::One)));
        let error = fewer.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("--osds 1 would remove some"), "{error}");
        Ok(())
    }
}
