//! A small API server: collections of objects by path, with lists, reads and merge patches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

#[derive(Default)]
pub(crate) struct Contents {
    /// Objects by the path of their collection, e.g. `/api/v1/nodes`.
    collections: BTreeMap<String, Vec<Value>>,
    /// Plain answers by path, e.g. logs.
    texts: BTreeMap<String, String>,
    /// Collections that the caller cannot list.
    forbidden: BTreeSet<String>,
    /// Bodies of all patches, with their path.
    pub(crate) patches: Vec<(String, Value)>,
    /// Paths of all requests that create objects.
    pub(crate) creations: Vec<String>,
}

/// A server that runs until it is dropped, and a kubeconfig for it.
pub(crate) struct ApiServer {
    _runtime: Runtime,
    pub(crate) contents: Arc<Mutex<Contents>>,
    directory: tempfile::TempDir,
}

impl ApiServer {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let contents = Arc::new(Mutex::new(Contents::default()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(answer).with_state(contents.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "openstack" } }],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { _runtime: runtime, contents, directory }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Adds objects to a collection, which the server serves from now on.
    pub(crate) fn add(&self, path: &str, objects: impl IntoIterator<Item = Value>) {
        self.contents.lock().unwrap().collections.entry(path.to_owned()).or_default().extend(objects);
    }

    /// Removes all objects of a collection.
    pub(crate) fn clear(&self, path: &str) {
        self.contents.lock().unwrap().collections.insert(path.to_owned(), Vec::new());
    }

    pub(crate) fn add_text(&self, path: &str, text: &str) {
        self.contents.lock().unwrap().texts.insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn forbid(&self, path: &str) {
        self.contents.lock().unwrap().forbidden.insert(path.to_owned());
    }
}

async fn answer(State(contents): State<Arc<Mutex<Contents>>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    if query.contains("watch=") {
        // A watch without events.
        std::future::pending::<()>().await;
    }
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap_or_else(|_| Bytes::new());
    let mut contents = contents.lock().unwrap();
    match method {
        Method::GET if path == "/version" => reply(&json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        })),
        Method::GET => read(&contents, &path, &query),
        Method::POST => {
            contents.creations.push(path);
            let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
            review["status"] = json!({ "allowed": true });
            reply(&review)
        }
        Method::PATCH => {
            let patch: Value = serde_json::from_slice(&body).unwrap_or_default();
            contents.patches.push((path.clone(), patch));
            read(&contents, &path, "")
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &path),
    }
}

fn read(contents: &Contents, path: &str, query: &str) -> Response {
    let with_query = format!("{path}?{query}");
    let text = contents.texts.get(&with_query).or_else(|| contents.texts.get(path));
    if let Some(text) = text {
        return ([(header::CONTENT_TYPE, "text/plain")], text.clone()).into_response();
    }
    if contents.forbidden.contains(path) {
        return failure(StatusCode::FORBIDDEN, "Forbidden", path);
    }
    if let Some(objects) = collection(contents, path) {
        return reply(&json!({
            "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": objects,
        }));
    }
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let found = contents.collections.get(parent).into_iter().flatten();
    let mut found = found.filter(|object| object["metadata"]["name"] == name);
    found.next().map_or_else(|| failure(StatusCode::NOT_FOUND, "NotFound", path), reply)
}

/// A collection of a namespace, of the cluster, or of all namespaces together.
fn collection(contents: &Contents, path: &str) -> Option<Vec<Value>> {
    if let Some(objects) = contents.collections.get(path) {
        return Some(objects.clone());
    }
    let (group, resource) = path.rsplit_once('/')?;
    let is_part = |known: &str| {
        let below = known.strip_prefix(&format!("{group}/namespaces/"));
        below.and_then(|below| below.split_once('/')).is_some_and(|(_, rest)| rest == resource)
    };
    let parts: Vec<&Vec<Value>> =
        contents.collections.iter().filter(|(known, _)| is_part(known)).map(|(_, objects)| objects).collect();
    (!parts.is_empty()).then(|| parts.into_iter().flatten().cloned().collect())
}

fn reply(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn failure(code: StatusCode, reason: &str, path: &str) -> Response {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": format!("{path}: {reason}"),
    });
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
