//! What the tests share: requests that show warnings, the definitions in place, a corpus of objects, and renders.

pub mod corpus;
pub mod definition;
pub mod render;
pub mod server;

pub use server::{Answer, Effect, Refusal, Server};
