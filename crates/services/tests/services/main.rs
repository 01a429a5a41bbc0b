//! Laws that hold for every service, and goldens of what each is lowered to.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where it fails")]

mod declarations;
mod descriptions;
mod effects;
mod fixture;
mod golden;
mod invariants;
mod laws;
mod leaving;
mod pods;
mod property;
mod schema;
mod scripts;
mod secrecy;
mod users;
