//! Errors of the API server, mapped to the engine's errors.

use std::time::Duration;

use kube::core::Status;
use openstack_operator_engine::ports::PortError;
use openstack_operator_model::kind::Kind;
use snafu::Snafu;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

#[derive(Debug, Snafu)]
pub(super) enum Failure {
    #[snafu(display("{message}"))]
    NotFound { message: String },
    #[snafu(display("the API server does not serve the kind"))]
    UnknownKind,
    #[snafu(display("{message}"))]
    Conflict { message: String },
    #[snafu(display("{message}"))]
    Rejected { message: String },
    #[snafu(display("the API server returned {code}: {message}"))]
    ServerError { code: u16, message: String },
    #[snafu(display("the API server did not respond in time"))]
    NoResponse { source: Elapsed },
    #[snafu(display("cannot reach the API server"))]
    Transport { source: kube::Error },
}

/// Waits for a response until a timeout.
pub(super) async fn within<T>(
    limit: Duration,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match timeout(limit, response).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(kube::Error::Api(status))) => Err(Failure::from_status(*status)),
        Ok(Err(source)) => Err(Failure::Transport { source }),
        Err(source) => Err(Failure::NoResponse { source }),
    }
}

impl Failure {
    fn from_status(status: Status) -> Self {
        let details = status.details.filter(|details| !details.name.is_empty());
        let (code, message) = (status.code, status.message);
        match (code, details) {
            // The namespace does not exist: permanent until the user creates it.
            (404, Some(details)) if details.kind == "namespaces" => Self::Rejected { message },
            (404, Some(_)) => Self::NotFound { message },
            // A 404 without a name means that the path is not served.
            (404, None) => Self::UnknownKind,
            (409, _) => Self::Conflict { message },
            (400 | 403 | 422, _) => Self::Rejected { message },
            _ => Self::ServerError { code, message },
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::UnknownKind)
    }

    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    pub(super) fn into_port_error(self, kind: Kind, action: String) -> PortError {
        match self {
            // The object to change was deleted concurrently.
            Self::NotFound { .. } | Self::Conflict { .. } => PortError::Conflict { action },
            Self::UnknownKind => {
                let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
                let reason = format!("the cluster does not serve {}{group}; install the CRDs", kind.plural);
                PortError::Rejected { action, reason }
            }
            Self::Rejected { message } => PortError::Rejected { action, reason: message },
            error @ (Self::ServerError { .. } | Self::NoResponse { .. } | Self::Transport { .. }) => {
                PortError::Unavailable { action, source: Box::new(error) }
            }
        }
    }
}
