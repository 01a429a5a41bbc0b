//! Types of volumes, against an API in memory.

use std::collections::BTreeMap;

use axum::http::Method;
use openstack_operator_engine::ports::{IdentityLogin, Login};
use openstack_operator_model::plan::{VolumeEncryption, VolumeType};
use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeResponse, FakeService, Outcome, Request, Server};

/// An API with types by id. Types in use cannot be changed.
#[derive(Default)]
struct Volumes {
    types: BTreeMap<String, Value>,
    encryption: BTreeMap<String, Value>,
    used: Vec<String>,
}

impl Volumes {
    fn refusal(&self, id: &str) -> Option<FakeResponse> {
        let message = json!({ "badRequest": { "code": 400, "message": "Volume Type is currently in use." } });
        self.used.iter().any(|used| used == id).then(|| FakeResponse::new(400, message))
    }

    fn change_properties(&mut self, id: &str, request: &Request) -> FakeResponse {
        if let Some(refusal) = self.refusal(id) {
            return refusal;
        }
        let specs = self.types.get_mut(id).and_then(|known| known["extra_specs"].as_object_mut());
        let added = request.body["extra_specs"].as_object().cloned().unwrap_or_default();
        specs.into_iter().for_each(|specs| specs.extend(added.clone()));
        FakeResponse::new(200, request.body.clone())
    }

    fn change_encryption(&mut self, id: &str, request: &Request) -> FakeResponse {
        if let Some(refusal) = self.refusal(id) {
            return refusal;
        }
        let mut encryption = request.body["encryption"].clone();
        encryption["encryption_id"] = json!(format!("e-{id}"));
        self.encryption.insert(id.to_owned(), encryption);
        FakeResponse::new(200, request.body.clone())
    }

    fn create(&mut self, request: &Request) -> FakeResponse {
        let wanted = &request.body["volume_type"];
        let id = format!("id-{}", wanted["name"].as_str().unwrap_or_default());
        let created = json!({
            "id": id, "name": wanted["name"], "description": wanted["description"],
            "is_public": wanted["os-volume-type-access:is_public"], "extra_specs": wanted["extra_specs"],
        });
        self.types.insert(id, created.clone());
        FakeResponse::new(200, json!({ "volume_type": created }))
    }
}

impl FakeService for Volumes {
    fn respond(&mut self, request: &Request) -> FakeResponse {
        match (&request.method, request.segments().as_slice()) {
            (&Method::POST, ["v3", "auth", "tokens"]) => {
                let token = json!({ "token": { "expires_at": "2999-01-01T00:00:00Z" } });
                FakeResponse::new(201, token).header("x-subject-token", "token")
            }
            _ if request.header("x-auth-token") != "token" => FakeResponse::empty(401),
            // Without this query the API lists public types only.
            (&Method::GET, ["v3", "types"]) if request.field("is_public") == Some("None") => {
                FakeResponse::new(200, json!({ "volume_types": self.types.values().collect::<Vec<_>>() }))
            }
            (&Method::POST, ["v3", "types"]) => self.create(request),
            (&Method::PUT, ["v3", "types", id]) => {
                let Some(known) = self.types.get_mut(*id) else { return FakeResponse::empty(404) };
                known["description"] = request.body["volume_type"]["description"].clone();
                known["is_public"] = request.body["volume_type"]["is_public"].clone();
                FakeResponse::new(200, json!({ "volume_type": known }))
            }
            (&Method::DELETE, ["v3", "types", id]) => self.refusal(id).unwrap_or_else(|| {
                self.types.remove(*id);
                FakeResponse::empty(202)
            }),
            (&Method::POST, ["v3", "types", id, "extra_specs"]) => self.change_properties(id, request),
            (&Method::DELETE, ["v3", "types", id, "extra_specs", key]) => {
                self.refusal(id).unwrap_or_else(|| {
                    let known =
                        self.types.get_mut(*id).and_then(|known| known["extra_specs"].as_object_mut());
                    known.into_iter().for_each(|specs| drop(specs.remove(*key)));
                    FakeResponse::empty(202)
                })
            }
            (&Method::GET, ["v3", "types", id, "encryption"]) => {
                FakeResponse::new(200, self.encryption.get(*id).cloned().unwrap_or_else(|| json!({})))
            }
            (&Method::POST, ["v3", "types", id, "encryption"])
            | (&Method::PUT, ["v3", "types", id, "encryption", _]) => self.change_encryption(id, request),
            (&Method::DELETE, ["v3", "types", id, "encryption", _]) => {
                self.refusal(id).unwrap_or_else(|| {
                    self.encryption.remove(*id);
                    FakeResponse::empty(202)
                })
            }
            _ => FakeResponse::empty(404),
        }
    }
}

async fn start(
    state: Volumes,
) -> Result<(Server<Volumes>, BlockStorageV3, VolumeTypesServer), Box<dyn std::error::Error>> {
    let server = Server::start(state).await?;
    let administrator = Login { username: "admin".to_owned(), password: "secret".to_owned() };
    let url = format!("{}/v3", server.url);
    let identity = IdentityLogin { url: url.clone(), administrator };
    Ok((server, BlockStorageV3::new()?, VolumeTypesServer { url, identity }))
}

fn wanted(name: &str, backend: &str) -> VolumeType {
    VolumeType {
        name: name.to_owned(),
        description: format!("Volumes on {backend}"),
        public: true,
        properties: BTreeMap::from([("volume_backend_name".to_owned(), backend.to_owned())]),
        encryption: None,
    }
}

fn encrypted(key_size: u32) -> VolumeType {
    let encryption = VolumeEncryption { provider: "luks", cipher: "aes-xts-plain64", key_size };
    VolumeType { encryption: Some(encryption), ..wanted("secret", "a") }
}

/// Methods and paths of the requests that change something.
fn changes(server: &Server<Volumes>) -> Vec<String> {
    let requests = server.requests().into_iter();
    let changing =
        requests.filter(|one| one.method != Method::GET && !one.path.contains(&"tokens".to_owned()));
    changing.map(|one| format!("{} {}", one.method, one.path.join("/"))).collect()
}

#[tokio::test]
async fn types_are_created_once_and_changed_where_they_differ() -> Outcome {
    let (server, api, login) = start(Volumes::default()).await?;
    let types = [wanted("fast", "a"), wanted("slow", "b")];
    assert!(api.ensure_types(&login, &types).await?.wrote);
    changes(&server);
    assert_eq!(api.ensure_types(&login, &types).await?, VolumeTypesOutcome::default());
    assert_eq!(changes(&server), [""; 0]);
    server.change(|volumes| {
        volumes.types.values_mut().for_each(|one| one["extra_specs"]["other"] = json!("x"));
    });
    let moved = VolumeType { public: false, ..wanted("fast", "c") };
    assert!(api.ensure_types(&login, &[moved]).await?.wrote);
    let expected = [
        "POST v3/types/id-fast/extra_specs",
        "DELETE v3/types/id-fast/extra_specs/other",
        "PUT v3/types/id-fast",
        "DELETE v3/types/id-slow",
    ];
    assert_eq!(changes(&server), expected);
    Ok(())
}

#[tokio::test]
async fn an_encrypted_type_is_offered_only_with_its_encryption() -> Outcome {
    let (server, api, login) = start(Volumes::default()).await?;
    api.ensure_types(&login, &[encrypted(256)]).await?;
    let expected = ["POST v3/types", "POST v3/types/id-secret/encryption", "PUT v3/types/id-secret"];
    assert_eq!(changes(&server), expected);
    let created = server.change(|volumes| volumes.types["id-secret"].clone());
    assert_eq!(created["is_public"], true);
    api.ensure_types(&login, &[encrypted(256)]).await?;
    assert_eq!(changes(&server), [""; 0]);
    api.ensure_types(&login, &[encrypted(512)]).await?;
    assert_eq!(changes(&server), ["PUT v3/types/id-secret/encryption/e-id-secret"]);
    api.ensure_types(&login, &[wanted("secret", "a")]).await?;
    assert_eq!(changes(&server), ["DELETE v3/types/id-secret/encryption/e-id-secret"]);
    Ok(())
}

#[tokio::test]
async fn a_type_in_use_is_reported_and_does_not_stop_the_others() -> Outcome {
    let (server, api, login) = start(Volumes::default()).await?;
    api.ensure_types(&login, &[wanted("fast", "a"), wanted("slow", "b")]).await?;
    server.change(|volumes| volumes.used = vec!["id-fast".to_owned(), "id-slow".to_owned()]);
    let outcome = api.ensure_types(&login, &[wanted("slow", "c"), wanted("new", "c")]).await?;
    let refused = |name: &str, change| RefusedChange {
        name: name.to_owned(),
        change,
        reason: "Volume Type is currently in use.".to_owned(),
    };
    assert_eq!(outcome.refused, [refused("slow", "changed"), refused("fast", "deleted")]);
    assert!(server.change(|volumes| volumes.types.contains_key("id-new")));
    Ok(())
}

#[tokio::test]
async fn a_type_of_an_administrator_is_used_but_not_changed() -> Outcome {
    let known = json!({
        "id": "1", "name": "fast", "description": null, "is_public": true,
        "extra_specs": { "volume_backend_name": "a" },
    });
    let state = Volumes { types: BTreeMap::from([("1".to_owned(), known)]), ..Volumes::default() };
    let (server, api, login) = start(state).await?;
    let outcome = api.ensure_types(&login, &[wanted("fast", "a")]).await?;
    assert_eq!(outcome, VolumeTypesOutcome::default());
    let outcome = api.ensure_types(&login, &[wanted("fast", "b")]).await?;
    assert!(outcome.refused[0].reason.contains("rename it"), "{outcome:?}");
    api.ensure_types(&login, &[]).await?;
    assert_eq!(changes(&server), [""; 0]);
    Ok(())
}
