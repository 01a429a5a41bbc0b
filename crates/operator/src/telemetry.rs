//! Structured logs, one JSON object per line.

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. An invalid filter is reported and replaced with `info`: an operator that does not
/// start is worse than one that logs too much.
pub(crate) fn start(filter: &str) {
    let parsed = EnvFilter::try_new(filter);
    let problem = parsed.as_ref().err().map(ToString::to_string);
    let filter = parsed.unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    if let Some(problem) = problem {
        tracing::warn!(problem, "the log filter is invalid: logging at level info");
    }
}
