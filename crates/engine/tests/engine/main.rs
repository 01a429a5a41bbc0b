//! The engine against fakes: all services, and faults at every step.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where it fails")]

mod blocked;
mod bus;
mod charset;
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
mod identity;
mod idle;
mod keyring;
mod loss;
mod nodes;
mod ownership;
mod raft;
mod release;
mod restart;
mod scale;
mod secrets;
mod status;
mod taints;
mod tasks;
mod test_services;
mod upgrade;
mod versions;
mod volumes;
