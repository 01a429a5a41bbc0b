//! Shared code of the suites: namespaces, waits with limits, pod specifications and clients.

mod environment;
mod exec;
pub mod http;
mod namespace;
pub mod pod;
pub mod power;
mod report;
pub mod wait;

pub use environment::Environment;
pub use exec::Output;
pub use namespace::{PodSecurity, Sandbox, with_cluster_alone, with_namespace};
pub use report::{notice, print_namespace};
