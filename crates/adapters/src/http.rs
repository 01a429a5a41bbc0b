//! HTTP with JSON bodies, as the message bus, the identity service and the compute service are spoken to.

use std::time::Duration;

use openstack_operator_engine::ports::{Login, PortError};
use reqwest::{Client, Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request did not do what it was for.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Failure {
    #[snafu(display("no HTTP client can be set up"))]
    Setup { source: reqwest::Error },
    #[snafu(display(
        "{address} is not an address that can be asked; it must begin with http:// or https://"
    ))]
    Address { address: String },
    #[snafu(display("{request} got no answer"))]
    Silence { request: String, source: reqwest::Error },
    #[snafu(display("{request} was answered with {status}{detail}"))]
    Rejection { request: String, status: StatusCode, detail: String },
    #[snafu(display("the answer to {request} has no usable {field}"))]
    Incomplete { request: String, field: String },
    #[snafu(display("there is no {what} {name} yet"))]
    Missing { what: &'static str, name: String },
}

impl Failure {
    /// What the engine is told. An administrator who is not let in may be let in later, when the server has taken
    /// over a new password.
    pub(crate) fn into_port_error(self, action: &str) -> PortError {
        let action = action.to_owned();
        match &self {
            Self::Address { .. } => PortError::Rejected { action, reason: self.to_string() },
            Self::Rejection { status, .. } if *status == StatusCode::CONFLICT => {
                PortError::Conflict { action }
            }
            Self::Rejection { status, .. } if status.is_client_error() && !is_temporary(*status) => {
                PortError::Rejected { action, reason: self.to_string() }
            }
            _ => PortError::Unavailable { action, source: Box::new(self) },
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::NOT_FOUND
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    )
}

/// A client for addresses inside the cluster: it uses no proxy and follows no redirection, which would carry
/// credentials elsewhere. A process-wide TLS provider must be installed before.
pub(crate) fn client() -> Result<Client, Failure> {
    let builder = || {
        Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
    };
    // A machine without root certificates can still speak plain HTTP, and that is what most servers inside speak.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).context(SetupSnafu)
}

/// One request. It has no debug output, since its body and its credentials are secret.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// Address that the path is appended to.
    pub(crate) base: &'a str,
    /// Segments of the path, not yet encoded.
    pub(crate) path: &'a [&'a str],
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) credentials: Credentials<'a>,
    /// Service and version of its API that the request is written in, where it has more than one.
    pub(crate) version: Option<&'a str>,
    pub(crate) body: Body,
}

#[derive(Clone)]
pub(crate) enum Credentials<'a> {
    /// The body holds them.
    None,
    Basic(&'a Login),
    Token(&'a str),
}

#[derive(Clone)]
pub(crate) enum Body {
    Empty,
    Plain(Value),
    /// The server may quote what it was sent, so an answer to this is never repeated.
    Secret(Value),
}

/// Header in which the identity service is shown a token.
const TOKEN_HEADER: &str = "X-Auth-Token";
/// Header in which it gives one.
const NEW_TOKEN_HEADER: &str = "X-Subject-Token";
/// Header in which a service is told the version of its API.
const VERSION_HEADER: &str = "OpenStack-API-Version";

/// What was answered, whatever the status is.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) token: Option<String>,
    request: String,
    body: Value,
    is_quotable: bool,
}

pub(crate) async fn send(client: &Client, request: Request<'_>) -> Result<Answer, Failure> {
    let url = address(request.base, request.path)?;
    let description = format!("{} {}", request.method, url.path());
    let is_quotable = !matches!(request.body, Body::Secret(_));
    let mut call = client.request(request.method, url);
    if !request.query.is_empty() {
        call = call.query(request.query);
    }
    call = match request.credentials {
        Credentials::None => call,
        Credentials::Basic(login) => call.basic_auth(&login.username, Some(&login.password)),
        Credentials::Token(token) => call.header(TOKEN_HEADER, token),
    };
    if let Some(version) = request.version {
        call = call.header(VERSION_HEADER, version);
    }
    call = match &request.body {
        Body::Empty => call,
        Body::Plain(body) | Body::Secret(body) => call.json(body),
    };
    let response = call.send().await.context(SilenceSnafu { request: &description })?;
    let status = response.status();
    let token =
        response.headers().get(NEW_TOKEN_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = response.bytes().await.context(SilenceSnafu { request: &description })?;
    // Not every answer has a body, and not every body is JSON; who needs a field of it asks for the field.
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok(Answer { status, token, request: description, body, is_quotable })
}

fn address(base: &str, path: &[&str]) -> Result<Url, Failure> {
    let mut url = Url::parse(base).ok().context(AddressSnafu { address: base })?;
    // Every address of these two schemes has a path, which is what the segments below ask of it.
    if !matches!(url.scheme(), "http" | "https") {
        return AddressSnafu { address: base }.fail();
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    Ok(url)
}

impl Answer {
    /// The body, where the request was granted.
    pub(crate) fn granted(self) -> Result<Value, Failure> {
        if self.status.is_success() { Ok(self.body) } else { Err(self.into_rejection()) }
    }

    /// The body, or nothing where what was asked for does not exist.
    pub(crate) fn found(self) -> Result<Option<Value>, Failure> {
        if self.status == StatusCode::NOT_FOUND { Ok(None) } else { self.granted().map(Some) }
    }

    pub(crate) fn into_rejection(self) -> Failure {
        let detail = if self.is_quotable { detail(&self.body) } else { None };
        let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        Failure::Rejection { request: self.request, status: self.status, detail }
    }

    pub(crate) fn into_incomplete(self, field: &str) -> Failure {
        Failure::Incomplete { request: self.request, field: field.to_owned() }
    }

    /// A part of the body, where the request was granted.
    pub(crate) fn part<T: DeserializeOwned>(self, path: &[&str]) -> Result<T, Failure> {
        let request = self.request.clone();
        let part =
            path.iter().try_fold(self.granted()?, |mut value, field| value.get_mut(field).map(Value::take));
        part.and_then(|part| serde_json::from_value(part).ok())
            .context(IncompleteSnafu { request, field: path.join(".") })
    }
}

/// What the server says of its refusal: the identity service in `error.message`, the message bus in `reason`, others in
/// a field that is named like the reason.
fn detail(body: &Value) -> Option<&str> {
    let named = || body.as_object()?.values().find_map(|value| value.get("message"));
    body.pointer("/error/message").or_else(|| body.get("reason")).or_else(named).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Outcome;

    fn rejection(status: StatusCode) -> PortError {
        Failure::Rejection { request: "PUT /thing".to_owned(), status, detail: String::new() }
            .into_port_error("act")
    }

    #[test]
    fn segments_are_encoded_and_appended() {
        let url = address("http://host:1/v3/", &["api", "/", "a b%"]).map(|url| url.to_string());
        assert_eq!(url.ok().as_deref(), Some("http://host:1/v3/api/%2F/a%20b%25"));
    }

    #[test]
    fn what_is_no_web_address_is_refused() {
        for base in ["host:15672", "mailto:someone", ""] {
            let error = address(base, &[]).map_err(|failure| failure.into_port_error("act"));
            assert!(matches!(error, Err(PortError::Rejected { .. })), "{base}");
        }
    }

    #[test]
    fn statuses_become_what_the_engine_can_act_on() -> Outcome {
        for status in [401, 404, 408, 429, 500, 503] {
            let status = StatusCode::from_u16(status)?;
            assert!(matches!(rejection(status), PortError::Unavailable { .. }), "{status}");
        }
        for status in [400, 403, 422] {
            let status = StatusCode::from_u16(status)?;
            assert!(matches!(rejection(status), PortError::Rejected { .. }), "{status}");
        }
        assert!(matches!(rejection(StatusCode::CONFLICT), PortError::Conflict { .. }));
        Ok(())
    }

    #[test]
    fn an_answer_to_a_secret_is_not_repeated() {
        let answer = |is_quotable| Answer {
            status: StatusCode::BAD_REQUEST,
            token: None,
            request: "PUT /thing".to_owned(),
            body: serde_json::json!({"error": {"message": "hunter2 is too short"}}),
            is_quotable,
        };
        assert_eq!(
            answer(true).into_rejection().to_string(),
            "PUT /thing was answered with 400 Bad Request: hunter2 is too short"
        );
        assert_eq!(
            answer(false).into_rejection().to_string(),
            "PUT /thing was answered with 400 Bad Request"
        );
    }
}
