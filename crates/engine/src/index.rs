//! Children of each object, collected from watch events without requests to the API server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use crate::ports::ChildReference;

/// Children by their owner's uid.
#[derive(Debug, Default)]
pub struct ChildIndex {
    children: RwLock<HashMap<String, BTreeSet<ChildReference>>>,
}

impl ChildIndex {
    pub fn insert(&self, owner_uid: &str, child: ChildReference) {
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        children.entry(owner_uid.to_owned()).or_default().insert(child);
    }

    pub fn remove(&self, owner_uid: &str, child: &ChildReference) {
        let mut children = self.children.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(owned) = children.get_mut(owner_uid) {
            owned.remove(child);
            if owned.is_empty() {
                children.remove(owner_uid);
            }
        }
    }

    pub fn children_of(&self, owner_uid: &str) -> Vec<ChildReference> {
        let children = self.children.read().unwrap_or_else(PoisonError::into_inner);
        children.get(owner_uid).into_iter().flatten().cloned().collect()
    }
}
