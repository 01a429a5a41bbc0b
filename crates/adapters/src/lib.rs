//! The outside as the engine's ports see it: the cluster, a database server, a message bus, the identity service, and
//! where agents of nodes register.

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
