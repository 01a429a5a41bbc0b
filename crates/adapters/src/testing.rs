//! A server on the loopback interface that answers as a function says, for tests of what speaks HTTP.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use openstack_operator_engine::ports::{PortError, PortResult};
use serde_json::Value;

/// What a test returns, so that whatever it needs can fail it.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// One request, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Segments as they were sent, still encoded.
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

pub(crate) struct Reply {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Reply {
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

/// Something that answers requests and can be looked at and changed by the test in between.
pub(crate) trait Answering: Send + 'static {
    fn answer(&mut self, request: &Request) -> Reply;
}

/// The state of a running server and everything that it was asked.
pub(crate) struct Server<T> {
    pub(crate) url: String,
    shared: Arc<Mutex<(T, Vec<Request>)>>,
}

impl<T: Answering> Server<T> {
    pub(crate) async fn start(state: T) -> std::io::Result<Self> {
        install_tls_provider();
        let shared = Arc::new(Mutex::new((state, Vec::new())));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = axum::Router::new().fallback({
            let shared = Arc::clone(&shared);
            move |method: Method, uri: Uri, headers: HeaderMap, bytes: Bytes| async move {
                answer(&mut lock(&shared), method, &uri, headers, &bytes)
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, shared })
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.shared).0)
    }

    /// What was asked since this was asked the last time.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.shared).1)
    }
}

/// Another test of the same process may have been first, which is as good.
pub(crate) fn install_tls_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer<T: Answering>(
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
    let reply = state.answer(&request);
    requests.push(request);
    let body = match reply.body {
        Value::Null => Body::empty(),
        Value::String(text) => Body::from(text),
        body => Body::from(body.to_string()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    for (name, value) in reply.headers {
        response
            .headers_mut()
            .extend(HeaderValue::from_str(&value).map(|value| (HeaderName::from_static(name), value)));
    }
    response
}

/// The error that a call must have ended with.
pub(crate) fn failure<T>(result: PortResult<T>) -> Result<PortError, &'static str> {
    result.err().ok_or("what must fail did not")
}

/// Everything that an error says to anyone, in both ways of writing it.
pub(crate) fn everything_said(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = format!("{error:?}");
    let mut next = Some(error);
    while let Some(error) = next {
        said = format!("{said}\n{error}\n{error:#?}");
        next = error.source();
    }
    said
}
