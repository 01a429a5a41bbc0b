//! Pruning: deletes owned objects that the plan no longer contains, once every phase is done.

use std::collections::BTreeSet;

use openstack_operator_model::kind::Kind;
use openstack_operator_model::kind::SECRET;
use openstack_operator_model::lower::{Instance, Manifests};
use openstack_operator_model::plan::Plan;

use crate::engine::Engine;
use crate::ports::PortResult;

impl Engine {
    pub(crate) async fn prune(
        &self,
        instance: &Instance,
        plan: &Plan,
        manifests: &Manifests,
    ) -> PortResult<()> {
        let applied = manifests.values().flatten().map(|manifest| (manifest.kind, manifest.name.as_str()));
        let secrets = plan.secrets.iter().map(|secret| (SECRET, secret.name.as_str()));
        let wanted: BTreeSet<(Kind, &str)> = applied.chain(secrets).collect();
        let children = self.ports.cluster.children(&instance.namespace, &instance.uid).await?;
        for child in children {
            if wanted.contains(&(child.kind, child.name.as_str())) {
                continue;
            }
            tracing::info!(
                child = child.name,
                kind = child.kind.kind,
                "deleting a child that the plan no longer contains"
            );
            self.ports.cluster.delete(child.kind, &instance.namespace, &child.name, &child.uid).await?;
            self.applied.forget(&(child.kind, instance.namespace.clone(), child.name));
        }
        Ok(())
    }
}
