//! The engine over a fake world: every service there is, and faults at every step.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where it fails")]

mod cloud;
mod degraded;
mod deletion;
mod driver;
mod events;
mod existing;
mod faults;
mod galera;
mod healing;
mod keyring;
mod nodes;
mod raft;
mod rest;
mod sample;
mod status;
mod taints;
mod trouble;
mod upgrade;
mod whole;
