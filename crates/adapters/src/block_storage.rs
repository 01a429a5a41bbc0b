//! The block storage API: types of volumes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use openstack_operator_engine::ports::{
    BlockStorage, PortResult, RefusedChange, VolumeTypesOutcome, VolumeTypesServer,
};
use openstack_operator_model::plan::{VolumeEncryption, VolumeType};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{self, Body, Failure, Response};
use crate::identity::session::{Session, Tokens};

/// Property that marks types of the operator. Schedulers ignore properties with a prefix that they do not know. The API
/// stores it: after a change the operator would no longer recognize its types.
const MARK: (&str, &str) = ("openstack-operator:managed", "true");
/// Number of types to list; the API lists no more at once.
const PAGE: &str = "1000";

/// Client of block storage APIs. Administrator tokens are reused until shortly before they expire.
pub struct BlockStorageV3 {
    client: Client,
    tokens: Tokens,
}

impl BlockStorageV3 {
    /// Requires a process-wide TLS provider.
    pub fn new() -> PortResult<Self> {
        let client = http::client()
            .map_err(|failure| failure.into_port_error("create an HTTP client for block storage"))?;
        Ok(Self { client, tokens: Tokens::default() })
    }
}

#[async_trait]
impl BlockStorage for BlockStorageV3 {
    async fn ensure_types(
        &self,
        server: &VolumeTypesServer,
        types: &[VolumeType],
    ) -> PortResult<VolumeTypesOutcome> {
        let session = Session::new(&self.client, &self.tokens, &server.identity);
        let mut api =
            Api { session: session.for_service(&server.url, None), outcome: VolumeTypesOutcome::default() };
        api.ensure(types).await.map_err(|failure| failure.into_port_error("ensure volume types"))?;
        Ok(api.outcome)
    }
}

/// A type as the API shows it to the administrator.
#[derive(Deserialize)]
struct Known {
    id: String,
    name: String,
    #[serde(default)]
    description: Option<String>,
    is_public: bool,
    #[serde(default)]
    extra_specs: BTreeMap<String, String>,
}

impl Known {
    fn is_own(&self) -> bool {
        self.extra_specs.get(MARK.0).map(String::as_str) == Some(MARK.1)
    }
}

/// Properties of a wanted type, with the mark.
fn properties(wanted: &VolumeType) -> BTreeMap<String, String> {
    let mark = (MARK.0.to_owned(), MARK.1.to_owned());
    wanted.properties.clone().into_iter().chain([mark]).collect()
}

fn encryption_body(wanted: &VolumeEncryption) -> Value {
    let VolumeEncryption { provider, cipher, key_size } = wanted;
    json!({ "encryption": {
        "provider": provider, "cipher": cipher, "key_size": key_size, "control_location": "front-end",
    } })
}

/// Calls for one list of types.
struct Api<'a> {
    session: Session<'a>,
    outcome: VolumeTypesOutcome,
}

impl Api<'_> {
    async fn ensure(&mut self, types: &[VolumeType]) -> Result<(), Failure> {
        let query = [("is_public", "None"), ("limit", PAGE)];
        let response = self.session.send(Method::GET, &["types"], &query, Body::Empty).await?;
        let known: Vec<Known> = response.field(&["volume_types"])?;
        for wanted in types {
            match known.iter().find(|known| known.name == wanted.name) {
                None => self.create(wanted).await?,
                Some(known) if known.is_own() => self.update(known, wanted).await?,
                Some(known) => self.compare(known, wanted).await?,
            }
        }
        let is_wanted = |known: &Known| types.iter().any(|wanted| wanted.name == known.name);
        for surplus in known.iter().filter(|known| known.is_own() && !is_wanted(known)) {
            let response =
                self.session.send(Method::DELETE, &["types", &surplus.id], &[], Body::Empty).await?;
            self.changed(&surplus.name, "deleted", response)?;
        }
        Ok(())
    }

    /// Creates a type. An encrypted one is not public before its encryption is set: the volumes of users would not be encrypted.
    async fn create(&mut self, wanted: &VolumeType) -> Result<(), Failure> {
        let is_public = wanted.public && wanted.encryption.is_none();
        let body = json!({ "volume_type": {
            "name": wanted.name, "description": wanted.description,
            "os-volume-type-access:is_public": is_public, "extra_specs": properties(wanted),
        } });
        let created: Known = self.post(&["types"], body).await?.field(&["volume_type"])?;
        self.outcome.wrote = true;
        if wanted.encryption.is_some() { self.update(&created, wanted).await } else { Ok(()) }
    }

    /// Changes a type of the operator where it differs.
    async fn update(&mut self, known: &Known, wanted: &VolumeType) -> Result<(), Failure> {
        self.update_properties(known, &properties(wanted)).await?;
        self.update_encryption(known, wanted.encryption.as_ref()).await?;
        let description = known.description.as_deref().unwrap_or_default();
        if (description, known.is_public) != (wanted.description.as_str(), wanted.public) {
            let body =
                json!({ "volume_type": { "description": wanted.description, "is_public": wanted.public } });
            let path = ["types", known.id.as_str()];
            let response = self.session.send(Method::PUT, &path, &[], Body::Plain(body)).await?;
            self.changed(&known.name, "changed", response)?;
        }
        Ok(())
    }

    async fn update_properties(
        &mut self,
        known: &Known,
        wanted: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let missing: BTreeMap<_, _> =
            wanted.iter().filter(|(key, value)| known.extra_specs.get(*key) != Some(value)).collect();
        let path = ["types", known.id.as_str(), "extra_specs"];
        if !missing.is_empty() {
            let response = self.post(&path, json!({ "extra_specs": missing })).await?;
            self.changed(&known.name, "changed", response)?;
        }
        for surplus in known.extra_specs.keys().filter(|key| !wanted.contains_key(*key)) {
            let path = [&path[..], &[surplus.as_str()]].concat();
            let response = self.session.send(Method::DELETE, &path, &[], Body::Empty).await?;
            self.changed(&known.name, "changed", response)?;
        }
        Ok(())
    }

    async fn update_encryption(
        &mut self,
        known: &Known,
        wanted: Option<&VolumeEncryption>,
    ) -> Result<(), Failure> {
        let found = self.encryption(known).await?;
        let path = ["types", known.id.as_str(), "encryption"];
        let response = match (found.get("encryption_id").and_then(Value::as_str), wanted) {
            (None, None) => return Ok(()),
            (None, Some(wanted)) => self.post(&path, encryption_body(wanted)).await?,
            (Some(_), Some(wanted)) if is_encrypted_as(&found, wanted) => return Ok(()),
            (Some(id), Some(wanted)) => {
                let body = Body::Plain(encryption_body(wanted));
                self.session.send(Method::PUT, &[&path[..], &[id]].concat(), &[], body).await?
            }
            (Some(id), None) => {
                self.session.send(Method::DELETE, &[&path[..], &[id]].concat(), &[], Body::Empty).await?
            }
        };
        self.changed(&known.name, "changed", response)
    }

    /// Reports a type of an administrator that differs from the wanted one.
    async fn compare(&mut self, known: &Known, wanted: &VolumeType) -> Result<(), Failure> {
        let has = |(key, value): (&String, &String)| known.extra_specs.get(key) == Some(value);
        let found = self.encryption(known).await?;
        let is_encrypted = found.get("encryption_id").is_some_and(Value::is_string);
        let has_encryption = match &wanted.encryption {
            Some(wanted) => is_encrypted && is_encrypted_as(&found, wanted),
            None => !is_encrypted,
        };
        if !wanted.properties.iter().all(has) || !has_encryption {
            let reason = "the operator has not created it; give it the wanted properties, or rename it";
            self.refuse(&known.name, "changed", reason.to_owned());
        }
        Ok(())
    }

    async fn encryption(&self, known: &Known) -> Result<Value, Failure> {
        let path = ["types", known.id.as_str(), "encryption"];
        self.session.send(Method::GET, &path, &[], Body::Empty).await?.success()
    }

    async fn post(&self, path: &[&str], body: Value) -> Result<Response, Failure> {
        self.session.send(Method::POST, path, &[], Body::Plain(body)).await
    }

    /// Notes a change. The API refuses to change or to delete a type that volumes use, and to delete the default type.
    fn changed(&mut self, name: &str, change: &'static str, response: Response) -> Result<(), Failure> {
        if response.status == StatusCode::BAD_REQUEST {
            let reason = response.message().unwrap_or("the API refuses it").to_owned();
            self.refuse(name, change, reason);
            return Ok(());
        }
        response.success_if_found()?;
        self.outcome.wrote = true;
        Ok(())
    }

    fn refuse(&mut self, name: &str, change: &'static str, reason: String) {
        let refused = RefusedChange { name: name.to_owned(), change, reason };
        // Several properties of a type may be refused for the same reason.
        if !self.outcome.refused.contains(&refused) {
            self.outcome.refused.push(refused);
        }
    }
}

fn is_encrypted_as(found: &Value, wanted: &VolumeEncryption) -> bool {
    let VolumeEncryption { provider, cipher, key_size } = wanted;
    found["provider"] == *provider && found["cipher"] == *cipher && found["key_size"] == *key_size
}

#[cfg(test)]
mod tests;
