//! How services are known to the identity service: their users, their places in the catalog, and how they log in.

use std::collections::BTreeMap;

use openstack_operator_model::common::IdentitySettings;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Catalog, CatalogEndpoint, CatalogService, Entry, IdentityUser, Interface, Plan, SecretContent, SecretKey,
    SecretPlan, Variable,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::IdentityServer;

use super::reference;
use crate::keystone;

const FIELD: &str = "spec.keystone.clusterRef";
/// Project of all services' users.
const PROJECT: &str = "service";

pub(crate) fn identity_needs(needs: Needs, settings: &IdentitySettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object(FIELD, keystone::KIND, cluster)
}

/// A service in the catalog.
pub(crate) struct Registration<'a> {
    pub(crate) service_type: &'a str,
    /// Name of the service, and of its user.
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) public: String,
    pub(crate) internal: String,
}

/// A service's user.
pub(crate) struct Account<'a> {
    pub(crate) server: &'a IdentityServer,
    pub(crate) username: String,
    /// Secret with `username` and `password`.
    pub(crate) secret: String,
}

/// Secret with `username` and `password` of a service's user.
pub(crate) fn account_secret(name: &str) -> String {
    name::part(name, "identity")
}

/// The identity service that an object names.
pub(crate) fn identity<'a, K>(
    context: &Context<'a, K>,
    settings: &'a IdentitySettings,
) -> Result<(&'a str, &'a IdentityServer), Invalid> {
    let Some(cluster) = &settings.cluster_ref else {
        return Err(Invalid::new(FIELD, "is missing: name a Keystone"));
    };
    let server = context.inputs.identity(keystone::KIND, &cluster.name, "spec.keystone.clusterRef.name")?;
    Ok((&cluster.name, server))
}

/// Adds a service's user and its place in the catalog to its plan.
pub(crate) fn register<'a, K>(
    context: &Context<'a, K>,
    plan: &mut Plan,
    settings: &'a IdentitySettings,
    registration: &Registration<'_>,
) -> Result<Account<'a>, Invalid> {
    let (cluster, server) = identity(context, settings)?;
    let secret = account_secret(context.name);
    let username = registration.name.to_owned();
    let entries = BTreeMap::from([
        ("username".to_owned(), Entry::Text(username.clone())),
        ("password".to_owned(), Entry::Password { length: 32 }),
    ]);
    plan.secrets.push(SecretPlan {
        name: secret.clone(),
        content: SecretContent::Entries(entries),
        retained: false,
    });
    let endpoint = |interface, url: &String| CatalogEndpoint { interface, url: url.clone() };
    plan.catalog = Some(Catalog {
        provider: reference(keystone::KIND, cluster),
        server: server.clone(),
        projects: vec![PROJECT.to_owned()],
        roles: ["admin", "service"].map(str::to_owned).to_vec(),
        services: vec![CatalogService {
            service_type: registration.service_type.to_owned(),
            name: registration.name.to_owned(),
            description: registration.description.to_owned(),
            region: server.region.clone(),
            endpoints: vec![
                endpoint(Interface::Public, &registration.public),
                endpoint(Interface::Internal, &registration.internal),
            ],
        }],
        users: vec![IdentityUser {
            name: username.clone(),
            password: SecretKey::new(&secret, "password"),
            project: PROJECT.to_owned(),
            // What acts for all projects is an administrator; what vouches for requests of others is a service.
            roles: ["admin", "service"].map(str::to_owned).to_vec(),
        }],
    });
    Ok(Account { server, username, secret })
}

impl Account<'_> {
    /// How the service logs in, but for its password, which comes by environment.
    fn login(&self, document: Document, section: &str) -> Document {
        document
            .section_of(
                section,
                [
                    ("auth_type", "password"),
                    ("project_name", PROJECT),
                    ("user_domain_name", "Default"),
                    ("project_domain_name", "Default"),
                ],
            )
            .set(section, "username", &self.username)
            .set(section, "auth_url", &self.server.internal_url)
    }

    /// How the service checks tokens.
    pub(crate) fn authtoken(&self, document: Document, cache: &[String]) -> Document {
        let section = "keystone_authtoken";
        let document = self
            .login(document, section)
            .set(section, "service_token_roles", "service")
            .set(section, "service_token_roles_required", true)
            .set(section, "interface", "internal")
            .set(section, "www_authenticate_uri", &self.server.public_url)
            .set(section, "region_name", &self.server.region);
        if cache.is_empty() {
            return document;
        }
        document.set(section, "memcached_servers", cache.join(","))
    }

    /// How the service speaks to another: as itself, inside the cluster.
    pub(crate) fn client(&self, document: Document, section: &str) -> Document {
        self.login(document, section).set(section, "region_name", &self.server.region).set(
            section,
            "valid_interfaces",
            "internal",
        )
    }

    /// Passwords of the sections with which the service logs in, and of the one with which it checks tokens.
    pub(crate) fn passwords(&self, sections: &[&str]) -> Vec<Variable> {
        let password = |section: &&str| {
            Variable::secret(format!("OS_{}__PASSWORD", section.to_uppercase()), &self.secret, "password")
        };
        ["keystone_authtoken"].iter().chain(sections).map(password).collect()
    }
}
