//! Structured logs, one JSON object a line.

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. A filter that cannot be read falls back to `info` and says so, since an
/// operator that does not start for its log level is worse than one that logs too much.
pub(crate) fn start(filter: &str) {
    let parsed = EnvFilter::try_new(filter);
    let problem = parsed.as_ref().err().map(ToString::to_string);
    let filter = parsed.unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    if let Some(problem) = problem {
        tracing::warn!(problem, "the log filter is not right: logging at level info");
    }
}
