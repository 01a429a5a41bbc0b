//! The runner of the end-to-end checks, and the proofs that services bring.

pub mod proofs;
pub mod runner;
