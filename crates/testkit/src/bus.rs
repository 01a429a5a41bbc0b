//! Message buses in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use openstack_operator_engine::claim::Claim;
use openstack_operator_engine::ports::{Bus, BusGrant, BusServer, PortResult};
use openstack_operator_model::service::BusView;
use openstack_operator_model::status::EffectKind::{MessagingHost, MessagingUser};
use serde::Serialize;

use crate::server::{FakeServer, Owners, ServerState, Trouble, protect};

/// Message buses by the address of their management API.
pub type FakeBus = FakeServer<BusState>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BusState {
    /// Wanted number of members of each queue by virtual host.
    pub virtual_hosts: BTreeMap<String, usize>,
    /// Passwords by user.
    pub users: BTreeMap<String, String>,
    /// User and virtual host.
    pub permissions: BTreeSet<(String, String)>,
    pub owners: Owners,
    /// The cluster as the broker sees it; none if it does not respond.
    #[serde(skip)]
    pub view: Option<BusView>,
}

impl ServerState for BusState {
    const PORT: &'static str = "bus";
}

#[async_trait]
impl Bus for FakeBus {
    async fn ensure(&self, server: &BusServer, grant: &BusGrant) -> PortResult<bool> {
        self.call("ensure", &grant.virtual_host, (&server.management_url, &server.administrator), |state| {
            let user = &grant.user;
            protect(&server.administrator, &user.username)?;
            let members = state.virtual_hosts.get(&grant.virtual_host);
            let password = state.users.get(&user.username);
            let owners = &mut state.owners;
            owners.claim(&grant.virtual_host_claim, MessagingHost, &grant.virtual_host, members)?;
            owners.claim(&grant.user_claim, MessagingUser, &user.username, password)?;
            state.virtual_hosts.insert(grant.virtual_host.clone(), grant.queue_members);
            state.users.insert(user.username.clone(), user.password.clone());
            state.permissions.insert((user.username.clone(), grant.virtual_host.clone()));
            Ok(())
        })
    }

    async fn drop_virtual_host(&self, server: &BusServer, name: &str, claim: &Claim) -> PortResult<()> {
        self.call("drop_virtual_host", name, (&server.management_url, &server.administrator), |state| {
            if state.owners.release(claim, MessagingHost, name) {
                state.virtual_hosts.remove(name);
                state.permissions.retain(|(_, virtual_host)| virtual_host != name);
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn drop_user(&self, server: &BusServer, user: &str, claim: &Claim) -> PortResult<()> {
        self.call("drop_user", user, (&server.management_url, &server.administrator), |state| {
            protect(&server.administrator, user)?;
            if state.owners.release(claim, MessagingUser, user) {
                state.users.remove(user);
                state.permissions.retain(|(permitted, _)| permitted != user);
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn view(&self, server: &BusServer) -> PortResult<BusView> {
        let mut view = None;
        let address = &server.management_url;
        self.call("view", address, (address, &server.administrator), |state| {
            view.clone_from(&state.view);
            state.view.is_some().then_some(()).ok_or_else(|| Trouble::Missing(address.clone()))
        })?;
        Ok(view.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::ports::Login;

    use super::*;
    use crate::script::Script;
    use crate::server::claim;

    #[tokio::test]
    async fn created_resources_can_be_deleted() {
        let login = |username: &str| Login { username: username.into(), password: "secret".into() };
        let server = BusServer { management_url: "http://bus".into(), administrator: login("admin") };
        let bus = FakeBus::new(Script::default());
        let grant = BusGrant {
            virtual_host: "nova".into(),
            virtual_host_claim: claim(),
            queue_members: 1,
            user: login("nova"),
            user_claim: claim(),
        };
        assert!(bus.ensure(&server, &grant).await.unwrap());
        let grant = BusGrant { queue_members: 3, ..grant };
        assert!(bus.ensure(&server, &grant).await.unwrap());
        assert!(!bus.ensure(&server, &grant).await.unwrap());
        bus.edit("http://bus", |state| state.permissions.clear());
        assert!(bus.ensure(&server, &grant).await.unwrap());
        bus.drop_virtual_host(&server, "nova", &claim()).await.unwrap();
        assert!(bus.state("http://bus").permissions.is_empty());
        bus.drop_user(&server, "nova", &claim()).await.unwrap();
        assert_eq!(bus.state("http://bus"), BusState::default());
    }
}
