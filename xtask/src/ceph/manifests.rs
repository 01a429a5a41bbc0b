//! The objects of Ceph's daemons.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::layout::Osds;
use crate::manifest;
use crate::store::Key;

pub(super) const CONFIGURATION: &str = include_str!("../../manifests/ceph/configuration.yaml");
pub(super) const MONITOR: &str = include_str!("../../manifests/ceph/monitor.yaml");
pub(super) const MANAGER: &str = include_str!("../../manifests/ceph/manager.yaml");
pub(super) const OSDS: &str = include_str!("../../manifests/ceph/osds.yaml");
pub(super) const FILESYSTEM: &str = include_str!("../../manifests/ceph/filesystem.yaml");
pub(super) const OBJECT_STORE: &str = include_str!("../../manifests/ceph/object-store.yaml");

/// The namespace, whose pods need no privileges.
pub(super) const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\n\
    metadata: {name: ceph, labels: {pod-security.kubernetes.io/enforce: restricted}}\n";
const CONTAINER_SECURITY: &str =
    "{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}";

/// The size of the file of an OSD, in GiB. The file is sparse.
const OSD_GIBIBYTES: u64 = 10;

/// The values that the manifests contain.
pub(super) struct Values<'a> {
    pub(super) image: &'a str,
    pub(super) user: u32,
    pub(super) monitor: Ipv4Addr,
    pub(super) fsid: &'a str,
    pub(super) osds: Osds,
}

impl Values<'_> {
    pub(super) fn fill(&self, text: &str) -> Result<String> {
        let user = self.user;
        let pod_security = format!(
            "{{runAsUser: {user}, runAsGroup: {user}, fsGroup: {user}, fsGroupChangePolicy: OnRootMismatch, \
             runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}"
        );
        let values = [
            // Daemons restart when their configuration changes.
            ("configuration", Key::default().text(CONFIGURATION).digits()),
            ("container_security", CONTAINER_SECURITY.to_owned()),
            ("fsid", self.fsid.to_owned()),
            ("image", self.image.to_owned()),
            ("monitor", self.monitor.to_string()),
            ("osd_bytes", (OSD_GIBIBYTES << 30).to_string()),
            ("osd_size", format!("{OSD_GIBIBYTES}Gi")),
            ("osds", self.osds.count().to_string()),
            ("pod_security", pod_security),
        ];
        manifest::fill(text, &values)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::keys::generate;
    use super::*;

    fn objects(text: &str) -> Result<Vec<Value>> {
        let values = Values {
            image: "r/ceph:1",
            user: 64_045,
            monitor: Ipv4Addr::new(10, 96, 0, 60),
            fsid: "f",
            osds: Osds::Three,
        };
        Ok(serde_saphyr::from_multiple(&values.fill(text)?)?)
    }

    fn all_objects() -> Result<Vec<Value>> {
        let manifests = [NAMESPACE, CONFIGURATION, MONITOR, MANAGER, OSDS, FILESYSTEM, OBJECT_STORE];
        Ok(manifests.into_iter().map(objects).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Every value of a field of this name, at any depth.
    fn find<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
        let below = match value {
            Value::Object(fields) => fields.values().flat_map(|field| find(field, name)).collect(),
            Value::Array(items) => items.iter().flat_map(|item| find(item, name)).collect(),
            _ => Vec::new(),
        };
        value.get(name).into_iter().chain(below).collect()
    }

    #[test]
    fn every_object_is_in_the_namespace() -> Result<()> {
        for object in all_objects()? {
            let place = if object["kind"] == "Namespace" { "name" } else { "namespace" };
            assert_eq!(object["metadata"][place], super::super::NAMESPACE, "{object}");
        }
        Ok(())
    }

    #[test]
    fn pods_mount_keys_that_exist() -> Result<()> {
        let (secret, _) = generate();
        let mut mounted = 0;
        for object in all_objects()? {
            for items in find(&object, "items") {
                for item in items.as_array().into_iter().flatten() {
                    let key = item["key"].as_str().unwrap_or_default();
                    assert!(
                        secret["stringData"].get(key).is_some(),
                        "{key} of {}",
                        object["metadata"]["name"]
                    );
                    mounted += 1;
                }
            }
        }
        assert_eq!(mounted, 6);
        Ok(())
    }

    #[test]
    fn only_the_monitor_has_the_keys_of_others() -> Result<()> {
        for (name, text) in [("mgr", MANAGER), ("osd", OSDS), ("mds", FILESYSTEM), ("rgw", OBJECT_STORE)] {
            let text = objects(text)?.iter().map(ToString::to_string).collect::<String>();
            assert!(!text.contains("client.admin") && !text.contains("\"key\":\"keyring\""), "{name}");
        }
        Ok(())
    }

    #[test]
    fn containers_are_restricted_and_an_osd_claims_its_size() -> Result<()> {
        for object in all_objects()? {
            for containers in find(&object, "containers").into_iter().chain(find(&object, "initContainers")) {
                for container in containers.as_array().into_iter().flatten() {
                    let security = &container["securityContext"];
                    assert_eq!(security["readOnlyRootFilesystem"], true, "{container}");
                    assert_eq!(security["capabilities"]["drop"][0], "ALL", "{container}");
                }
            }
        }
        let osds = objects(OSDS)?;
        let claim = osds[0].pointer("/spec/volumeClaimTemplates/0/spec/resources/requests/storage");
        assert_eq!(claim.and_then(Value::as_str), Some("10Gi"));
        assert_eq!(osds[0]["spec"]["replicas"], 3);
        assert!(objects(CONFIGURATION)?[0].to_string().contains("bluestore block size = 10737418240"));
        Ok(())
    }
}
