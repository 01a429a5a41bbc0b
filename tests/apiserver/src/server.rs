//! Requests to the API server with strict validation, and answers with their warnings.

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, WARNING};
use hyper::{Method, Request};
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};
use kube::{Client, Resource};
use openstack_operator_model::kind::{CHILD_KINDS, GROUP, Kind};
use openstack_operator_services::kinds;
use openstack_operator_smoke::Sandbox;
use serde_json::Value;

/// The field manager of these tests.
pub const MANAGER: &str = "apiserver-test";

/// Whether a request stores its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    DryRun,
    Stored,
}

/// The API server's answer to an accepted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// The API server's reason to reject an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: u64,
    pub message: String,
}

/// The API server, seen from one namespace.
#[derive(Clone)]
pub struct Server {
    client: Client,
    namespace: String,
}

impl Server {
    #[must_use]
    pub fn new(sandbox: &Sandbox) -> Self {
        Self { client: sandbox.client.clone(), namespace: sandbox.namespace.clone() }
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A dry run of creating the object, as `kubectl create` does.
    pub async fn create(&self, object: &Value) -> Result<Result<Answer, Refusal>> {
        let (collection, object) = self.collection(object).await?;
        let address = collection + "?" + &options(Effect::DryRun);
        self.send(Method::POST, &address, "application/json", &object).await
    }

    /// Server-side apply, as the operator does.
    pub async fn apply(&self, object: &Value, effect: Effect) -> Result<Result<Answer, Refusal>> {
        let (collection, object) = self.collection(object).await?;
        let address = format!("{collection}/{}?{}&force=true", name(&object)?, options(effect));
        self.send(Method::PATCH, &address, "application/apply-patch+yaml", &object).await
    }

    /// Writes the status of a stored object.
    pub async fn apply_status(&self, object: &Value) -> Result<Result<Answer, Refusal>> {
        let (collection, object) = self.collection(object).await?;
        let options = options(Effect::Stored);
        let address = format!("{collection}/{}/status?{options}&force=true", name(&object)?);
        self.send(Method::PATCH, &address, "application/apply-patch+yaml", &object).await
    }

    /// The object as it is stored.
    pub async fn get(&self, object: &Value) -> Result<Value> {
        let address = format!("{}/{}", self.collection(object).await?.0, name(object)?);
        let answer = self.send(Method::GET, &address, "application/json", &Value::Null).await?;
        answer.map(|answer| answer.object).map_err(|refusal| refusal.of(object))
    }

    /// The object in this namespace.
    #[must_use]
    pub fn placed(&self, object: &Value) -> Value {
        let mut placed = object.clone();
        if let Some(metadata) = placed.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), self.namespace.clone().into());
        }
        placed
    }

    /// The path of the objects of its kind, and the object in this namespace.
    async fn collection(&self, object: &Value) -> Result<(String, Value)> {
        let types: TypeMeta =
            serde_json::from_value(object.clone()).with_context(|| format!("not an object: {object}"))?;
        let (resource, scope) = self.resource(&types).await?;
        Ok(match scope {
            Scope::Namespaced => {
                (DynamicObject::url_path(&resource, Some(&self.namespace)), self.placed(object))
            }
            Scope::Cluster => (DynamicObject::url_path(&resource, None), object.clone()),
        })
    }

    /// The operator's kinds need no discovery, which may not list them yet.
    async fn resource(&self, types: &TypeMeta) -> Result<(ApiResource, Scope)> {
        let known: Vec<Kind> = kinds().into_iter().chain(CHILD_KINDS.iter().copied()).collect();
        let is_meant = |kind: &&Kind| kind.kind == types.kind && kind.api_version() == types.api_version;
        if let Some(kind) = known.iter().find(is_meant) {
            return Ok((kind.resource(), Scope::Namespaced));
        }
        let kind = GroupVersionKind::try_from(types)?;
        ensure!(kind.group != GROUP, "{} is not a kind of the operator", types.kind);
        let found = discovery::pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found
            .with_context(|| format!("the cluster does not know {} {}", types.api_version, types.kind))?;
        Ok((resource, capabilities.scope))
    }

    async fn send(
        &self,
        method: Method,
        address: &str,
        content: &str,
        body: &Value,
    ) -> Result<Result<Answer, Refusal>> {
        let failure = || format!("failed to send {method} {address}");
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = Request::builder()
            .method(method.clone())
            .uri(address)
            .header(CONTENT_TYPE, content)
            .body(Body::from(bytes))?;
        let response = self.client.send(request).await.with_context(failure)?;
        let (head, body) = response.into_parts();
        let warnings = head.headers.get_all(WARNING).iter();
        let warnings =
            warnings.map(|warning| warning_text(&String::from_utf8_lossy(warning.as_bytes()))).collect();
        let body = body.collect().await.with_context(failure)?.to_bytes();
        let object: Value = serde_json::from_slice(&body)
            .with_context(|| format!("{}: {}", head.status, String::from_utf8_lossy(&body)))
            .with_context(failure)?;
        if head.status.is_success() {
            return Ok(Ok(Answer { object, warnings }));
        }
        let message = object["message"].as_str().unwrap_or_default().to_owned();
        Ok(Err(Refusal { code: head.status.as_u16().into(), message }))
    }
}

impl Answer {
    /// The object, which must have been accepted without a warning.
    pub fn quiet(self) -> Result<Value> {
        ensure!(
            self.warnings.is_empty(),
            "{} is accepted with warnings: {:?}",
            title(&self.object),
            self.warnings
        );
        Ok(self.object)
    }
}

impl Refusal {
    #[must_use]
    pub fn of(self, object: &Value) -> anyhow::Error {
        anyhow::anyhow!("{} is refused ({}): {}", title(object), self.code, self.message)
    }
}

/// The stored form of an object that the API server must accept without a warning.
pub fn accepted(object: &Value, answer: Result<Answer, Refusal>) -> Result<Value> {
    answer.map_err(|refusal| refusal.of(object))?.quiet()
}

/// Kind and name.
#[must_use]
pub fn title(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

fn name(object: &Value) -> Result<&str> {
    match object.pointer("/metadata/name").and_then(Value::as_str) {
        Some(name) => Ok(name),
        None => bail!("an object has no name: {object}"),
    }
}

fn options(effect: Effect) -> String {
    let stored = format!("fieldManager={MANAGER}&fieldValidation=Strict");
    match effect {
        Effect::DryRun => stored + "&dryRun=All",
        Effect::Stored => stored,
    }
}

/// The text in `299 - "text"`.
fn warning_text(header: &str) -> String {
    let quoted = header.split_once('"').and_then(|(_, text)| text.strip_suffix('"')).unwrap_or(header);
    quoted.replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_parsed_from_its_header() {
        assert_eq!(warning_text(r#"299 - "there is no \"spec.x\" here""#), r#"there is no "spec.x" here"#);
        assert_eq!(warning_text(r#"299 - "it ends in \"x\"""#), r#"it ends in "x""#);
        assert_eq!(warning_text("299 - plain"), "299 - plain");
    }
}
