//! Databases, virtual hosts and catalog entries, created without the operator.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use openstack_operator_model::common::Reference;
use openstack_operator_model::plan::{Catalog, Controller, Database, GrantTarget, Messaging};
use openstack_operator_services::{compute, ovn};
use openstack_operator_smoke::wait::{POD_START, await_condition};
use serde_json::{Value, json};

use crate::bare::Work;
use crate::planned::Planned;

/// Pod with the client's libraries.
pub(crate) const CLIENT: &str = "client";

/// Creates projects, roles, users, services and endpoints. Concurrent runs may need the same project.
const CATALOG: &str = r#"
import json, openstack, sys
login, catalog = json.load(sys.stdin)
identity = openstack.connect(**login, user_domain_id="default", project_domain_id="default", identity_interface="internal").identity
def ensure(find, make, name, **more):
    try: return find(name) or make(name=name, **more)
    except openstack.exceptions.ConflictException: return find(name)
def project(name): return ensure(identity.find_project, identity.create_project, name, domain_id="default")
def role(name): return ensure(identity.find_role, identity.create_role, name)
for name in catalog["projects"]: project(name)
for name in catalog["roles"]: role(name)
for user in catalog["users"]:
    made = identity.create_user(name=user["name"], password=user["password"], domain_id="default")
    for grant in user["grants"]:
        identity.assign_project_role_to_user(project(grant["project"]), made, role(grant["role"]))
for service in catalog["services"]:
    made = identity.create_service(name=service["name"], type=service["type"])
    for interface, url in service["endpoints"]:
        identity.create_endpoint(service_id=made.id, interface=interface, url=url, region_id=service["region"])
"#;

/// Waits until Nova lists enough hypervisors.
const HYPERVISORS: &str = r#"
import json, openstack, sys, time
login, count = json.load(sys.stdin)
compute = openstack.connect(**login, user_domain_id="default", project_domain_id="default", interface="internal").compute
while len([node for node in compute.hypervisors() if node.state == "up"]) < count: time.sleep(0.5)
"#;

impl Work<'_> {
    /// Creates a database and its user with the client in the server's pod.
    pub(crate) async fn create_database(&self, claim: &Database) -> Result<()> {
        let database = &claim.database;
        let user = self.values.get(&claim.secret, "username")?;
        let password = self.values.get(&claim.secret, "password")?;
        let script = format!(
            "mariadb --defaults-file=/etc/openstack/mariadb.cnf <<'END'\n\
             CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci;\n\
             CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';\n\
             GRANT ALL PRIVILEGES ON `{database}`.* TO '{user}'@'%';\n\
             END\n"
        );
        self.run_at(&claim.provider, &script, password)
            .await
            .with_context(|| format!("failed to make database {database}"))
    }

    /// Creates a virtual host and its user.
    pub(crate) async fn create_virtual_host(&self, claim: &Messaging) -> Result<()> {
        let host = &claim.virtual_host;
        let user = self.values.get(&claim.secret, "username")?;
        let password = self.values.get(&claim.secret, "password")?;
        let script = format!(
            "rabbitmqctl -q add_vhost {host}\n\
             rabbitmqctl -q add_user {user} {password}\n\
             rabbitmqctl -q set_permissions -p {host} {user} '.*' '.*' '.*'\n"
        );
        self.run_at(&claim.provider, &script, password)
            .await
            .with_context(|| format!("failed to make virtual host {host}"))
    }

    /// Registers services and users in Keystone.
    pub(crate) async fn create_catalog(&self, catalog: &Catalog) -> Result<()> {
        let mut users = Vec::new();
        for user in &catalog.users {
            let password = self.values.get(&user.password.secret, &user.password.key)?;
            let grants = user.grants.iter().map(|grant| match &grant.on {
                GrantTarget::Project(project) => Ok(json!({ "project": project, "role": grant.role })),
                GrantTarget::Domain(domain) => bail!("no service of the sample has domain {domain:?}"),
            });
            let grants = grants.collect::<Result<Vec<_>>>()?;
            users.push(json!({ "name": user.name, "password": password, "grants": grants }));
        }
        let services = catalog.services.iter().map(|service| {
            let endpoints =
                service.endpoints.iter().map(|endpoint| (endpoint.interface.name(), &endpoint.url));
            json!({
                "name": service.name, "type": service.service_type, "region": service.region,
                "endpoints": endpoints.collect::<Vec<_>>(),
            })
        });
        let entries = json!({
            "projects": catalog.projects, "roles": catalog.roles, "users": users,
            "services": services.collect::<Vec<_>>(),
        });
        self.run_python(CATALOG, catalog, &entries).await.context("failed to create the catalog")
    }

    /// The operator's finish line: a cloud is Ready when all hypervisors are registered.
    pub(crate) async fn wait_for_hypervisors(&self, cloud: &[Planned]) -> Result<()> {
        let is_compute = |part: &&Planned| part.service.kind() == compute::KIND;
        let Some(nodes) = cloud.iter().find(is_compute).and_then(|part| part.plan.agents.as_ref()) else {
            return Ok(());
        };
        let catalog = cloud.iter().find_map(|part| part.plan.catalog.as_ref());
        let catalog = catalog.context("no service of the cloud is in a catalog")?;
        let count = json!(nodes.nodes.len());
        self.run_python(HYPERVISORS, catalog, &count).await.context("failed to wait for the hypervisors")
    }

    /// Runs a program in the client's pod with the administrator's login and other input.
    async fn run_python(&self, program: &str, catalog: &Catalog, input: &Value) -> Result<()> {
        let server = &catalog.server;
        let secret = server.secret.as_deref().unwrap_or_default();
        let password = self.values.get(secret, &server.secret_key)?;
        let login = json!({
            "auth_url": server.internal_url, "username": server.username, "password": password,
            "project_name": "admin", "region_name": server.region,
        });
        let script = format!("python3 -c '{program}' <<'END'\n{}\nEND\n", json!([login, input]));
        let made = self.sandbox.shell(CLIENT, CLIENT, &script).await;
        made.map(drop).map_err(|error| hidden(&error, password))
    }

    /// Bootstraps the Raft clusters of OVN, which have one member each.
    pub(crate) async fn bootstrap_clusters(&self, part: &Planned) -> Result<()> {
        if part.service.kind() != ovn::KIND {
            return Ok(());
        }
        let pods = self.sandbox.api::<Pod>();
        let is_cluster = |controller: &Controller| matches!(controller, Controller::StatefulSet { .. });
        for group in part.plan.workloads.iter().filter(|workload| is_cluster(&workload.controller)) {
            let name = format!("{}-{}-0", part.name, group.suffix.as_deref().unwrap_or_default());
            let pod = await_condition(&pods, &name, "to exist", POD_START, |_| true).await?;
            let order = format!("begin/{}", pod.metadata.uid.unwrap_or_default());
            let annotations = json!({ "openstack.k8s.io/ovn-order": order });
            let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
            pods.patch(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Runs a script in the first pod of a provider. The password is visible as an argument for a moment; it exists for this
    /// run only.
    async fn run_at(&self, provider: &Reference, script: &str, password: &str) -> Result<()> {
        let provider = self.find(&provider.kind, &provider.name)?;
        let workload = provider.plan.workloads.first();
        let container = workload.and_then(|workload| workload.pod.containers.first());
        let container = container.with_context(|| format!("{} has no container", provider.name))?.name;
        let made = self.sandbox.shell(&format!("{}-0", provider.name), container, script).await;
        made.map(drop).map_err(|error| hidden(&error, password))
    }
}

/// The error without the password that it quotes.
fn hidden(error: &anyhow::Error, password: &str) -> anyhow::Error {
    anyhow::anyhow!("{}", format!("{error:#}").replace(password, "..."))
}
