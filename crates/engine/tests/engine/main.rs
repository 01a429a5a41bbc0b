//! The engine over a fake world: every service there is, and faults at every step.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops where it fails")]

mod cloud;
mod driver;
mod faults;
mod healing;
mod rest;
mod sample;
