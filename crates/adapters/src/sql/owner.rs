//! Owners of databases and users, in a table on their server: neither users nor databases of older servers have comments.

use mysql_async::Conn;
use openstack_operator_engine::claim::{Claim, Found};
use openstack_operator_model::status::EffectKind;

use super::{Failure, execute, literal, query};

const DATABASE: &str = "openstack_operator";
const TABLE: &str = "`openstack_operator`.`owners`";
/// The database or the table does not exist.
const ABSENT: [u16; 2] = [1049, 1146];

/// A database or a user, and the claim of an object to it.
pub(super) struct Resource<'a> {
    pub(super) kind: EffectKind,
    pub(super) name: &'a str,
    pub(super) claim: &'a Claim,
}

impl Resource<'_> {
    pub(super) async fn owner(&self, connection: &mut Conn) -> Result<Option<String>, Failure> {
        let statement = format!("SELECT owner FROM {TABLE} WHERE {}", self.condition());
        match query(connection, &statement).await {
            Ok(rows) => Ok(rows.into_iter().next()),
            Err(Failure::Server { code, .. }) if ABSENT.contains(&code) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The recorded owner, if the claim covers the resource.
    pub(super) async fn admitted(
        &self,
        connection: &mut Conn,
        existing: Option<&String>,
    ) -> Result<Option<String>, Failure> {
        let owner = self.owner(connection).await?;
        self.claim.admit(self.kind, self.name, Found::new(existing, owner.as_deref()))?;
        Ok(owner)
    }

    /// Without an owner, the resource is known from the status of the object.
    pub(super) fn may_remove(&self, owner: Option<&str>) -> bool {
        self.claim.may_remove(self.kind, self.name, owner.map_or(Found::Unowned, Found::Owned))
    }

    /// Records the object as the owner. Fails if another object becomes the owner at the same time.
    pub(super) async fn record(&self, connection: &mut Conn, known: Option<String>) -> Result<bool, Failure> {
        let verb = match known {
            Some(owner) if owner == self.claim.owner => return Ok(false),
            Some(_) => "REPLACE",
            None => "INSERT",
        };
        let values = [self.kind.title(), self.name, &self.claim.owner].map(literal).join(", ");
        let statement = format!("{verb} INTO {TABLE} (kind, name, owner) VALUES ({values})");
        match execute(connection, &statement).await {
            Err(Failure::Server { code, .. }) if ABSENT.contains(&code) => {
                create_table(connection).await?;
                execute(connection, &statement).await?;
            }
            result => result?,
        }
        Ok(true)
    }

    pub(super) async fn forget(&self, connection: &mut Conn) -> Result<(), Failure> {
        execute(connection, &format!("DELETE FROM {TABLE} WHERE {}", self.condition())).await
    }

    fn condition(&self) -> String {
        format!("kind = {} AND name = {}", literal(self.kind.title()), literal(self.name))
    }
}

/// Names of databases are case-sensitive.
async fn create_table(connection: &mut Conn) -> Result<(), Failure> {
    execute(connection, &format!("CREATE DATABASE IF NOT EXISTS `{DATABASE}`")).await?;
    let columns = "kind VARCHAR(32) NOT NULL, name VARCHAR(128) NOT NULL, owner VARCHAR(512) NOT NULL, \
                   PRIMARY KEY (kind, name)";
    let options = "ENGINE=InnoDB CHARACTER SET utf8mb3 COLLATE utf8mb3_bin";
    execute(connection, &format!("CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) {options}")).await
}
