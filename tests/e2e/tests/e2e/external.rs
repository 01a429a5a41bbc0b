//! Services in another namespace that use the database and the Keystone of a cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use openstack_operator_smoke::pod::metadata;
use openstack_operator_smoke::wait::{await_condition, await_deletion, eventually};
use openstack_operator_smoke::{PodSecurity, Sandbox};
use serde_json::{Value, json};

use crate::client::Client;
use crate::cloud::{Cloud, is_ready};

/// How long each service may take to become Ready or to be deleted.
const STEP: Duration = Duration::from_mins(5);
/// Region of the services, in the catalog of the cloud's Keystone.
const REGION: &str = "Second";
const GLANCE: &str = "second-glance";
const PLACEMENT: &str = "second-placement";
const DATABASE_SECRET: &str = "-login";
const ADMINISTRATOR: &str = "keystone-administrator";
const USER: &str = "glance-user";
const APPLICATION_CREDENTIAL: &str = "placement-application-credential";
/// A second Keystone on the database server of the cloud.
const RIVAL: &str = "rival";

/// Creates users of project `service`, one with an application credential, as an administrator of the cloud does. The
/// cloud's own services have users with their default names.
const CREATE_USERS: &str = r#"import json, secrets
import openstack

administrator = openstack.connect()
project = administrator.identity.find_project("service", ignore_missing=False)

def create(name):
    password = secrets.token_hex(16)
    user = administrator.identity.create_user(name=name, password=password, default_project_id=project.id)
    for role in ("admin", "service"):
        role = administrator.identity.find_role(role, ignore_missing=False)
        administrator.identity.assign_project_role_to_user(project, user, role)
    return user, password

glance, glance_password = create("second-glance")
user, password = create("second-placement")
own = openstack.connect(load_yaml_config=False, load_envvars=False, auth={
    "auth_url": administrator.config.auth["auth_url"], "username": user.name, "password": password,
    "project_name": "service", "user_domain_id": "default", "project_domain_id": "default"})
credential = own.identity.create_application_credential(user, "second-placement")
print(json.dumps({
    "glance-user": {"username": glance.name, "password": glance_password},
    "placement-application-credential": {
        "application_credential_id": credential.id, "application_credential_secret": credential.secret}}))
"#;

/// Runs Glance and Placement with the database server and the Keystone of a cloud.
pub(crate) async fn serves_another_namespace(cloud: &Cloud, client: &Client) -> Result<()> {
    let sandbox = &*cloud.sandbox;
    sandbox
        .with_second_namespace("existing", PodSecurity::Restricted, async |second| {
            let services = Services { sandbox, cloud, client, second };
            services.prepare().await?;
            let glance = services.create("Glance", "glances", GLANCE, &services.glance()).await?;
            let placement =
                services.create("Placement", "placements", PLACEMENT, &services.placement()).await?;
            for (api, name) in [(&glance, GLANCE), (&placement, PLACEMENT)] {
                await_condition(api, name, "to be Ready", STEP, is_ready).await?;
            }
            services.serve().await?;
            for (api, name) in [(&placement, PLACEMENT), (&glance, GLANCE)] {
                let uid = api.get(name).await?.metadata.uid;
                api.delete(name, &DeleteParams::default()).await?;
                await_deletion(api, name, uid.as_deref(), STEP).await.context("the finalizer hangs")?;
            }
            services.are_deregistered().await
        })
        .await
}

/// A second Keystone with the database of the cloud's Keystone is Stalled, and its deletion touches nothing.
pub(crate) async fn refuses_a_rival(cloud: &Cloud, client: &Client) -> Result<()> {
    let keystones = cloud.keystones();
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("openstack.k8s.io", "v1alpha1", "Keystone"),
        "keystones",
    );
    let spec = json!({ "database": {
        "clusterRef": { "name": cloud.part("mariadb") }, "deletionPolicy": "Delete",
    } });
    let object = DynamicObject::new(RIVAL, &resource).data(json!({ "spec": spec }));
    keystones.create(&PostParams::default(), &object).await.context("failed to create the rival")?;
    let owner = format!("belongs to Keystone {}/{}", cloud.namespace, cloud.part("keystone"));
    let is_refused = |object: &DynamicObject| {
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| {
            condition["type"] == "Stalled"
                && condition["status"] == "True"
                && condition["message"].as_str().is_some_and(|message| message.contains(&owner))
        })
    };
    let refused = await_condition(&keystones, RIVAL, "to be Stalled", STEP, is_refused).await?;
    keystones.delete(RIVAL, &DeleteParams::default()).await?;
    await_deletion(&keystones, RIVAL, refused.metadata.uid.as_deref(), STEP).await?;
    client.proves("keystone").await
}

struct Services<'a> {
    /// Namespace of the cloud.
    sandbox: &'a Sandbox,
    cloud: &'a Cloud,
    client: &'a Client,
    /// Namespace of the services.
    second: &'a Sandbox,
}

impl Services<'_> {
    /// Prepares logins, as the administrators of the database and of Keystone do.
    async fn prepare(&self) -> Result<()> {
        for name in [GLANCE, PLACEMENT] {
            let password = self.create_database(&database(name)).await?;
            let host = self.host(&self.cloud.part("mariadb"));
            let login = [("username", database(name)), ("password", password), ("host", host)];
            self.create_secret(&format!("{name}{DATABASE_SECRET}"), login).await?;
        }
        let text = self.client.python(CREATE_USERS, &[]).await?;
        let mut logins: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_str(text.trim()).ok().context("the client printed no credentials")?;
        for name in [USER, APPLICATION_CREDENTIAL] {
            self.create_secret(name, logins.remove(name).unwrap_or_default()).await?;
        }
        let name = self.cloud.part("keystone-admin");
        let secret = self.sandbox.api::<Secret>().get(&name).await?;
        let password = secret.data.and_then(|mut data| data.remove("password"));
        let password = password.with_context(|| format!("Secret {name} has no password"))?.0;
        let login = [("username", "admin".to_owned()), ("password", String::from_utf8(password)?)];
        self.create_secret(ADMINISTRATOR, login).await
    }

    /// Creates a database and its user, and returns the user's password, which the server generates.
    async fn create_database(&self, name: &str) -> Result<String> {
        let script = format!(
            "password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n\
             mariadb --defaults-file=/etc/openstack/mariadb.cnf <<SQL\n\
             CREATE DATABASE {name} CHARACTER SET utf8mb3;\n\
             CREATE USER '{name}'@'%' IDENTIFIED BY '$password';\n\
             GRANT ALL PRIVILEGES ON {name}.* TO '{name}'@'%';\n\
             SQL\n\
             printf %s \"$password\""
        );
        self.sandbox.shell(&self.cloud.part("mariadb-0"), "mariadb", &script).await
    }

    async fn create_secret(
        &self,
        name: &str,
        data: impl IntoIterator<Item = (impl Into<String>, String)>,
    ) -> Result<()> {
        let data = data.into_iter().map(|(key, value)| (key.into(), value)).collect();
        let secret = Secret { metadata: metadata(name), string_data: Some(data), ..Secret::default() };
        self.second.create(&secret).await.map(drop)
    }

    /// Name of one of the cloud's Services, for other namespaces.
    fn host(&self, service: &str) -> String {
        format!("{service}.{}.svc", self.sandbox.namespace)
    }

    fn authentication_url(&self) -> String {
        format!("http://{}:5000/v3", self.host(&self.cloud.part("keystone")))
    }

    fn glance(&self) -> Value {
        json!({
            "database": { "secretRef": { "name": format!("{GLANCE}{DATABASE_SECRET}") }, "database": database(GLANCE) },
            "keystone": {
                "authUrl": self.authentication_url(),
                "region": REGION,
                "adminSecretRef": { "name": ADMINISTRATOR },
                "secretRef": { "name": USER },
            },
            "storage": { "pvc": { "size": "1Gi" } },
        })
    }

    fn placement(&self) -> Value {
        json!({
            "database": {
                "secretRef": { "name": format!("{PLACEMENT}{DATABASE_SECRET}") },
                "database": database(PLACEMENT),
            },
            "keystone": {
                "authUrl": self.authentication_url(),
                "region": REGION,
                "appCredentialRef": { "secretName": APPLICATION_CREDENTIAL },
            },
        })
    }

    async fn create(&self, kind: &str, plural: &str, name: &str, spec: &Value) -> Result<Api<DynamicObject>> {
        let group = GroupVersionKind::gvk("openstack.k8s.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&group, plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.second.client.clone(), &self.second.namespace, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({ "spec": spec }));
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create {name}"))?;
        Ok(api)
    }

    /// Both accept tokens of the cloud's Keystone and reject requests without a token.
    async fn serve(&self) -> Result<()> {
        let images = format!("http://{GLANCE}.{}.svc:9292/v2/images", self.second.namespace);
        let providers = format!("http://{PLACEMENT}.{}.svc:8778/resource_providers", self.second.namespace);
        let script = format!(
            "python3 - <<'END'\nimport openstack\n\
             session = openstack.connect().session\n\
             for url, field in (({images:?}, 'images'), ({providers:?}, 'resource_providers')):\n\
             \x20   assert session.get(url).json()[field] == [], url\n\
             \x20   status = session.get(url, authenticated=False, raise_exc=False).status_code\n\
             \x20   assert status == 401, (url, status)\n\
             listed = session.get('/v2/images', endpoint_filter={{\n\
             \x20   'service_type': 'image', 'interface': 'internal', 'region_name': {REGION:?}}}).json()\n\
             assert listed['images'] == [], listed\n\
             END\n"
        );
        eventually("both services to serve", STEP, async || self.client.shell(&script).await).await.map(drop)
    }

    /// The catalog has no entries of the deleted services, and the cloud still serves.
    async fn are_deregistered(&self) -> Result<()> {
        let endpoints = self.client.openstack(&format!("endpoint list --region {REGION}")).await?;
        ensure!(endpoints == json!([]), "endpoints are left: {endpoints}");
        self.client.proves("keystone").await
    }
}

/// Name of a service's database and of its user there.
fn database(name: &str) -> String {
    name.replace('-', "_")
}
