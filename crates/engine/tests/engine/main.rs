//! The engine against fakes: all services, and faults at every step.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where it fails")]

mod blocked;
mod bus;
mod claims;
mod cloud;
mod degraded;
mod deletion;
mod driver;
mod events;
mod existing;
mod family;
mod faults;
mod full_cloud;
mod galera;
mod healing;
mod idle;
mod keyring;
mod loss;
mod nodes;
mod ownership;
mod raft;
mod restart;
mod status;
mod taints;
mod test_services;
mod upgrade;
mod versions;
mod volumes;
