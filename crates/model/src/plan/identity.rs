//! Entries of an object in the identity service.

use crate::common::Reference;
use crate::plan::SecretKey;
use crate::status::IdentityServer;

/// Entries of the identity service.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    pub provider: Reference,
    pub server: IdentityServer,
    /// Domains of the object.
    pub domains: Vec<IdentityDomain>,
    /// Projects of the default domain that all services share. They stay when the object is deleted.
    pub projects: Vec<String>,
    /// Roles that all services share. They stay when the object is deleted.
    pub roles: Vec<String>,
    /// Roles of this type of service. One is removed with the last object that has it, unless a user holds it.
    pub service_roles: Vec<String>,
    pub services: Vec<CatalogService>,
    pub users: Vec<IdentityUser>,
}

/// A domain that belongs to the object, with everything in it.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityDomain {
    pub name: String,
    /// Whether the domain is kept when the object is deleted.
    pub retained: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogService {
    /// Type by the service types authority, e.g. `identity`.
    pub service_type: String,
    pub name: String,
    pub description: String,
    pub region: String,
    pub endpoints: Vec<CatalogEndpoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogEndpoint {
    pub interface: Interface,
    pub url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    Public,
    Internal,
    Admin,
}

impl Interface {
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

/// A user of the object. It may have no project.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityUser {
    pub name: String,
    pub domain: Domain,
    pub password: SecretKey,
    pub grants: Vec<Grant>,
}

/// A domain by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain {
    /// The domain that every identity service has.
    Default,
    Named(String),
}

impl Domain {
    /// Name of a domain other than the default one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Default => None,
            Self::Named(name) => Some(name),
        }
    }
}

impl From<Option<&str>> for Domain {
    fn from(name: Option<&str>) -> Self {
        name.map_or(Self::Default, |name| Self::Named(name.to_owned()))
    }
}

/// A role of a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub role: String,
    pub on: GrantTarget,
}

/// Where a user has a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantTarget {
    Domain(Domain),
    /// A project of the default domain.
    Project(String),
}
