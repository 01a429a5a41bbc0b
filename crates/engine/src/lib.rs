//! Executes every plan: gather, plan, lower, apply by phase, assess, prune, report. It knows no service.

pub mod index;
pub mod ports;
