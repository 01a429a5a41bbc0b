//! Executes the plan of every service: gather, plan, lower, apply by phase, assess, prune, report.

mod apply;
pub mod claim;
mod cleanup;
mod database;
mod effect;
pub mod engine;
mod gather;
pub mod index;
mod member;
pub mod metrics;
mod node;
mod phase;
pub mod ports;
mod prune;
pub mod queue;
mod reconcile;
mod report;
mod roster;
pub mod route;
pub mod run;
mod secret;
mod undo;
mod view;
mod volume;
mod work;
