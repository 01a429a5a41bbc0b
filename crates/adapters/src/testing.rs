//! An HTTP server on the loopback interface with a scripted service, for tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use openstack_operator_engine::claim::{Adoption, Claim};
use openstack_operator_engine::ports::{PortError, PortResult};
use serde_json::Value;

/// Result of a test.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The object that the tests act for.
pub(crate) const OWNER: &str = "Thing openstack/sample";
/// Another object.
pub(crate) const OTHER: &str = "Thing openstack/other";

pub(crate) fn claim(owner: &str, adoption: Adoption) -> Claim {
    Claim { owner: owner.to_owned(), adoption }
}

/// The claim of a new object.
pub(crate) fn own_claim() -> Claim {
    claim(OWNER, Adoption::Nothing)
}

/// A parsed request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Encoded path segments.
    pub(crate) path: Vec<String>,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A field of the query; the values in these tests need no decoding.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|pair| pair.0 == name)
            .map(|pair| pair.1)
    }

    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

pub(crate) struct FakeResponse {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl FakeResponse {
    pub(crate) fn new(status: u16, body: Value) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, headers: Vec::new(), body }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self::new(status, Value::Null)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A service with state that tests can inspect and change.
pub(crate) trait FakeService: Send + 'static {
    fn respond(&mut self, request: &Request) -> FakeResponse;
}

/// State of a running server and its received requests.
pub(crate) struct Server<T> {
    pub(crate) url: String,
    shared: Arc<Mutex<(T, Vec<Request>)>>,
}

impl<T: FakeService> Server<T> {
    pub(crate) async fn start(state: T) -> std::io::Result<Self> {
        install_tls_provider();
        let shared = Arc::new(Mutex::new((state, Vec::new())));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = axum::Router::new().fallback({
            let shared = Arc::clone(&shared);
            move |method: Method, uri: Uri, headers: HeaderMap, bytes: Bytes| async move {
                respond(&mut lock(&shared), method, &uri, headers, &bytes)
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, shared })
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.shared).0)
    }

    /// Requests since the last call.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.shared).1)
    }
}

/// Another test of the process may already have installed it.
pub(crate) fn install_tls_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn respond<T: FakeService>(
    (state, requests): &mut (T, Vec<Request>),
    method: Method,
    uri: &Uri,
    headers: HeaderMap,
    bytes: &Bytes,
) -> Response<Body> {
    let request = Request {
        method,
        path: uri.path().trim_start_matches('/').split('/').map(str::to_owned).collect(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers,
        body: serde_json::from_slice(bytes).unwrap_or(Value::Null),
    };
    let fake = state.respond(&request);
    requests.push(request);
    let body = match fake.body {
        Value::Null => Body::empty(),
        Value::String(text) => Body::from(text),
        body => Body::from(body.to_string()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = fake.status;
    for (name, value) in fake.headers {
        response
            .headers_mut()
            .extend(HeaderValue::from_str(&value).map(|value| (HeaderName::from_static(name), value)));
    }
    response
}

/// The error of a call that must fail.
pub(crate) fn failure<T>(result: PortResult<T>) -> Result<PortError, &'static str> {
    result.err().ok_or("the call must fail")
}

/// All text of an error and its causes, in display and debug format.
pub(crate) fn full_error_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        text = format!("{text}\n{error}\n{error:#?}");
        next = error.source();
    }
    text
}
