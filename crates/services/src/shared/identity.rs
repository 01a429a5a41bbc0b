//! Users, catalog entries and authentication options of services.

use openstack_operator_model::common::{DeletionPolicy, Reference};
use openstack_operator_model::kind::SECRET;
use openstack_operator_model::name;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Catalog, CatalogEndpoint, CatalogService, Domain, Grant, GrantTarget, IdentityDomain, IdentityUser,
    Interface, Plan, SecretKey, SecretPlan, Variable,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{IdentityServer, LoginMethod};

use crate::concern::{IdentityAddress, IdentitySettings};
use crate::keystone;

/// Project of all service users.
const PROJECT: &str = "service";
/// Configuration section for token validation.
const AUTHTOKEN: &str = "keystone_authtoken";

/// A catalog entry.
pub(crate) struct Registration {
    pub(crate) service_type: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) public: String,
    pub(crate) internal: String,
}

/// Account of a service in the identity service.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) server: IdentityServer,
    /// Region of the identity service in the catalog, if known.
    pub(crate) own_region: Option<String>,
    pub(crate) method: LoginMethod,
    /// Name of the user, if the Secret has no `username`.
    pub(crate) username: Option<String>,
    /// Secret with the credentials.
    pub(crate) secret: String,
}

/// Identity service of an object. Without a provider the operator registers nothing.
pub(crate) struct Identity {
    pub(crate) provider: Option<Reference>,
    pub(crate) server: IdentityServer,
    /// Region of the identity service in the catalog. An existing Keystone may have another region than its services.
    pub(crate) own_region: Option<String>,
}

pub(crate) fn identity<K>(
    context: &Context<'_, K>,
    settings: &IdentitySettings,
) -> Result<Identity, Invalid> {
    if let Some(cluster) = &settings.cluster_ref {
        let field = "spec.keystone.clusterRef.name";
        let server = context.inputs.identity(keystone::KIND, &cluster.name, field)?.clone();
        let provider = Some(Reference::new(keystone::KIND, &cluster.name));
        let own_region = Some(server.region.clone());
        return Ok(Identity { provider, server, own_region });
    }
    let url = settings.auth_url.as_ref().ok_or_else(no_identity)?;
    let administrator = settings.admin_secret_ref.as_ref().map(|secret| secret.name.clone());
    Ok(Identity {
        provider: administrator.as_ref().map(|secret| Reference::new(SECRET, secret)),
        server: IdentityServer {
            internal_url: url.clone(),
            public_url: url.clone(),
            region: settings.region.clone().unwrap_or_else(|| "RegionOne".to_owned()),
            username: None,
            secret: administrator,
            secret_key: "password".to_owned(),
        },
        own_region: None,
    })
}

fn no_identity() -> Invalid {
    Invalid::new(
        "spec.keystone",
        "is incomplete: name a Keystone in clusterRef or an existing one in authUrl",
    )
}

/// Internal URL of the identity service.
pub(crate) fn identity_url<K>(
    context: &Context<'_, K>,
    address: &IdentityAddress,
) -> Result<String, Invalid> {
    let Some(cluster) = &address.cluster_ref else {
        return address.auth_url.clone().ok_or_else(no_identity);
    };
    let server = context.inputs.identity(keystone::KIND, &cluster.name, "spec.keystone.clusterRef.name")?;
    Ok(server.internal_url.clone())
}

/// Adds the service user and its catalog entries to the plan, if the operator creates them.
pub(crate) fn register<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &IdentitySettings,
    user: &str,
    registrations: &[Registration],
) -> Result<Account, Invalid> {
    let Identity { provider, server, own_region } = identity(context, settings)?;
    let mut users = Vec::new();
    let account = if let Some(given) = &settings.app_credential_ref {
        let (method, secret) = (LoginMethod::ApplicationCredential, given.secret_name.clone());
        Account { server, own_region, method, username: None, secret }
    } else if let Some(given) = &settings.secret_ref {
        let method = LoginMethod::Password;
        Account { server, own_region, method, username: None, secret: given.name.clone() }
    } else {
        let secret = name::part(context.name, "identity");
        plan.secrets.push(SecretPlan::login(&secret, user));
        users.push(IdentityUser {
            name: user.to_owned(),
            domain: Domain::Default,
            password: SecretKey::new(&secret, "password"),
            // `admin` to act in all projects, `service` to send service tokens with requests of users.
            grants: ["admin", "service"].map(on_project).to_vec(),
        });
        let method = LoginMethod::Password;
        Account { server, own_region, method, username: Some(user.to_owned()), secret }
    };
    let server = account.server.clone();
    plan.catalog = provider.map(|provider| Catalog {
        provider,
        domains: Vec::new(),
        projects: vec![PROJECT.to_owned()],
        roles: ["admin", "service"].map(str::to_owned).to_vec(),
        service_roles: Vec::new(),
        services: registrations.iter().map(|registration| catalog_service(registration, &server)).collect(),
        users,
        server,
    });
    Ok(account)
}

fn on_project(role: &str) -> Grant {
    Grant { role: role.to_owned(), on: GrantTarget::Project(PROJECT.to_owned()) }
}

/// A domain of a service, and the user who administers it.
pub(crate) struct DomainClaim<'a> {
    pub(crate) name: &'a str,
    /// Name of the user, who has role `admin` on the domain and no project.
    pub(crate) administrator: &'a str,
    /// Suffix of the name of the Secret with the login of the user.
    pub(crate) suffix: &'a str,
    /// What happens to the domain when the object is deleted. A database that is kept refers to its users and projects.
    pub(crate) deletion_policy: DeletionPolicy,
}

/// Adds a domain and its administrator to the plan, and returns the key of the password. Without an administrator of the
/// identity service, an administrator creates both.
pub(crate) fn domain<K>(context: &Context<'_, K>, plan: &mut Plan, claim: &DomainClaim<'_>) -> SecretKey {
    let DomainClaim { name, administrator, suffix, deletion_policy } = claim;
    let secret = name::part(context.name, suffix);
    plan.secrets.push(SecretPlan::login(&secret, administrator));
    let password = SecretKey::new(&secret, "password");
    let Some(catalog) = &mut plan.catalog else {
        plan.remarks.push(format!(
            "create domain {name} in Keystone, and user {administrator} in it with the password of Secret {secret} and \
             role admin on the domain"
        ));
        return password;
    };
    let retained = *deletion_policy == DeletionPolicy::Retain;
    catalog.domains.push(IdentityDomain { name: (*name).to_owned(), retained });
    let domain = Domain::Named((*name).to_owned());
    catalog.users.push(IdentityUser {
        name: (*administrator).to_owned(),
        domain: domain.clone(),
        password: password.clone(),
        grants: vec![Grant { role: "admin".to_owned(), on: GrantTarget::Domain(domain) }],
    });
    password
}

fn catalog_service(registration: &Registration, server: &IdentityServer) -> CatalogService {
    let endpoint = |interface, url: &String| CatalogEndpoint { interface, url: url.clone() };
    CatalogService {
        service_type: registration.service_type.to_owned(),
        name: registration.name.to_owned(),
        description: registration.description.to_owned(),
        region: server.region.clone(),
        endpoints: vec![
            endpoint(Interface::Public, &registration.public),
            endpoint(Interface::Internal, &registration.internal),
        ],
    }
}

impl Account {
    /// Authentication options without credentials, which are in the environment.
    fn login(&self, mut document: Document, section: &str) -> Document {
        document = document.set(section, "auth_url", &self.server.internal_url);
        if self.method == LoginMethod::ApplicationCredential {
            return document.set(section, "auth_type", "v3applicationcredential");
        }
        if let Some(username) = &self.username {
            document = document.set(section, "username", username);
        }
        document.section_of(
            section,
            [
                ("auth_type", "password"),
                ("project_name", PROJECT),
                ("user_domain_name", "Default"),
                ("project_domain_name", "Default"),
            ],
        )
    }

    /// Options for token validation.
    pub(crate) fn authtoken(&self, document: Document, cache: &[String]) -> Document {
        let document = self
            .login(document, AUTHTOKEN)
            .set(AUTHTOKEN, "service_token_roles", "service")
            .set(AUTHTOKEN, "service_token_roles_required", true)
            .set(AUTHTOKEN, "interface", "internal")
            .set(AUTHTOKEN, "www_authenticate_uri", &self.server.public_url);
        let document = match &self.own_region {
            Some(region) => document.set(AUTHTOKEN, "region_name", region),
            None => document,
        };
        if cache.is_empty() {
            return document;
        }
        document.set(AUTHTOKEN, "memcached_servers", cache.join(","))
    }

    /// Login of a user whom others trust. It has no project, because each trust has one.
    pub(crate) fn trustee(&self, mut document: Document, section: &str) -> Document {
        document = document.set(section, "auth_url", &self.server.internal_url);
        if let Some(username) = &self.username {
            document = document.set(section, "username", username);
        }
        document.section_of(section, [("auth_type", "password"), ("user_domain_name", "Default")])
    }

    /// Options for calls to another service through internal endpoints.
    pub(crate) fn client(&self, document: Document, section: &str) -> Document {
        self.login(document, section).set(section, "region_name", &self.server.region).set(
            section,
            "valid_interfaces",
            "internal",
        )
    }

    /// Credentials for these sections and for token validation.
    pub(crate) fn credentials(&self, sections: &[&str]) -> Vec<Variable> {
        let options: &[(&str, &str)] = match (self.method, &self.username) {
            (LoginMethod::Password, Some(_)) => &[("PASSWORD", "password")],
            (LoginMethod::Password, None) => &[("USERNAME", "username"), ("PASSWORD", "password")],
            (LoginMethod::ApplicationCredential, _) => &[
                ("APPLICATION_CREDENTIAL_ID", "application_credential_id"),
                ("APPLICATION_CREDENTIAL_SECRET", "application_credential_secret"),
            ],
        };
        let variables = |section: &&str| {
            let section = section.to_uppercase();
            options.iter().map(move |(option, key)| {
                Variable::secret(format!("OS_{section}__{option}"), &self.secret, *key)
            })
        };
        [AUTHTOKEN].iter().chain(sections).flat_map(variables).collect()
    }
}
