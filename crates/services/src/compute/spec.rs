//! Settings of compute nodes.

use kube::CustomResource;
use openstack_operator_model::common::{Common, ContainerSettings, Origin, is_default};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CephSettings, IdentitySettings};
use crate::inputs::{self, Input, Inputs, Link, Needed, Role};
use crate::template::ServiceReference;
use crate::{nova, placement};

/// Compute nodes: libvirt and nova-compute on every selected node, by default on nodes with label
/// `node-role.kubernetes.io/hypervisor`.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "NovaCompute",
    plural = "novacomputes",
    namespaced,
    status = "Status",
    shortname = "ncp",
    category = "openstack"
)]
pub struct NovaComputeSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: NovaComputeTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaComputeTemplate {
    #[serde(default)]
    pub keystone: IdentitySettings,
    /// Nova of the compute nodes.
    #[serde(default)]
    pub nova: ServiceReference,
    /// Placement, which must be Ready before nova-compute starts.
    #[serde(default)]
    pub placement: ServiceReference,
    /// Cell of the compute nodes. Defaults to the cell whose `computeRef` names this object, else to `cell1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub cell: Option<String>,
    /// Virtualization type: `kvm`, `qemu` (emulation), or `auto` to detect it by booting a test VM.
    #[serde(default)]
    pub virt_type: VirtType,
    /// Disks of instances that are not volumes.
    #[serde(default)]
    pub ephemeral: Ephemeral,
    /// Ceph cluster of the disks of instances and of volumes.
    #[serde(default)]
    pub ceph: CephSettings,
    /// libvirt. Resources of its pod do not include those of instances.
    #[serde(default, skip_serializing_if = "is_default")]
    pub libvirt: ContainerSettings,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for NovaComputeTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::Identity(&mut self.keystone),
            Input::Service {
                field: "nova",
                kind: nova::KIND,
                link: Link::Uses(Needed::Always),
                reference: &mut self.nova.cluster_ref,
            },
            Input::Service {
                field: "placement",
                kind: placement::KIND,
                link: Link::WaitsFor,
                reference: &mut self.placement.cluster_ref,
            },
            Input::Storage(&mut self.ceph),
            Input::Component { field: "libvirt", settings: &mut self.libvirt },
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Compute));
        inputs
    }
}

/// Disks of instances that are not volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ephemeral {
    /// Where the disks are: `local` for files on the node, `rbd` for the ephemeral pool of the CephStorage. Nodes with
    /// instances that have local disks cannot change to `rbd`. Defaults to `local`, in a cloud with `storageBackend: ceph`
    /// to `rbd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<EphemeralBackend>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EphemeralBackend {
    #[default]
    Local,
    Rbd,
}

/// Virtualization type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VirtType {
    #[default]
    Auto,
    Kvm,
    Qemu,
}

impl VirtType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        }
    }
}
