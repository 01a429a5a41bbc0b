//! Block storage APIs in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use openstack_operator_engine::ports::{
    BlockStorage, PortResult, RefusedChange, VolumeTypesOutcome, VolumeTypesServer,
};
use openstack_operator_model::plan::VolumeType;
use serde::Serialize;

use crate::server::{FakeServer, ServerState};

/// Block storage APIs by URL.
pub type FakeBlockStorage = FakeServer<BlockStorageState>;

/// Types of volumes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockStorageState {
    pub types: BTreeMap<String, TypeEntry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypeEntry {
    pub properties: BTreeMap<String, String>,
    /// Whether volumes use it.
    pub used: bool,
    /// Whether the operator has created it.
    pub own: bool,
}

impl ServerState for BlockStorageState {
    const PORT: &'static str = "block storage";
}

#[async_trait]
impl BlockStorage for FakeBlockStorage {
    async fn ensure_types(
        &self,
        server: &VolumeTypesServer,
        types: &[VolumeType],
    ) -> PortResult<VolumeTypesOutcome> {
        let mut refused = Vec::new();
        let mut refuse = |name: &str, change: &'static str| {
            refused.push(RefusedChange { name: name.to_owned(), change, reason: "it is in use".to_owned() });
        };
        let login = &server.identity.administrator;
        let wrote = self.call("ensure_types", "", (&server.url, login), |state| {
            for wanted in types {
                let entry = state.types.entry(wanted.name.clone());
                let entry = entry.or_insert_with(|| TypeEntry { own: true, ..TypeEntry::default() });
                let differs = entry.properties != wanted.properties;
                if differs && (entry.used || !entry.own) {
                    refuse(&wanted.name, "changed");
                } else if differs {
                    entry.properties.clone_from(&wanted.properties);
                }
            }
            state.types.retain(|name, entry| {
                let is_surplus = entry.own && !types.iter().any(|wanted| wanted.name == *name);
                if is_surplus && entry.used {
                    refuse(name, "deleted");
                }
                !is_surplus || entry.used
            });
            Ok(())
        })?;
        Ok(VolumeTypesOutcome { wrote, refused })
    }
}
