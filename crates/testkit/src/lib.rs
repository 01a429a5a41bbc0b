//! Fakes of all ports with scripted faults, and text forms to compare.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    reason = "only tests use this crate, and a test that cannot continue panics"
)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failing test panics"))]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::agents::{AgentEntry, AgentState, FakeAgents};
pub use crate::bus::{BusState, FakeBus};
pub use crate::cluster::{Announced, FakeCluster, OldCrd};
pub use crate::environment::FakeEnvironment;
pub use crate::examples::examples;
pub use crate::gadget::Gadget;
pub use crate::identity::{CatalogEntry, FakeIdentity, IdentityState, UserEntry};
pub use crate::script::{Call, Script};
pub use crate::server::{FakeServer, Owners, ServerState};
pub use crate::sql::{FakeSql, SqlState};
pub use crate::wide::with_services;
pub use crate::world::World;
pub use crate::yaml::{documents, yaml};

mod agents;
mod bus;
mod cluster;
mod environment;
mod examples;
mod fingerprint;
mod gadget;
mod identity;
mod merge;
mod script;
mod server;
mod sql;
mod store;
mod wide;
mod world;
mod yaml;

/// A test that panicked while it held a lock must not fail the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
