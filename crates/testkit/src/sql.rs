//! Database servers in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use openstack_operator_engine::claim::Claim;
use openstack_operator_engine::ports::{PortResult, Sql, SqlGrant, SqlOutcome, SqlServer};
use openstack_operator_model::plan::Charset;
use openstack_operator_model::service::SqlView;
use openstack_operator_model::status::EffectKind::{Database, DatabaseUser};
use serde::Serialize;

use crate::server::{FakeServer, Owners, ServerState, Trouble, protect};

/// Database servers by their host.
pub type FakeSql = FakeServer<SqlState>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SqlState {
    pub databases: BTreeSet<String>,
    /// Character sets of databases that do not have utf8mb3.
    pub charsets: BTreeMap<String, String>,
    /// Passwords by user.
    pub users: BTreeMap<String, String>,
    /// User and database.
    pub grants: BTreeSet<(String, String)>,
    pub owners: Owners,
    /// State of replication of a member; none if it does not respond.
    #[serde(skip)]
    pub view: Option<SqlView>,
}

impl ServerState for SqlState {
    const PORT: &'static str = "sql";
}

#[async_trait]
impl Sql for FakeSql {
    async fn ensure(&self, server: &SqlServer, grant: &SqlGrant) -> PortResult<SqlOutcome> {
        let mut other_charset = None;
        let wrote = self.call("ensure", &grant.database, (&server.host, &server.administrator), |state| {
            let user = &grant.user;
            protect(&server.administrator, &user.username)?;
            let (known, password) = (state.databases.get(&grant.database), state.users.get(&user.username));
            let owners = &mut state.owners;
            owners.claim(&grant.database_claim, Database, &grant.database, known)?;
            owners.claim(&grant.user_claim, DatabaseUser, &user.username, password)?;
            if state.databases.insert(grant.database.clone()) && grant.charset != Charset::default() {
                state.charsets.insert(grant.database.clone(), grant.charset.name().to_owned());
            }
            let charset = state.charsets.get(&grant.database).map_or("utf8mb3", String::as_str);
            other_charset = (!grant.charset.has_name(charset)).then(|| charset.to_owned());
            state.users.insert(user.username.clone(), user.password.clone());
            state.grants.insert((user.username.clone(), grant.database.clone()));
            Ok(())
        })?;
        Ok(SqlOutcome { wrote, other_charset })
    }

    async fn has_database(&self, server: &SqlServer, database: &str) -> PortResult<bool> {
        self.call("has_database", database, (&server.host, &server.administrator), |_| Ok(()))?;
        Ok(self.state(&server.host).databases.contains(database))
    }

    async fn drop_database(&self, server: &SqlServer, database: &str, claim: &Claim) -> PortResult<()> {
        // MariaDB keeps the grants of a dropped database.
        self.call("drop_database", database, (&server.host, &server.administrator), |state| {
            if state.owners.release(claim, Database, database) {
                state.databases.remove(database);
                state.charsets.remove(database);
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn drop_user(&self, server: &SqlServer, user: &str, claim: &Claim) -> PortResult<()> {
        self.call("drop_user", user, (&server.host, &server.administrator), |state| {
            protect(&server.administrator, user)?;
            if state.owners.release(claim, DatabaseUser, user) {
                state.users.remove(user);
                state.grants.retain(|(granted, _)| granted != user);
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn view(&self, server: &SqlServer) -> PortResult<SqlView> {
        let mut view = None;
        self.call("view", &server.host, (&server.host, &server.administrator), |state| {
            view.clone_from(&state.view);
            state.view.is_some().then_some(()).ok_or_else(|| Trouble::Missing(server.host.clone()))
        })?;
        Ok(view.unwrap_or_default())
    }

    async fn restore_quorum(&self, server: &SqlServer) -> PortResult<()> {
        self.call("restore_quorum", &server.host, (&server.host, &server.administrator), |state| {
            if let Some(view) = &mut state.view {
                view.primary = true;
            }
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::ports::{Login, PortError};

    use super::*;
    use crate::script::Script;
    use crate::server::claim;

    fn login(username: &str) -> Login {
        Login { username: username.into(), password: "secret".into() }
    }

    fn server() -> SqlServer {
        SqlServer { host: "db".into(), port: 3306, administrator: login("root") }
    }

    fn grant() -> SqlGrant {
        SqlGrant {
            database: "keystone".into(),
            charset: Charset::Utf8mb3,
            database_claim: claim(),
            user: login("keystone"),
            user_claim: claim(),
        }
    }

    #[tokio::test]
    async fn only_differences_are_written() {
        let script = Script::default();
        let sql = FakeSql::new(script.clone());
        assert!(sql.ensure(&server(), &grant()).await.unwrap().wrote);
        assert!(!sql.ensure(&server(), &grant()).await.unwrap().wrote);
        assert_eq!(script.log().len(), 2);
        assert_eq!(script.writes().len(), 1);
        assert_eq!(sql.administrator("db"), Some(login("root")));
        sql.edit("db", |state| {
            state.users.insert("keystone".into(), "other".into());
        });
        assert!(sql.ensure(&server(), &grant()).await.unwrap().wrote);
        assert_eq!(sql.state("db").users["keystone"], "secret");
    }

    #[tokio::test]
    async fn a_user_is_dropped_with_its_grants_and_a_missing_user_is_no_write() {
        let script = Script::default();
        let sql = FakeSql::new(script.clone());
        sql.ensure(&server(), &grant()).await.unwrap();
        sql.drop_user(&server(), "keystone", &claim()).await.unwrap();
        assert!(sql.state("db").grants.is_empty());
        sql.drop_database(&server(), "keystone", &claim()).await.unwrap();
        assert_eq!(sql.state("db"), SqlState::default());
        script.clear_log();
        sql.drop_user(&server(), "keystone", &claim()).await.unwrap();
        sql.drop_database(&server(), "keystone", &claim()).await.unwrap();
        assert!(script.writes().is_empty());
    }

    #[tokio::test]
    async fn the_administrator_cannot_be_a_service_user() {
        let sql = FakeSql::new(Script::default());
        let wrong = SqlGrant { user: login("root"), ..grant() };
        assert!(matches!(sql.ensure(&server(), &wrong).await, Err(PortError::Rejected { .. })));
        assert!(matches!(sql.drop_user(&server(), "root", &claim()).await, Err(PortError::Rejected { .. })));
    }

    #[tokio::test]
    async fn a_server_that_is_down_changes_nothing() {
        let sql = FakeSql::new(Script::default());
        sql.set_down(true);
        let failure = sql.ensure(&server(), &grant()).await;
        assert!(matches!(failure, Err(PortError::Unavailable { .. })));
        sql.set_down(false);
        assert_eq!(sql.state("db"), SqlState::default());
        sql.ensure(&server(), &grant()).await.unwrap();
    }
}
