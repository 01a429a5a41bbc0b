//! Data types and pure functions of the operator, without input or output.

pub mod assess;
pub mod common;
pub mod condition;
pub mod image;
pub mod keyring;
pub mod kind;
pub mod lower;
pub mod name;
pub mod need;
pub mod node;
pub mod oslo;
pub mod plan;
pub mod quantity;
pub mod release;
pub mod schema;
pub mod service;
pub mod status;
