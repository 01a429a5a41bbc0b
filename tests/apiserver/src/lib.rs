//! Shared code of the tests: requests with warnings, CRDs, a corpus of objects, renders and the installation.

pub mod corpus;
pub mod definition;
pub mod installation;
pub mod render;
pub mod server;

pub use server::{Answer, Effect, Refusal, Server};
