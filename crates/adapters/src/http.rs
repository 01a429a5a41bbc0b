//! HTTP with JSON bodies, for RabbitMQ's management API and OpenStack APIs.

use std::time::Duration;

use openstack_operator_engine::claim::Refusal;
use openstack_operator_engine::ports::{Login, PortError};
use reqwest::{Client, Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Failure {
    #[snafu(display("cannot create an HTTP client"))]
    Setup { source: reqwest::Error },
    #[snafu(display("invalid URL {address}; it must start with http:// or https://"))]
    Address { address: String },
    #[snafu(display("no response to {request}"))]
    NoResponse { request: String, source: reqwest::Error },
    #[snafu(display("{request} returned {status}{detail}"))]
    Rejection { request: String, status: StatusCode, detail: String },
    #[snafu(display("the response to {request} has no valid {field}"))]
    Incomplete { request: String, field: String },
    #[snafu(display("{kind} {name} does not exist yet"))]
    Missing { kind: &'static str, name: String },
    #[snafu(display("{refusal}"))]
    Foreign { refusal: Refusal },
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Foreign { refusal }
    }
}

impl Failure {
    /// Maps to the engine's errors.
    pub(crate) fn into_port_error(self, action: &str) -> PortError {
        let action = action.to_owned();
        match &self {
            Self::Foreign { refusal } => PortError::Foreign { refusal: refusal.clone() },
            Self::Address { .. } => PortError::Rejected { action, reason: self.to_string() },
            Self::Rejection { status, .. } if *status == StatusCode::CONFLICT => {
                PortError::Conflict { action }
            }
            Self::Rejection { status, .. } if *status == StatusCode::UNAUTHORIZED => {
                PortError::LoginRejected { action, reason: self.to_string() }
            }
            Self::Rejection { status, .. } if status.is_client_error() && !is_temporary(*status) => {
                PortError::Rejected { action, reason: self.to_string() }
            }
            _ => PortError::Unavailable { action, source: Box::new(self) },
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// A client for servers inside the cluster. It uses no proxy and follows no redirects, which would send credentials
/// elsewhere. Requires a process-wide TLS provider.
pub(crate) fn client() -> Result<Client, Failure> {
    let builder = || {
        Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
    };
    // Without root certificates plain HTTP still works, which most internal servers use.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).context(SetupSnafu)
}

/// One request. No debug output, since body and credentials are secret.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// URL to which the path is appended.
    pub(crate) base: &'a str,
    /// Path segments, not yet encoded.
    pub(crate) path: &'a [&'a str],
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) credentials: Credentials<'a>,
    /// API service and microversion.
    pub(crate) version: Option<&'a str>,
    pub(crate) body: Body,
}

#[derive(Clone)]
pub(crate) enum Credentials<'a> {
    /// The body contains them.
    None,
    Basic(&'a Login),
    Token(&'a str),
}

#[derive(Clone)]
pub(crate) enum Body {
    Empty,
    Plain(Value),
    /// The response may quote the request, so it is never printed.
    Secret(Value),
}

/// Request header with a token.
const TOKEN_HEADER: &str = "X-Auth-Token";
/// Response header with a new token.
const NEW_TOKEN_HEADER: &str = "X-Subject-Token";
/// Request header with the API microversion.
const VERSION_HEADER: &str = "OpenStack-API-Version";

/// A response with any status.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) token: Option<String>,
    request: String,
    body: Value,
    is_quotable: bool,
}

pub(crate) async fn send(client: &Client, request: Request<'_>) -> Result<Response, Failure> {
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
    let response = call.send().await.context(NoResponseSnafu { request: &description })?;
    let status = response.status();
    let token =
        response.headers().get(NEW_TOKEN_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = response.bytes().await.context(NoResponseSnafu { request: &description })?;
    // Not every response has a JSON body; `field` reports missing fields.
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok(Response { status, token, request: description, body, is_quotable })
}

fn address(base: &str, path: &[&str]) -> Result<Url, Failure> {
    let mut url = Url::parse(base).ok().context(AddressSnafu { address: base })?;
    // URLs of these schemes always have a path, which `path_segments_mut` requires.
    if !matches!(url.scheme(), "http" | "https") {
        return AddressSnafu { address: base }.fail();
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    Ok(url)
}

impl Response {
    /// The body of a successful response.
    pub(crate) fn success(self) -> Result<Value, Failure> {
        if self.status.is_success() { Ok(self.body) } else { Err(self.into_rejection()) }
    }

    /// The body of a successful response, or none for 404.
    pub(crate) fn success_if_found(self) -> Result<Option<Value>, Failure> {
        if self.status == StatusCode::NOT_FOUND { Ok(None) } else { self.success().map(Some) }
    }

    /// The items of the body of a successful response, which is a list.
    pub(crate) fn items<T: DeserializeOwned>(self) -> Result<Vec<T>, Failure> {
        let request = self.request.clone();
        serde_json::from_value(self.success()?).ok().context(IncompleteSnafu { request, field: "items" })
    }

    pub(crate) fn into_rejection(self) -> Failure {
        let detail = if self.is_quotable { detail(&self.body) } else { None };
        let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        Failure::Rejection { request: self.request, status: self.status, detail }
    }

    pub(crate) fn into_incomplete(self, field: &str) -> Failure {
        Failure::Incomplete { request: self.request, field: field.to_owned() }
    }

    /// A field of the body of a successful response.
    pub(crate) fn field<T: DeserializeOwned>(self, path: &[&str]) -> Result<T, Failure> {
        let request = self.request.clone();
        let value =
            path.iter().try_fold(self.success()?, |mut value, field| value.get_mut(field).map(Value::take));
        value
            .and_then(|value| serde_json::from_value(value).ok())
            .context(IncompleteSnafu { request, field: path.join(".") })
    }
}

/// Error message of a response: Keystone uses `error.message`, RabbitMQ `reason`, other services a field named after
/// the error.
fn detail(body: &Value) -> Option<&str> {
    let nested = || body.as_object()?.values().find_map(|value| value.get("message"));
    body.pointer("/error/message").or_else(|| body.get("reason")).or_else(nested).and_then(Value::as_str)
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
    fn an_invalid_url_is_rejected() {
        for base in ["host:15672", "mailto:someone", ""] {
            let error = address(base, &[]).map_err(|failure| failure.into_port_error("act"));
            assert!(matches!(error, Err(PortError::Rejected { .. })), "{base}");
        }
    }

    #[test]
    fn statuses_map_to_temporary_and_permanent_errors() -> Outcome {
        for status in [404, 408, 429, 500, 503] {
            let status = StatusCode::from_u16(status)?;
            assert!(matches!(rejection(status), PortError::Unavailable { .. }), "{status}");
        }
        for status in [400, 403, 422] {
            let status = StatusCode::from_u16(status)?;
            assert!(matches!(rejection(status), PortError::Rejected { .. }), "{status}");
        }
        assert!(matches!(rejection(StatusCode::CONFLICT), PortError::Conflict { .. }));
        assert!(matches!(rejection(StatusCode::UNAUTHORIZED), PortError::LoginRejected { .. }));
        Ok(())
    }

    #[test]
    fn a_response_to_a_secret_body_is_not_printed() {
        let response = |is_quotable| Response {
            status: StatusCode::BAD_REQUEST,
            token: None,
            request: "PUT /thing".to_owned(),
            body: serde_json::json!({"error": {"message": "hunter2 is too short"}}),
            is_quotable,
        };
        assert_eq!(
            response(true).into_rejection().to_string(),
            "PUT /thing returned 400 Bad Request: hunter2 is too short"
        );
        assert_eq!(response(false).into_rejection().to_string(), "PUT /thing returned 400 Bad Request");
    }
}
