//! Implementations of the engine's ports: Kubernetes API, database server, message bus, identity service, and
//! registries of agents.

pub mod agents;
pub mod bus;
pub mod environment;
pub mod identity;
pub mod kube;
pub mod sql;

mod administrator;
mod http;
#[cfg(test)]
mod testing;
