//! Executes every plan: gather, plan, lower, apply by phase, assess, prune, report. It knows no service.

mod apply;
mod claim;
mod cleanup;
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
mod work;
