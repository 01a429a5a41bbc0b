//! Registration of a program in the identity service: its user, catalog entries, domains and roles.

use openstack_operator_model::common::Exposure;
use openstack_operator_model::name;
use openstack_operator_model::plan::{Port, Route, SecretKey, Variable};
use openstack_operator_model::service::Invalid;

use super::Program;
use crate::concern::IdentitySettings;
use crate::shared::{self, Account, DomainClaim, Registration};

/// URLs of an API.
pub(crate) struct Urls {
    pub(crate) public: String,
    pub(crate) internal: String,
}

impl Urls {
    /// A catalog entry with these URLs and a path after them.
    pub(crate) fn registration(
        &self,
        name: &'static str,
        service_type: &'static str,
        description: &'static str,
        path: &str,
    ) -> Registration {
        let (public, internal) = (format!("{}{path}", self.public), format!("{}{path}", self.internal));
        Registration { service_type, name, description, public, internal }
    }
}

impl<K> Program<'_, K> {
    /// Adds the service user and its catalog entries, and its credentials for these sections to the environment.
    pub(crate) fn register(
        &mut self,
        settings: &IdentitySettings,
        registrations: &[Registration],
        sections: &[&str],
        cache: &[String],
    ) -> Result<Account, Invalid> {
        let account =
            shared::register(self.context, &mut self.plan, settings, self.project.name, registrations)?;
        self.environment.extend(account.credentials(sections));
        self.change(|document| account.authtoken(document, cache));
        Ok(account)
    }

    /// A catalog entry of the API, with a path after its URLs.
    pub(crate) fn registration(
        &self,
        service_type: &'static str,
        description: &'static str,
        path: &str,
    ) -> Registration {
        let urls = Urls { public: self.public_url.clone(), internal: self.internal_url.clone() };
        urls.registration(self.project.name, service_type, description, path)
    }

    /// Adds a public route to another component with a Service, if it has a public host name. Returns its URLs, e.g. for
    /// a catalog entry of its own.
    pub(crate) fn expose(&mut self, component: &'static str, port: &Port, hostname: Option<&String>) -> Urls {
        let host = shared::service_host(self.context, &name::part(self.context.name, component));
        let internal = shared::internal_endpoint(host, port).url();
        let Exposure { gateway_ref, public_scheme, .. } = self.settings.exposure;
        let Some((gateway, hostname)) = gateway_ref.clone().zip(hostname.cloned()) else {
            return Urls { public: internal.clone(), internal };
        };
        let scheme = public_scheme.unwrap_or_default();
        let public = format!("{}://{hostname}", scheme.name());
        let suffix = Some(component.into());
        self.plan.routes.push(Route { hostname, gateway, suffix, port: port.number, scheme });
        Urls { public, internal }
    }

    /// Adds a domain of the service to its registration, and the password of the domain's administrator to the environment,
    /// as an option of a section.
    pub(crate) fn domain(
        &mut self,
        _registered: &Account,
        claim: &DomainClaim<'_>,
        (section, option): (&str, &str),
    ) {
        let SecretKey { secret, key } = shared::domain(self.context, &mut self.plan, claim);
        let variable = format!("OS_{}__{}", section.to_uppercase(), option.to_uppercase());
        self.environment.push(Variable::secret(variable, secret, key));
    }

    /// Adds roles that only users of this type of service get.
    pub(crate) fn roles(&mut self, _registered: &Account, roles: &[&str]) {
        let roles = roles.iter().map(|&role| role.to_owned());
        if let Some(catalog) = &mut self.plan.catalog {
            catalog.service_roles.extend(roles);
        }
    }
}

#[cfg(test)]
mod tests;
