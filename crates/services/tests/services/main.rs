//! Invariants and golden files of all services.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

mod declarations;
mod descriptions;
mod effects;
mod fixture;
mod galera_scripts;
mod golden;
mod invariants;
mod laws;
mod leaving;
mod node_scripts;
mod pods;
mod property;
mod rabbitmq_scripts;
mod schema;
mod scripts;
mod secrecy;
mod users;
