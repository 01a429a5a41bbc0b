//! Invariants and golden files of all services.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

mod barbican;
mod declarations;
mod descriptions;
mod effects;
mod fixture;
mod galera_scripts;
mod golden;
mod heat;
mod horizon;
mod identity;
mod invariants;
mod laws;
mod leaving;
mod node_scripts;
mod notifications;
mod pods;
mod property;
mod rabbitmq_scripts;
mod runtimes;
mod schema;
mod scripts;
mod secrecy;
mod tasks;
mod users;
