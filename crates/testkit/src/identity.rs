//! Identity services in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use openstack_operator_engine::claim::{Claim, Refusal};
use openstack_operator_engine::ports::{
    Identity, IdentityAccount, IdentityDomainEntry, IdentityEntries, IdentityLogin, IdentityService,
    PortResult,
};
use openstack_operator_model::plan::{Domain, Grant, GrantTarget};
use openstack_operator_model::status::EffectKind;
use serde::Serialize;

use crate::server::{FakeServer, Owners, ServerState, Trouble, protect};

/// Identity services by their address.
pub type FakeIdentity = FakeServer<IdentityState>;

/// An identity service. It starts with the bootstrapped entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityState {
    /// Domains besides the default one.
    pub domains: BTreeSet<String>,
    /// Projects of the default domain.
    pub projects: BTreeSet<String>,
    pub roles: BTreeSet<String>,
    /// Objects that need a role of a service.
    pub role_users: BTreeMap<String, BTreeSet<String>>,
    /// Services by type.
    pub services: BTreeMap<String, CatalogEntry>,
    /// Users by name, with `@` and the domain if it is not the default one.
    pub users: BTreeMap<String, UserEntry>,
    /// Owners of domains, of users, and of the endpoints of a service in a region.
    pub owners: Owners,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CatalogEntry {
    pub name: String,
    pub description: String,
    /// Addresses by region and interface.
    pub endpoints: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserEntry {
    pub password: String,
    /// Project or `@` with the domain, and role.
    pub assignments: BTreeSet<(String, String)>,
}

impl Default for IdentityState {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            domains: BTreeSet::new(),
            projects: names(&["admin"]),
            roles: names(&["admin", "manager", "member", "reader", "service"]),
            role_users: BTreeMap::new(),
            services: BTreeMap::new(),
            users: BTreeMap::new(),
            owners: Owners::default(),
        }
    }
}

/// Name of the endpoints of a service type in a region.
fn endpoints_name(service_type: &str, region: &str) -> String {
    format!("{service_type} in {region}")
}

/// Name of a user with its domain.
fn user_name(domain: &Domain, name: &str) -> String {
    match domain {
        Domain::Default => name.to_owned(),
        Domain::Named(domain) => format!("{name}@{domain}"),
    }
}

impl ServerState for IdentityState {
    const PORT: &'static str = "identity";
}

impl IdentityState {
    fn ensure(&mut self, entries: &IdentityEntries) -> Result<(), Trouble> {
        for IdentityDomainEntry { name, claim } in &entries.domains {
            self.owners.claim(claim, EffectKind::IdentityDomain, name, self.domains.get(name))?;
            self.domains.insert(name.clone());
        }
        self.projects.extend(entries.projects.iter().cloned());
        self.roles.extend(entries.roles.iter().cloned());
        for role in &entries.service_roles {
            let is_new = self.roles.insert(role.clone());
            // A role that no object has created has no users.
            if is_new || self.role_users.contains_key(role) {
                self.role_users.entry(role.clone()).or_default().insert(entries.owner.clone());
            }
        }
        entries.services.iter().try_for_each(|service| self.ensure_service(service))?;
        entries.users.iter().try_for_each(|account| self.ensure_user(account))
    }

    fn ensure_service(
        &mut self,
        IdentityService { entry: service, claim }: &IdentityService,
    ) -> Result<(), Trouble> {
        let known = self.services.get(&service.service_type);
        let endpoints = known.and_then(|entry| entry.endpoints.get(&service.region));
        let name = endpoints_name(&service.service_type, &service.region);
        let claimed = self.owners.claim(claim, EffectKind::CatalogService, &name, endpoints);
        claimed.map_err(|trouble| match trouble {
            Trouble::Foreign(refusal) => {
                Trouble::Foreign(Refusal { name: service.service_type.clone(), ..refusal })
            }
            trouble => trouble,
        })?;
        let entry = self.services.entry(service.service_type.clone()).or_default();
        entry.name.clone_from(&service.name);
        entry.description.clone_from(&service.description);
        let endpoints = entry.endpoints.entry(service.region.clone()).or_default();
        for endpoint in &service.endpoints {
            endpoints.insert(endpoint.interface.name().to_owned(), endpoint.url.clone());
        }
        Ok(())
    }

    fn ensure_user(&mut self, account: &IdentityAccount) -> Result<(), Trouble> {
        let mut assignments = BTreeSet::new();
        for Grant { role, on } in &account.grants {
            if !self.roles.contains(role) {
                return Err(Trouble::Missing(format!("role {role}")));
            }
            let target = match on {
                GrantTarget::Project(project) if !self.projects.contains(project) => {
                    return Err(Trouble::Missing(format!("project {project}")));
                }
                GrantTarget::Project(project) => project.clone(),
                GrantTarget::Domain(domain) => {
                    self.require_domain(domain)?;
                    format!("@{}", domain.name().unwrap_or("Default"))
                }
            };
            assignments.insert((target, role.clone()));
        }
        self.require_domain(&account.domain)?;
        let name = &user_name(&account.domain, &account.login.username);
        self.owners.claim(&account.claim, EffectKind::IdentityUser, name, self.users.get(name))?;
        let user = self.users.entry(name.clone()).or_default();
        user.password.clone_from(&account.login.password);
        user.assignments.extend(assignments);
        Ok(())
    }

    fn require_domain(&self, domain: &Domain) -> Result<(), Trouble> {
        match domain.name() {
            Some(name) if !self.domains.contains(name) => Err(Trouble::Missing(format!("domain {name}"))),
            _ => Ok(()),
        }
    }

    fn drop_user(&mut self, name: &str, claim: &Claim) {
        if self.owners.release(claim, EffectKind::IdentityUser, name) {
            self.users.remove(name);
        }
    }

    fn drop_domain(&mut self, domain: &str, claim: &Claim) {
        if !self.domains.contains(domain) || !self.owners.release(claim, EffectKind::IdentityDomain, domain) {
            return;
        }
        self.domains.remove(domain);
        let end = format!("@{domain}");
        self.users.retain(|name, _| !name.ends_with(&end));
        self.owners.0.retain(|name, _| !name.ends_with(&end));
        for user in self.users.values_mut() {
            user.assignments.retain(|(target, _)| *target != end);
        }
    }

    fn release_role(&mut self, role: &str, owner: &str) {
        let Some(users) = self.role_users.get_mut(role) else { return };
        users.remove(owner);
        let is_held =
            self.users.values().any(|user| user.assignments.iter().any(|(_, assigned)| assigned == role));
        if users.is_empty() && !is_held {
            self.role_users.remove(role);
            self.roles.remove(role);
        }
    }
}

#[async_trait]
impl Identity for FakeIdentity {
    async fn ensure(&self, server: &IdentityLogin, entries: &IdentityEntries) -> PortResult<bool> {
        let services = entries.services.iter().map(|service| service.entry.service_type.as_str());
        let users = entries.users.iter().map(|account| account.login.username.as_str());
        let name = services.chain(users).collect::<Vec<_>>().join(",");
        self.call("ensure", &name, (&server.url, &server.administrator), |state| {
            // The administrator can get roles, but no new password.
            let changed = |account: &&IdentityAccount| {
                account.domain == Domain::Default && account.login.password != server.administrator.password
            };
            for account in entries.users.iter().filter(changed) {
                protect(&server.administrator, &account.login.username)?;
            }
            state.ensure(entries)
        })
    }

    async fn drop_service(
        &self,
        server: &IdentityLogin,
        service_type: &str,
        region: Option<&str>,
        claim: &Claim,
    ) -> PortResult<()> {
        self.call("drop_service", service_type, (&server.url, &server.administrator), |state| {
            let Some(service) = state.services.get_mut(service_type) else { return Ok(()) };
            let owners = &mut state.owners;
            service.endpoints.retain(|known, _| {
                region.is_some_and(|region| region != known)
                    || !owners.release(
                        claim,
                        EffectKind::CatalogService,
                        &endpoints_name(service_type, known),
                    )
            });
            if service.endpoints.is_empty() {
                state.services.remove(service_type);
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn drop_user(
        &self,
        server: &IdentityLogin,
        domain: &Domain,
        user: &str,
        claim: &Claim,
    ) -> PortResult<()> {
        let name = user_name(domain, user);
        self.call("drop_user", &name, (&server.url, &server.administrator), |state| {
            if *domain == Domain::Default {
                protect(&server.administrator, user)?;
            }
            state.drop_user(&name, claim);
            Ok(())
        })?;
        Ok(())
    }

    async fn drop_domain(&self, server: &IdentityLogin, domain: &str, claim: &Claim) -> PortResult<()> {
        self.call("drop_domain", domain, (&server.url, &server.administrator), |state| {
            state.drop_domain(domain, claim);
            Ok(())
        })?;
        Ok(())
    }

    async fn release_role(&self, server: &IdentityLogin, role: &str, owner: &str) -> PortResult<()> {
        self.call("release_role", role, (&server.url, &server.administrator), |state| {
            state.release_role(role, owner);
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::ports::{Login, PortError};
    use openstack_operator_model::plan::{CatalogEndpoint, CatalogService, Interface};

    use super::*;
    use crate::script::Script;
    use crate::server::claim;

    const URL: &str = "http://keystone/v3";

    fn login(username: &str) -> Login {
        Login { username: username.into(), password: "secret".into() }
    }

    fn server() -> IdentityLogin {
        IdentityLogin { url: URL.into(), administrator: login("admin") }
    }

    fn on_service(role: &str) -> Grant {
        Grant { role: role.into(), on: GrantTarget::Project("service".into()) }
    }

    fn entries() -> IdentityEntries {
        let endpoint = CatalogEndpoint { interface: Interface::Public, url: "http://glance".into() };
        IdentityEntries {
            projects: vec!["service".into()],
            services: vec![IdentityService {
                entry: CatalogService {
                    service_type: "image".into(),
                    name: "glance".into(),
                    description: String::new(),
                    region: "RegionOne".into(),
                    endpoints: vec![endpoint],
                },
                claim: claim(),
            }],
            users: vec![IdentityAccount {
                claim: claim(),
                login: login("glance"),
                domain: Domain::Default,
                grants: ["admin", "service"].map(on_service).to_vec(),
            }],
            ..IdentityEntries::default()
        }
    }

    #[tokio::test]
    async fn only_changed_entries_are_repaired() {
        let script = Script::default();
        let identity = FakeIdentity::new(script.clone());
        assert!(identity.ensure(&server(), &entries()).await.unwrap());
        assert!(!identity.ensure(&server(), &entries()).await.unwrap());
        let whole = identity.state(URL);
        identity.edit(URL, |state| {
            let service = state.services.get_mut("image").unwrap();
            service.endpoints.get_mut("RegionOne").unwrap().insert("public".into(), "http://wrong".into());
        });
        assert!(identity.ensure(&server(), &entries()).await.unwrap());
        assert_eq!(identity.state(URL), whole);
        assert_eq!(script.writes().len(), 2);
    }

    #[tokio::test]
    async fn a_user_requires_an_existing_project_and_existing_roles() {
        let identity = FakeIdentity::new(Script::default());
        let incomplete = IdentityEntries { projects: Vec::new(), ..entries() };
        let failure = identity.ensure(&server(), &incomplete).await;
        assert!(matches!(failure, Err(PortError::Unavailable { .. })), "{failure:?}");
        assert_eq!(identity.state(URL), IdentityState::default());
    }

    #[tokio::test]
    async fn services_and_users_can_be_dropped() {
        let identity = FakeIdentity::new(Script::default());
        identity.ensure(&server(), &entries()).await.unwrap();
        identity.drop_service(&server(), "image", None, &claim()).await.unwrap();
        identity.drop_user(&server(), &Domain::Default, "glance", &claim()).await.unwrap();
        let state = identity.state(URL);
        assert!(state.services.is_empty() && state.users.is_empty());
        assert!(state.projects.contains("service"));
    }
}
