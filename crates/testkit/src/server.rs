//! Common parts of the fake servers: state by address, and outages.

use std::collections::BTreeMap;
use std::sync::Mutex;

use openstack_operator_engine::claim::{Claim, Found, Refusal};
use openstack_operator_engine::ports::{Login, PortError, PortResult};
use openstack_operator_model::status::EffectKind;
use serde::Serialize;

use crate::lock;
use crate::script::Script;

/// State of a server.
pub trait ServerState: Clone + Default + PartialEq + Serialize {
    /// Name of the port in the log.
    const PORT: &'static str;
}

/// Error of a server that is up.
pub(crate) enum Trouble {
    Refused(String),
    /// It may exist later.
    Missing(String),
    Foreign(Refusal),
}

/// Owners of resources by their kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Owners(pub BTreeMap<String, String>);

impl Owners {
    fn key(kind: EffectKind, name: &str) -> String {
        format!("{} {name}", kind.title())
    }

    pub fn of(&self, kind: EffectKind, name: &str) -> Option<&str> {
        self.0.get(&Self::key(kind, name)).map(String::as_str)
    }

    /// Records the owner of a resource, if the claim covers it.
    pub(crate) fn claim<T>(
        &mut self,
        claim: &Claim,
        kind: EffectKind,
        name: &str,
        resource: Option<&T>,
    ) -> Result<(), Trouble> {
        claim.admit(kind, name, Found::new(resource, self.of(kind, name))).map_err(Trouble::Foreign)?;
        self.0.insert(Self::key(kind, name), claim.owner.clone());
        Ok(())
    }

    /// Whether the claim covers the removal of a resource, which then has no owner any more.
    pub(crate) fn release(&mut self, claim: &Claim, kind: EffectKind, name: &str) -> bool {
        let is_covered = claim.may_remove(kind, name, Found::new(Some(&()), self.of(kind, name)));
        if is_covered {
            self.0.remove(&Self::key(kind, name));
        }
        is_covered
    }
}

/// Rejects changes of the operator's own account.
pub(crate) fn protect(administrator: &Login, user: &str) -> Result<(), Trouble> {
    if administrator.username == user {
        return Err(Trouble::Refused(format!("{user} is the server's administrator")));
    }
    Ok(())
}

/// All servers of one port. A server is created by its first call.
#[derive(Debug)]
pub struct FakeServer<S> {
    script: Script,
    servers: Mutex<Servers<S>>,
}

#[derive(Clone, Debug)]
struct Servers<S> {
    down: bool,
    rejects_logins: bool,
    states: BTreeMap<String, S>,
    administrators: BTreeMap<String, Login>,
}

impl<S: ServerState> FakeServer<S> {
    pub fn new(script: Script) -> Self {
        let servers = Servers {
            down: false,
            rejects_logins: false,
            states: BTreeMap::new(),
            administrators: BTreeMap::new(),
        };
        Self { script, servers: Mutex::new(servers) }
    }

    pub(crate) fn fork(&self, script: Script) -> Self {
        Self { script, servers: Mutex::new(lock(&self.servers).clone()) }
    }

    /// Whether every call fails as during an outage.
    pub fn set_down(&self, down: bool) {
        lock(&self.servers).down = down;
    }

    /// Whether the administrators have another password than the operator knows.
    pub fn set_rejecting_logins(&self, rejects: bool) {
        lock(&self.servers).rejects_logins = rejects;
    }

    /// State of the server at an address.
    pub fn state(&self, address: &str) -> S {
        lock(&self.servers).states.get(address).cloned().unwrap_or_default()
    }

    /// Changes the state of a server without the operator.
    pub fn edit(&self, address: &str, change: impl FnOnce(&mut S)) {
        change(lock(&self.servers).states.entry(address.to_owned()).or_default());
    }

    /// Login of the last call.
    pub fn administrator(&self, address: &str) -> Option<Login> {
        lock(&self.servers).administrators.get(address).cloned()
    }

    /// Every server by its address.
    pub(crate) fn states(&self) -> BTreeMap<String, S> {
        lock(&self.servers).states.clone()
    }

    /// One call of the port. It writes only if the state changes, and returns whether it did.
    pub(crate) fn call(
        &self,
        verb: &'static str,
        name: &str,
        (address, administrator): (&str, &Login),
        change: impl FnOnce(&mut S) -> Result<(), Trouble>,
    ) -> PortResult<bool> {
        let attempt = self.script.begin(verb, S::PORT, name)?;
        let mut servers = lock(&self.servers);
        if servers.down {
            return Err(attempt.unavailable("the server is down"));
        }
        if servers.rejects_logins {
            return Err(attempt.login_rejected());
        }
        servers.administrators.insert(address.to_owned(), administrator.clone());
        let state = servers.states.entry(address.to_owned()).or_default();
        let mut next = state.clone();
        change(&mut next).map_err(|trouble| match trouble {
            Trouble::Refused(reason) => attempt.refused(reason),
            Trouble::Missing(name) => attempt.unavailable(&format!("{name} does not exist yet")),
            Trouble::Foreign(refusal) => PortError::Foreign { refusal },
        })?;
        if next == *state {
            return Ok(false);
        }
        attempt.write()?;
        *state = next;
        Ok(true)
    }
}

/// A claim that adopts nothing.
#[cfg(test)]
pub(crate) fn claim() -> Claim {
    Claim { owner: "Thing default/x".into(), adoption: openstack_operator_engine::claim::Adoption::Nothing }
}
