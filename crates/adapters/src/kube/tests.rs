//! The cluster against a scripted API server.

use std::sync::Mutex;

use openstack_operator_model::kind::{CONFIG_MAP, HTTP_ROUTE, SECRET};
use openstack_operator_model::lower::Source;
use reqwest::Method;

use super::*;
use crate::testing::{FakeResponse, FakeService, Outcome, Request, Server, failure};

const OWN: Kind = Kind::own("Example", "examples");

/// Responses by method and path. Other paths are not served.
#[derive(Default)]
struct ApiServer {
    answers: BTreeMap<(String, String), (u16, Value)>,
}

impl ApiServer {
    fn answers(mut self, method: &str, path: &str, status: u16, body: Value) -> Self {
        self.answers.insert((method.to_owned(), path.to_owned()), (status, body));
        self
    }
}

impl FakeService for ApiServer {
    fn respond(&mut self, request: &Request) -> FakeResponse {
        match self.answers.get(&(request.method.to_string(), request.path.join("/"))) {
            Some((status, body)) => FakeResponse::new(*status, body.clone()),
            None => FakeResponse::new(404, json!("404 page not found\n")),
        }
    }
}

async fn start(state: ApiServer) -> Result<(Server<ApiServer>, KubeCluster), Box<dyn std::error::Error>> {
    let server = Server::start(state).await?;
    let cluster = KubeCluster::listing(client(&server.url)?, vec![OWN]);
    Ok((server, cluster))
}

/// A client without retries, which would slow down the tests.
fn client(address: &str) -> Result<Client, Box<dyn std::error::Error>> {
    crate::testing::install_tls_provider();
    let mut config = kube::Config::new(address.parse()?);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

fn status(code: u16, kind: &str, name: &str, message: &str) -> Value {
    let details = json!({"name": name, "kind": kind});
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details})
}

fn manifest(kind: Kind) -> Manifest {
    let metadata = json!({"name": "thing"});
    let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata});
    Manifest { kind, name: "thing".to_owned(), body, source: Source::Other }
}

fn object(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "thing", "namespace": "space", "uid": uid}})
}

#[tokio::test]
async fn apply_is_a_forced_server_side_apply() -> Outcome {
    let path = "api/v1/namespaces/space/configmaps/thing";
    let (server, cluster) = start(ApiServer::default().answers("PATCH", path, 200, object("1"))).await?;
    let applied = cluster.apply("space", &manifest(CONFIG_MAP)).await?;
    assert_eq!(applied.metadata.uid.as_deref(), Some("1"));
    let request = &server.requests()[0];
    assert_eq!(request.field("fieldManager"), Some(MANAGER));
    assert_eq!(request.field("force"), Some("true"));
    assert_eq!(request.header("content-type"), "application/apply-patch+yaml");
    assert_eq!(request.body, manifest(CONFIG_MAP).body);
    Ok(())
}

#[tokio::test]
async fn a_kind_that_is_not_served_is_an_error_with_the_remedy() -> Outcome {
    let (_server, cluster) = start(ApiServer::default()).await?;
    let error = failure(cluster.apply("space", &manifest(HTTP_ROUTE)).await)?;
    assert!(matches!(error, PortError::Rejected { .. }));
    assert_eq!(
        error.to_string(),
        "failed to apply HTTPRoute space/thing: the cluster does not serve \
         httproutes.gateway.networking.k8s.io; install the CRDs"
    );
    Ok(())
}

#[tokio::test]
async fn status_codes_map_to_the_engines_errors() -> Outcome {
    let path = "api/v1/namespaces/space/secrets/thing";
    for (code, kind, expected) in [
        (404, "namespaces", "rejected"),
        (404, "secrets", "conflict"),
        (409, "secrets", "conflict"),
        (400, "secrets", "rejected"),
        (403, "secrets", "rejected"),
        (422, "secrets", "rejected"),
        (401, "secrets", "unavailable"),
        (429, "secrets", "unavailable"),
        (500, "secrets", "unavailable"),
        (503, "secrets", "unavailable"),
    ] {
        let answer = status(code, kind, "thing", "because");
        let (_server, cluster) = start(ApiServer::default().answers("PATCH", path, code, answer)).await?;
        let error = failure(cluster.apply("space", &manifest(SECRET)).await)?;
        let found = match &error {
            PortError::Rejected { reason, .. } => {
                assert_eq!(reason, "because");
                "rejected"
            }
            PortError::Conflict { .. } => "conflict",
            PortError::Unavailable { .. } => "unavailable",
            PortError::LoginRejected { .. } => "login rejected",
            PortError::Foreign { .. } => "foreign",
        };
        assert_eq!(found, expected, "{code} {kind}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unreachable_api_server_is_temporary() -> Outcome {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    drop(listener);
    let cluster = KubeCluster::listing(client(&address)?, Vec::new());
    let error = failure(cluster.get(CONFIG_MAP, "space", "thing").await)?;
    assert!(matches!(error, PortError::Unavailable { .. }));
    Ok(())
}

#[tokio::test]
async fn a_missing_object_or_kind_reads_as_none() -> Outcome {
    let path = "api/v1/namespaces/space/configmaps";
    let absent = status(404, "configmaps", "gone", "not found");
    let state = ApiServer::default().answers("GET", &format!("{path}/thing"), 200, object("1")).answers(
        "GET",
        &format!("{path}/gone"),
        404,
        absent,
    );
    let (_server, cluster) = start(state).await?;
    assert!(cluster.get(CONFIG_MAP, "space", "thing").await?.is_some());
    assert!(cluster.get(CONFIG_MAP, "space", "gone").await?.is_none());
    assert!(cluster.get(HTTP_ROUTE, "space", "thing").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn list_filters_by_all_labels_and_sets_the_kind() -> Outcome {
    let path = "api/v1/namespaces/space/configmaps";
    let list = json!({"items": [{"metadata": {"name": "thing"}}], "metadata": {}});
    let (server, cluster) = start(ApiServer::default().answers("GET", path, 200, list)).await?;
    let labels = BTreeMap::from(["a", "b"].map(|label| (label.to_owned(), "1".to_owned())));
    let found = cluster.list(CONFIG_MAP, "space", &labels).await?;
    assert_eq!(found[0].types.as_ref().map(|types| types.kind.as_str()), Some("ConfigMap"));
    assert_eq!(server.requests()[0].field("labelSelector"), Some("a%3D1%2Cb%3D1"));
    Ok(())
}

#[tokio::test]
async fn only_the_object_with_the_uid_is_deleted() -> Outcome {
    let path = "api/v1/namespaces/space/configmaps/thing";
    let (server, cluster) = start(ApiServer::default().answers("DELETE", path, 200, object("1"))).await?;
    cluster.delete(CONFIG_MAP, "space", "thing", "1").await?;
    let body = &server.requests()[0].body;
    assert_eq!(*body, json!({"propagationPolicy": "Background", "preconditions": {"uid": "1"}}));
    cluster.delete(CONFIG_MAP, "space", "gone", "1").await?;

    let conflict = status(409, "configmaps", "thing", "another change");
    let busy =
        ApiServer::default().answers("DELETE", path, 409, conflict).answers("GET", path, 200, object("1"));
    let (_server, cluster) = start(busy).await?;
    cluster.delete(CONFIG_MAP, "space", "thing", "2").await?;
    let error = failure(cluster.delete(CONFIG_MAP, "space", "thing", "1").await)?;
    assert!(matches!(error, PortError::Conflict { .. }));
    Ok(())
}

#[tokio::test]
async fn metadata_is_merged_and_status_is_applied() -> Outcome {
    let path = "apis/openstack.k8s.io/v1alpha1/namespaces/space/examples/thing";
    let version = |version: &str| {
        let mut object = object("1");
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    let state = ApiServer::default().answers("PATCH", path, 200, version("8")).answers(
        "PATCH",
        &format!("{path}/status"),
        200,
        version("9"),
    );
    let (server, cluster) = start(state).await?;
    let patched = cluster
        .patch_metadata(OWN, "space", "thing", json!({"finalizers": null, "resourceVersion": "7"}))
        .await?;
    assert_eq!(patched.as_deref(), Some("8"));
    let mut read: DynamicObject = serde_json::from_value(object("1"))?;
    read.metadata.resource_version = patched;
    let stored = cluster.write_status(OWN, &read, &json!({"phase": "Ready"}), WriteMode::Store).await?;
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("9"));
    cluster.write_status(OWN, &read, &json!({}), WriteMode::DryRun).await?;
    let requests = server.requests();
    assert_eq!(requests[1].field("dryRun"), None);
    assert_eq!(requests[2].field("dryRun"), Some("All"));
    assert_eq!(requests[0].header("content-type"), "application/merge-patch+json");
    assert_eq!(requests[0].body, json!({"metadata": {"finalizers": null, "resourceVersion": "7"}}));
    assert_eq!(requests[1].field("force"), Some("true"));
    assert_eq!(
        requests[1].body,
        json!({
            "apiVersion": "openstack.k8s.io/v1alpha1",
            "kind": "Example",
            "metadata": {"name": "thing", "resourceVersion": "8"},
            "status": {"phase": "Ready"},
        })
    );
    Ok(())
}

#[tokio::test]
async fn a_status_of_an_earlier_version_of_the_object_is_a_conflict() -> Outcome {
    let path = "apis/openstack.k8s.io/v1alpha1/namespaces/space/examples/thing/status";
    let conflict = status(409, "examples", "thing", "the object has been modified");
    let (_server, cluster) = start(ApiServer::default().answers("PATCH", path, 409, conflict)).await?;
    let read: DynamicObject = serde_json::from_value(object("1"))?;
    let error = failure(cluster.write_status(OWN, &read, &json!({}), WriteMode::Store).await)?;
    assert!(matches!(error, PortError::Conflict { .. }));
    Ok(())
}

#[tokio::test]
async fn children_are_filtered_by_owner_and_unknown_kinds_are_skipped() -> Outcome {
    let child = |name: &str, owner: &str| {
        let owners = json!([{"apiVersion": "v1", "kind": "Example", "name": "owner", "uid": owner}]);
        json!({"metadata": {"name": name, "uid": format!("uid of {name}"), "ownerReferences": owners}})
    };
    let list = |items: Value| json!({"metadata": {}, "items": items});
    let state = ApiServer::default()
        .answers(
            "GET",
            "api/v1/namespaces/space/configmaps",
            200,
            list(json!([child("one", "1"), child("other", "2"), {"metadata": {"name": "free", "uid": "3"}}])),
        )
        .answers(
            "GET",
            "apis/openstack.k8s.io/v1alpha1/namespaces/space/examples",
            200,
            list(json!([child("two", "1")])),
        );
    let (server, cluster) = start(state).await?;
    let reference =
        |kind, name: &str| ChildReference { kind, name: name.to_owned(), uid: format!("uid of {name}") };
    assert_eq!(cluster.children("space", "1").await?, [reference(CONFIG_MAP, "one"), reference(OWN, "two")]);
    let requests = server.requests();
    assert_eq!(requests.len(), CHILD_KINDS.len() + 1);
    let selector = "app.kubernetes.io%2Fmanaged-by%3Dopenstack-operator";
    assert!(requests.iter().all(|request| request.field("labelSelector") == Some(selector)));
    Ok(())
}

#[tokio::test]
async fn watched_children_need_no_request() -> Outcome {
    let server = Server::start(ApiServer::default()).await?;
    let index = Arc::new(ChildIndex::default());
    let child = ChildReference { kind: SECRET, name: "thing".to_owned(), uid: "2".to_owned() };
    index.insert("1", child.clone());
    let recent = Arc::new(RecentObjects::new(vec![OWN]));
    let cluster = KubeCluster::watched(client(&server.url)?, index, recent);
    assert_eq!(cluster.children("space", "1").await?, [child]);
    assert!(server.requests().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_object_that_has_not_changed_is_read_once() -> Outcome {
    let path = "api/v1/namespaces/space/secrets/thing";
    let body = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "thing", "namespace": "space", "uid": "1", "resourceVersion": "7" },
    });
    let state = ApiServer::default()
        .answers("GET", path, 200, body.clone())
        .answers("PATCH", path, 200, body.clone())
        .answers("DELETE", path, 200, body.clone());
    let server = Server::start(state).await?;
    let recent = Arc::new(RecentObjects::new(vec![OWN]));
    let cluster = KubeCluster::watched(client(&server.url)?, Arc::default(), recent);
    let read = async || cluster.get(SECRET, "space", "thing").await.map(|object| object.is_some());
    assert!(read().await? && read().await?);
    assert_eq!(server.requests().len(), 1);
    cluster.apply("space", &manifest(SECRET)).await?;
    assert!(read().await?);
    assert_eq!(server.requests().len(), 1, "the answer of an apply is the object");
    cluster.delete(SECRET, "space", "thing", "1").await?;
    assert!(read().await?);
    assert_eq!(server.requests().len(), 2, "a deletion is followed by a read");
    cluster.patch_metadata(SECRET, "space", "thing", json!({})).await?;
    assert!(read().await?);
    assert_eq!(server.requests().len(), 2, "the answer of a patch is only metadata");
    server.change(|state| {
        let conflict = json!({ "kind": "Status", "code": 409, "reason": "Conflict", "message": "changed" });
        state.answers.insert(("PATCH".to_owned(), path.to_owned()), (409, conflict));
    });
    let refused = cluster.apply("space", &manifest(SECRET)).await;
    assert!(matches!(refused, Err(PortError::Conflict { .. })));
    assert!(read().await?);
    assert_eq!(server.requests().len(), 2, "a refused change is followed by a read");
    Ok(())
}

fn announcement(note: &str) -> Announcement {
    Announcement { warning: true, reason: "Waiting", note: note.to_owned() }
}

#[tokio::test]
async fn each_note_is_a_separate_event_and_repetitions_are_counted() -> Outcome {
    let (server, cluster) = start(ApiServer::default()).await?;
    let object: DynamicObject = serde_json::from_value(object("1"))?;
    let path = "apis/events.k8s.io/v1/namespaces/space/events";
    let event = json!({"metadata": {"name": "event"}, "eventTime": null});
    server.change(|state| {
        state.answers.insert(("POST".to_owned(), path.to_owned()), (201, event.clone()));
    });
    cluster.publish(&object, announcement("for one")).await?;
    let first = server.requests().remove(0);
    assert_eq!(first.body["note"], "for one");
    assert_eq!(first.body["type"], "Warning");
    assert_eq!(first.body["reportingController"], MANAGER);
    assert_eq!(first.body["regarding"]["kind"], "ConfigMap");
    assert_eq!(first.body["regarding"]["uid"], "1");

    let name = first.body["metadata"]["name"].as_str().unwrap_or_default();
    server.change(|state| {
        state.answers.insert(("PATCH".to_owned(), format!("{path}/{name}")), (200, event.clone()));
    });
    cluster.publish(&object, announcement("for one")).await?;
    cluster.publish(&object, announcement("for another")).await?;
    let methods: Vec<Method> = server.requests().into_iter().map(|request| request.method).collect();
    assert_eq!(methods, [Method::PATCH, Method::POST]);
    Ok(())
}

#[test]
fn a_long_note_is_cut_at_a_character_boundary() {
    let event = kubernetes_event(&announcement(&format!("x{}", "ü".repeat(1000))));
    assert_eq!(event.note.map(|note| note.len()), Some(1023));
}

#[tokio::test]
async fn the_callback_runs_for_every_write() -> Outcome {
    let (_server, cluster) = start(ApiServer::default()).await?;
    let verbs = Arc::new(Mutex::new(Vec::new()));
    let cluster = cluster.with_on_write(Arc::new({
        let verbs = Arc::clone(&verbs);
        move |verb| verbs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(verb)
    }));
    let object: DynamicObject = serde_json::from_value(object("1"))?;
    drop(cluster.get(CONFIG_MAP, "space", "thing").await);
    drop(cluster.list(CONFIG_MAP, "space", &BTreeMap::new()).await);
    drop(cluster.children("space", "1").await);
    drop(cluster.apply("space", &manifest(CONFIG_MAP)).await);
    drop(cluster.delete(CONFIG_MAP, "space", "thing", "1").await);
    drop(cluster.patch_metadata(CONFIG_MAP, "space", "thing", json!({})).await);
    drop(cluster.write_status(OWN, &object, &json!({}), WriteMode::DryRun).await);
    drop(cluster.write_status(OWN, &object, &json!({}), WriteMode::Store).await);
    drop(cluster.publish(&object, announcement("x")).await);
    let notified = std::mem::take(&mut *verbs.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    assert_eq!(notified, ["apply", "delete", "patch", "status", "event"]);
    Ok(())
}
