//! Why the API server did not do what was asked, and what the engine is told of it.

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
    Absence { message: String },
    #[snafu(display("the API server does not know the kind"))]
    UnknownKind,
    #[snafu(display("{message}"))]
    Conflict { message: String },
    #[snafu(display("{message}"))]
    Refusal { message: String },
    #[snafu(display("the API server answered {code}: {message}"))]
    Trouble { code: u16, message: String },
    #[snafu(display("the API server did not answer in time"))]
    Silence { source: Elapsed },
    #[snafu(display("the request did not get to the API server and back"))]
    Transport { source: kube::Error },
}

/// Waits for an answer, but not for ever.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Failure::from_status(*status)),
        Ok(Err(source)) => Err(Failure::Transport { source }),
        Err(source) => Err(Failure::Silence { source }),
    }
}

impl Failure {
    fn from_status(status: Status) -> Self {
        let absent = status.details.filter(|details| !details.name.is_empty());
        let (code, message) = (status.code, status.message);
        match (code, absent) {
            // Nothing can be made in a namespace that does not exist.
            (404, Some(absent)) if absent.kind == "namespaces" => Self::Refusal { message },
            (404, Some(_)) => Self::Absence { message },
            // A path that is not served is answered without naming anything.
            (404, None) => Self::UnknownKind,
            (409, _) => Self::Conflict { message },
            (400 | 403 | 422, _) => Self::Refusal { message },
            _ => Self::Trouble { code, message },
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Absence { .. } | Self::UnknownKind)
    }

    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    pub(super) fn into_port_error(self, kind: Kind, action: String) -> PortError {
        match self {
            // An object that was to be changed has gone, which is a change of it.
            Self::Absence { .. } | Self::Conflict { .. } => PortError::Conflict { action },
            Self::UnknownKind => {
                let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
                let reason = format!("the cluster does not serve {}{group}; install its CRDs", kind.plural);
                PortError::Rejected { action, reason }
            }
            Self::Refusal { message } => PortError::Rejected { action, reason: message },
            trouble @ (Self::Trouble { .. } | Self::Silence { .. } | Self::Transport { .. }) => {
                PortError::Unavailable { action, source: Box::new(trouble) }
            }
        }
    }
}
