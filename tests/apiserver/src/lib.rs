//! What the tests share: requests that show warnings, the definitions in place, a corpus of objects, renders, and what
//! installs the operator.

pub mod corpus;
pub mod definition;
pub mod installation;
pub mod render;
pub mod server;

pub use server::{Answer, Effect, Refusal, Server};
