//! Settings of a backend.

use std::collections::BTreeMap;

use openstack_operator_model::common::{Component, NameReference, SecretKeyReference, is_default};
use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Driver of backend type `ceph`.
pub(crate) const RBD_DRIVER: &str = "cinder.volume.drivers.rbd.RBDDriver";
/// Driver of backend type `lvm`.
pub(crate) const LVM_DRIVER: &str = "cinder.volume.drivers.lvm.LVMVolumeDriver";

/// Backend with its own volume service.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.lvm) == (has(self.type) && self.type == 'lvm')", "message": "set type lvm and lvm.nodeSelector together" },
    { "rule": "!has(self.volume) || !has(self.volume.replicas) || self.volume.replicas == 1 || has(self.cluster)", "message": "volume.replicas above 1 requires cluster and a key-value store" },
]))]
pub struct Backend {
    /// Name of the backend: configuration section, value of `volume_backend_name`, and end of the host of its volumes,
    /// `cinder@<name>`.
    #[schemars(length(max = 20), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Type: `ceph` (RBD), `lvm` (volume groups of nodes, for tests) or `custom` (any other driver, with its options in
    /// `extraConfig`). Defaults to `ceph`, with another driver than that of Ceph to `custom`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<BackendType>,
    /// Class of the volume driver. Defaults to that of `type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255), regex(pattern = r"^[a-zA-Z0-9_.]+$"))]
    pub driver: Option<String>,
    /// Pool of type `ceph`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rbd: RbdBackend,
    /// Volume groups of type `lvm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lvm: Option<LvmBackend>,
    /// Options of the driver whose values are in Secrets, e.g. passwords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub secret_options: Vec<SecretOption>,
    /// Name under which several pods share the volumes of the backend. It requires a key-value store and a driver that
    /// supports it, as that of Ceph does. It cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub cluster: Option<String>,
    /// Volumes that the backend keeps as copies of images, so that the next volume from an image is a clone. Without it, the
    /// backend keeps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_volume_cache: Option<ImageVolumeCache>,
    /// Volume service. It has one pod, or one on each node of `lvm`. More pods require `cluster`.
    #[serde(default)]
    pub volume: Component,
}

impl Backend {
    pub(crate) fn kind(&self) -> BackendType {
        self.kind.unwrap_or(match self.driver.as_deref() {
            None | Some(RBD_DRIVER) => BackendType::Ceph,
            Some(_) => BackendType::Custom,
        })
    }
}

/// Type of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendType {
    Ceph,
    Lvm,
    Custom,
}

/// Pool of a Ceph cluster: that of the `CephStorage` of `spec.ceph`, or one whose client is in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.cephSecretRef) || !has(self.secretUuid) && !has(self.cephClientRef)", "message": "secretUuid and cephClientRef require cephSecretRef" },
]))]
pub struct RbdBackend {
    /// Name of the Ceph pool. Defaults to the pool of volumes of the `CephStorage`, or to `volumes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub pool: Option<String>,
    /// Secret with `ceph.conf` and `ceph.client.<user>.keyring` of an existing Ceph cluster. Defaults to that of the
    /// `CephStorage` of `spec.ceph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceph_secret_ref: Option<NameReference>,
    /// Ceph user of `cephSecretRef` without `client.`, e.g. the `CephClient` of Rook. Defaults to `cinder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceph_client_ref: Option<NameReference>,
    /// UUID of the libvirt secret with the key of the Ceph user of `cephSecretRef` on hypervisors. Defaults to
    /// `rbd_secret_uuid` of their Nova.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 36, max = 36), regex(pattern = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"))]
    pub secret_uuid: Option<String>,
}

/// Volume groups of nodes. A lost node loses its volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LvmBackend {
    /// Labels of the nodes with the volume group. Each runs a volume service, which has the tolerations of the service.
    #[schemars(schema_with = "schema::pod_labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Name of the volume group. It must exist on each node.
    #[serde(default = "volume_group")]
    #[schemars(length(max = 127), regex(pattern = r"^[a-zA-Z0-9_.+-]+$"))]
    pub volume_group: String,
    /// Program that exports volumes to hypervisors over iSCSI: `lioadm` uses the kernel of the node, `tgtadm` a tgt daemon that
    /// must run on the node.
    #[serde(default)]
    pub target_helper: TargetHelper,
}

fn volume_group() -> String {
    "cinder-volumes".to_owned()
}

/// Program that exports volumes over iSCSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TargetHelper {
    #[default]
    Lioadm,
    Tgtadm,
}

impl TargetHelper {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lioadm => "lioadm",
            Self::Tgtadm => "tgtadm",
        }
    }
}

/// Option of a driver with a value of a Secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretOption {
    /// Name of the option.
    #[schemars(length(max = 128), regex(pattern = r"^[a-z][a-z0-9_]*$"))]
    pub option: String,
    /// Secret with the value.
    pub secret_key_ref: SecretKeyReference,
}

/// Limits of the copies of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageVolumeCache {
    /// Maximum size of all copies in GiB. Defaults to no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_size_gb: Option<u32>,
    /// Maximum number of copies. Defaults to no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_count: Option<u32>,
}
