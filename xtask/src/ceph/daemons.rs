//! The steps that create Ceph's daemons in the order in which they need each other.

use std::net::Ipv4Addr;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::health::problems;
use super::keys::{CLOUD_SECRET, CLOUD_USER, Credentials, cloud_capabilities};
use super::layout::{self, Layout, METADATA_SERVER, OBJECT_GATEWAY, Osds, Request};
use super::manifests::{self, CONFIGURATION, FILESYSTEM, MANAGER, MONITOR, OBJECT_STORE, OSDS, Values};
use super::{IMAGE, NAMESPACE, administrator};
use crate::cloud;
use crate::cluster::settings::Settings;
use crate::command::{Log, output, wait_until};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::images::{Builder, origin::Origin};
use crate::kubectl::Kubectl;
use crate::manifest;

const MONITOR_PORT: u16 = 3300;
/// The file system, and its pools as Ceph itself would name them.
const CEPHFS: &str = "cephfs";
const CEPHFS_POOLS: [&str; 2] = ["cephfs.cephfs.meta", "cephfs.cephfs.data"];

/// The last step: Ceph is healthy, and a cloud can use it.
pub(crate) const READY: &str = "Ceph Secret";

/// A Ceph cluster on the local cluster, which runs.
pub(crate) struct Ceph {
    directories: Directories,
    pub(super) kubectl: Kubectl,
    image: String,
    user: u32,
    monitor: Ipv4Addr,
    layout: Layout,
    /// The first step sets them.
    credentials: OnceLock<Credentials>,
}

impl Ceph {
    /// The cluster that exists, with what the request adds.
    pub(crate) fn plan(
        directories: &Directories,
        settings: &Settings,
        builder: &Builder,
        request: &Request,
    ) -> Result<Self> {
        let kubectl = Kubectl::local(directories)?;
        let table = builder.table()?;
        Ok(Self {
            directories: directories.clone(),
            layout: Layout::plan(&kubectl, request)?,
            kubectl,
            image: Origin::local(builder, settings).reference(IMAGE)?,
            user: table.user_id(table.image(IMAGE)?)?,
            monitor: settings.addresses.ceph_monitor(),
            credentials: OnceLock::new(),
        })
    }

    /// Adds the steps that create the cluster, and returns the name of the last.
    pub(crate) fn add_steps<'a>(&'a self, graph: &mut Graph<'a>) -> &'static str {
        graph.add("Ceph keys", Weight::Light, &[], |log| self.ensure_keys(log));
        graph.add("Ceph monitor", Weight::Light, &["Ceph keys"], |log| self.ensure_monitor(log));
        graph.add("Ceph manager", Weight::Light, &["Ceph monitor"], |log| {
            self.ensure("manager", MANAGER, "deployment/ceph-mgr-a", log)?;
            Ok(String::new())
        });
        graph.add("Ceph OSDs", Weight::Light, &["Ceph monitor"], |log| {
            self.ensure("osds", OSDS, &format!("statefulset/{}", layout::OSDS), log)?;
            Ok(self.layout.osds.count().to_string())
        });
        graph.add("Ceph pools", Weight::Light, &["Ceph manager", "Ceph OSDs"], |log| self.ensure_copies(log));
        let mut last = vec!["Ceph pools"];
        if self.layout.filesystem {
            graph.add("Ceph file system", Weight::Light, &["Ceph pools"], |log| self.ensure_filesystem(log));
            last.push("Ceph file system");
        }
        if self.layout.object_store {
            graph.add("Ceph object store", Weight::Light, &["Ceph pools"], |log| {
                self.ensure("object-store", OBJECT_STORE, &format!("deployment/{OBJECT_GATEWAY}"), log)?;
                Ok(format!("http://ceph-rgw.{NAMESPACE}.svc"))
            });
            last.push("Ceph object store");
        }
        graph.add("Ceph health", Weight::Light, &last, |_| self.wait_until_healthy());
        graph.add(READY, Weight::Light, &["Ceph health"], |log| self.ensure_cloud_secret(log));
        READY
    }

    fn ensure_keys(&self, log: &Log) -> Result<String> {
        manifest::apply(&self.directories, "ceph-namespace", manifests::NAMESPACE, log)?;
        let credentials = Credentials::ensure(&self.kubectl)?;
        let fsid = credentials.fsid.clone();
        self.credentials.get_or_init(|| credentials);
        Ok(fsid)
    }

    fn ensure_monitor(&self, log: &Log) -> Result<String> {
        let text = self.fill(CONFIGURATION)?;
        manifest::apply(&self.directories, "ceph-configuration", &text, log)?;
        self.ensure("monitor", MONITOR, "statefulset/ceph-mon-a", log)?;
        let osds = self.layout.osds;
        for (option, value) in
            [("osd_pool_default_size", osds.copies()), ("osd_pool_default_min_size", osds.least_copies())]
        {
            self.run(&["config", "set", "global", option, &value.to_string()], log)?;
        }
        Ok(self.monitor.to_string())
    }

    /// Applies the manifest of a daemon and waits until it runs.
    fn ensure(&self, name: &str, text: &str, workload: &str, log: &Log) -> Result<()> {
        manifest::apply(&self.directories, &format!("ceph-{name}"), &self.fill(text)?, log)?;
        self.kubectl.wait_for_rollout(NAMESPACE, workload, log).with_context(|| {
            format!(
                "{workload} does not start; see {} --kubeconfig {} --namespace {NAMESPACE} describe pods",
                self.kubectl.display(),
                self.kubectl.kubeconfig().display()
            )
        })
    }

    /// Ceph's own pools have as many copies as new pools, also after OSDs were added. Pools of users are theirs.
    fn ensure_copies(&self, log: &Log) -> Result<String> {
        let pools = self.ask(&["osd", "pool", "ls", "detail"])?;
        let [copies, least] =
            [self.layout.osds.copies(), self.layout.osds.least_copies()].map(|number| number.to_string());
        for pool in own_pools(&pools, self.layout.osds) {
            self.run(&["osd", "pool", "set", pool, "size", &copies, "--yes-i-really-mean-it"], log)?;
            self.run(&["osd", "pool", "set", pool, "min_size", &least], log)?;
        }
        Ok(format!("copies of a new pool: {copies}"))
    }

    fn ensure_filesystem(&self, log: &Log) -> Result<String> {
        for pool in CEPHFS_POOLS {
            self.run(&["osd", "pool", "create", pool], log)?;
        }
        let [metadata, data] = CEPHFS_POOLS;
        self.run(&["fs", "new", CEPHFS, metadata, data], log)?;
        // The cluster has one metadata server, and that is no reason for a warning.
        self.run(&["fs", "set", CEPHFS, "standby_count_wanted", "0"], log)?;
        self.ensure("filesystem", FILESYSTEM, &format!("deployment/{METADATA_SERVER}"), log)?;
        Ok(CEPHFS.to_owned())
    }

    fn wait_until_healthy(&self) -> Result<String> {
        let mut found = Vec::new();
        let waited = wait_until("Ceph is healthy", || {
            found = match self.ask(&["status"]) {
                Ok(status) => problems(&status, &self.layout),
                Err(error) => vec![format!("{error:#}")],
            };
            found.is_empty()
        });
        if let Err(error) = waited {
            bail!("{error}: {}; cargo xtask ceph status shows the current state", found.join("; "));
        }
        Ok("HEALTH_OK".to_owned())
    }

    fn ensure_cloud_secret(&self, log: &Log) -> Result<String> {
        let capabilities = cloud_capabilities();
        self.run(&capabilities.iter().map(String::as_str).collect::<Vec<_>>(), log)?;
        let monitors = format!("{}:{MONITOR_PORT}", self.monitor);
        self.kubectl.apply_secret(&self.credentials()?.cloud_secret(&monitors))?;
        Ok(format!("{}/{CLOUD_SECRET}, user {CLOUD_USER}", cloud::NAMESPACE))
    }

    /// Runs a command of the administrator with its output in the log.
    fn run(&self, arguments: &[&str], log: &Log) -> Result<()> {
        log.run(administrator(&self.kubectl).args(arguments))
    }

    /// The answer to a command of the administrator.
    fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let answer = output(administrator(&self.kubectl).args(arguments).arg("--format=json"))?;
        serde_json::from_str(&answer)
            .with_context(|| format!("ceph {} did not return JSON", arguments.join(" ")))
    }

    fn fill(&self, text: &str) -> Result<String> {
        let values = Values {
            image: &self.image,
            user: self.user,
            monitor: self.monitor,
            fsid: &self.credentials()?.fsid,
            osds: self.layout.osds,
        };
        values.fill(text)
    }

    fn credentials(&self) -> Result<&Credentials> {
        self.credentials.get().context("Ceph has no keys yet")
    }
}

/// Ceph's own pools that have another number of copies than new pools.
fn own_pools(pools: &Value, osds: Osds) -> Vec<&str> {
    let is_own = |name: &str| {
        name.starts_with('.') || name.starts_with("default.rgw.") || CEPHFS_POOLS.contains(&name)
    };
    let pools = pools.as_array().map(Vec::as_slice).unwrap_or_default();
    let other = pools.iter().filter(|pool| pool["size"] != osds.copies());
    other.filter_map(|pool| pool["pool_name"].as_str()).filter(|name| is_own(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn own_pools_follow_the_number_of_osds_and_pools_of_users_do_not() {
        let names = [".mgr", ".rgw.root", "default.rgw.log", "cephfs.cephfs.data", "volumes"];
        let pools: Value = names.map(|name| json!({ "pool_name": name, "size": 1 })).into_iter().collect();
        assert!(own_pools(&pools, Osds::One).is_empty());
        assert_eq!(own_pools(&pools, Osds::Three), names[..4]);
    }
}
