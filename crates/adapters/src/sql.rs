//! The database server, through SQL.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, IoError, OptsBuilder, Row};
use openstack_operator_engine::claim::{Claim, Refusal};
use openstack_operator_engine::ports::{Login, PortError, PortResult, Sql, SqlGrant, SqlOutcome, SqlServer};
use openstack_operator_model::plan::Charset;
use openstack_operator_model::service::SqlView;
use openstack_operator_model::status::EffectKind;
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::time::timeout;

use crate::administrator;
use crate::sql::owner::Resource;

mod owner;
mod replication;

/// Longer than the five seconds after which the resolver retries a DNS query.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
const DATABASE_NAME_LENGTH: usize = 64;
const USER_NAME_LENGTH: usize = 80;
/// Resets the modes that quoting depends on, and prevents GRANT from creating a user without a password.
const SESSION: &str = "SET SESSION sql_mode = 'NO_AUTO_CREATE_USER'";

const ACCESS_DENIED: u16 = 1045;
/// Missing privileges on the database, the table, the operation or to create users; a password that violates a policy.
const PERMANENT_ERRORS: [u16; 5] = [1044, 1142, 1227, 1410, 1819];

/// SQL client with one short connection per call.
#[derive(Clone, Copy, Debug, Default)]
pub struct MariaSql;

#[async_trait]
impl Sql for MariaSql {
    async fn ensure(&self, server: &SqlServer, grant: &SqlGrant) -> PortResult<SqlOutcome> {
        let (database, user) = (&grant.database, &grant.user.username);
        let action = format!("set up database {database} and user {user} on {}", server.host);
        administrator::protect(&server.administrator, user, &action)?;
        ensure_grant(server, grant).await.map_err(|failure| failure.into_port_error(action))
    }

    async fn has_database(&self, server: &SqlServer, database: &str) -> PortResult<bool> {
        let action = format!("look for database {database} on {}", server.host);
        find_database(server, database).await.map_err(|failure| failure.into_port_error(action))
    }

    async fn drop_database(&self, server: &SqlServer, database: &str, claim: &Claim) -> PortResult<()> {
        let action = format!("remove database {database} from {}", server.host);
        remove_database(server, database, claim).await.map_err(|failure| failure.into_port_error(action))
    }

    async fn drop_user(&self, server: &SqlServer, user: &str, claim: &Claim) -> PortResult<()> {
        let action = format!("remove user {user} from {}", server.host);
        administrator::protect(&server.administrator, user, &action)?;
        remove_user(server, user, claim).await.map_err(|failure| failure.into_port_error(action))
    }

    async fn view(&self, server: &SqlServer) -> PortResult<SqlView> {
        let action = format!("ask {} for its state of replication", server.host);
        replication::view(server).await.map_err(|failure| failure.into_port_error(action))
    }

    async fn restore_quorum(&self, server: &SqlServer) -> PortResult<()> {
        let action = format!("restore the quorum on {}", server.host);
        replication::restore_quorum(server).await.map_err(|failure| failure.into_port_error(action))
    }
}

#[derive(Debug, Snafu)]
enum Failure {
    #[snafu(display("invalid database name {name:?}; use up to 64 letters, digits and underscores"))]
    DatabaseName { name: String },
    #[snafu(display("invalid username {name:?}; use up to 80 letters, digits, underscores and hyphens"))]
    UserName { name: String },
    #[snafu(display("no connection within {} seconds", CONNECT_TIMEOUT.as_secs()))]
    SlowConnection { source: tokio::time::error::Elapsed },
    #[snafu(display("a statement did not finish within {} seconds", STATEMENT_TIMEOUT.as_secs()))]
    SlowStatement { source: tokio::time::error::Elapsed },
    #[snafu(display("the connection failed"))]
    Connection { source: std::io::Error },
    #[snafu(display("the server returned error {code}{message}"))]
    Server { code: u16, message: String },
    /// Errors of the driver may contain rows, so they are not printed.
    #[snafu(display("the server sent an invalid response"))]
    Protocol,
    #[snafu(display("{refusal}"))]
    Foreign { refusal: Refusal },
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Foreign { refusal }
    }
}

impl Failure {
    fn into_port_error(self, action: String) -> PortError {
        match &self {
            Self::Foreign { refusal } => PortError::Foreign { refusal: refusal.clone() },
            Self::DatabaseName { .. } | Self::UserName { .. } => {
                PortError::Rejected { action, reason: self.to_string() }
            }
            Self::Server { code, .. } if PERMANENT_ERRORS.contains(code) => {
                PortError::Rejected { action, reason: self.to_string() }
            }
            Self::Server { code: ACCESS_DENIED, .. } => {
                PortError::LoginRejected { action, reason: self.to_string() }
            }
            _ => PortError::Unavailable { action, source: Box::new(self) },
        }
    }

    /// Removes the server's message, which may quote the password in the statement.
    fn without_message(self) -> Self {
        match self {
            Self::Server { code, .. } => Self::Server { code, message: String::new() },
            other => other,
        }
    }
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Self {
        match error {
            mysql_async::Error::Server(error) => {
                Self::Server { code: error.code, message: format!(": {}", error.message) }
            }
            mysql_async::Error::Io(IoError::Io(source)) => Self::Connection { source },
            _ => Self::Protocol,
        }
    }
}

async fn ensure_grant(server: &SqlServer, grant: &SqlGrant) -> Result<SqlOutcome, Failure> {
    let database = database_name(&grant.database)?;
    let account = account(&grant.user.username)?;
    let mut connection = connect(server, &server.administrator).await?;
    let character_set = character_set(&mut connection, database).await?;
    let user = find_user(&mut connection, &grant.user.username).await?;
    let of_database = Resource { kind: EffectKind::Database, name: database, claim: &grant.database_claim };
    let of_user =
        Resource { kind: EffectKind::DatabaseUser, name: &grant.user.username, claim: &grant.user_claim };
    // Both are checked before anything is written, and recorded before anything is created.
    let database_owner = of_database.admitted(&mut connection, character_set.as_ref()).await?;
    let user_owner = of_user.admitted(&mut connection, user.as_ref()).await?;
    let mut wrote = of_database.record(&mut connection, database_owner).await?;
    wrote |= of_user.record(&mut connection, user_owner).await?;
    if character_set.is_none() {
        create_database(&mut connection, database, grant.charset).await?;
        wrote = true;
    }
    let password = literal(&grant.user.password);
    let statement = if user.is_none() {
        Some(format!("CREATE USER IF NOT EXISTS {account} IDENTIFIED BY {password}"))
    } else if !has_password(server, &grant.user).await? {
        Some(format!("ALTER USER {account} IDENTIFIED BY {password}"))
    } else {
        None
    };
    if let Some(statement) = statement {
        execute(&mut connection, &statement).await.map_err(Failure::without_message)?;
        wrote = true;
    }
    let statement = grant_statement(database);
    let grants = query(&mut connection, &format!("SHOW GRANTS FOR {account}")).await?;
    if !grants.iter().any(|grant| grant.starts_with(&format!("{statement} TO "))) {
        execute(&mut connection, &format!("{statement} TO {account}")).await?;
        wrote = true;
    }
    disconnect(connection).await;
    // An existing database is not changed, since another character set would reinterpret its data.
    let other_charset = character_set.filter(|name| !grant.charset.has_name(name));
    Ok(SqlOutcome { wrote, other_charset })
}

async fn create_database(connection: &mut Conn, database: &str, charset: Charset) -> Result<(), Failure> {
    let charset = charset.name();
    let statement = format!(
        "CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET {charset} COLLATE {charset}_general_ci"
    );
    execute(connection, &statement).await
}

async fn find_database(server: &SqlServer, database: &str) -> Result<bool, Failure> {
    let database = database_name(database)?;
    let mut connection = connect(server, &server.administrator).await?;
    let found = character_set(&mut connection, database).await?;
    disconnect(connection).await;
    Ok(found.is_some())
}

/// Default character set of a database, if it exists.
async fn character_set(connection: &mut Conn, database: &str) -> Result<Option<String>, Failure> {
    let statement = format!(
        "SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {}",
        literal(database)
    );
    Ok(query(connection, &statement).await?.into_iter().next())
}

async fn remove_database(server: &SqlServer, database: &str, claim: &Claim) -> Result<(), Failure> {
    let name = database_name(database)?;
    let resource = Resource { kind: EffectKind::Database, name, claim };
    remove(server, &resource, &format!("DROP DATABASE IF EXISTS `{name}`")).await
}

async fn remove_user(server: &SqlServer, user: &str, claim: &Claim) -> Result<(), Failure> {
    let account = account(user)?;
    let resource = Resource { kind: EffectKind::DatabaseUser, name: user, claim };
    remove(server, &resource, &format!("DROP USER IF EXISTS {account}")).await
}

/// Removes a resource that the claim covers, and then the record of its owner.
async fn remove(server: &SqlServer, resource: &Resource<'_>, statement: &str) -> Result<(), Failure> {
    let mut connection = connect(server, &server.administrator).await?;
    let owner = resource.owner(&mut connection).await?;
    if resource.may_remove(owner.as_deref()) {
        execute(&mut connection, statement).await?;
        if owner.is_some() {
            resource.forget(&mut connection).await?;
        }
    }
    disconnect(connection).await;
    Ok(())
}

/// Name of the user, if it exists.
async fn find_user(connection: &mut Conn, user: &str) -> Result<Option<String>, Failure> {
    let statement = format!("SELECT User FROM mysql.user WHERE User = {} AND Host = '%'", literal(user));
    Ok(query(connection, &statement).await?.into_iter().next())
}

/// Whether the user has this password.
async fn has_password(server: &SqlServer, user: &Login) -> Result<bool, Failure> {
    match connect(server, user).await {
        Ok(connection) => {
            disconnect(connection).await;
            Ok(true)
        }
        Err(Failure::Server { code: ACCESS_DENIED, .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

async fn connect(server: &SqlServer, login: &Login) -> Result<Conn, Failure> {
    let options = options(server, login);
    Ok(timeout(CONNECT_TIMEOUT, Conn::new(options)).await.context(SlowConnectionSnafu)??)
}

fn options(server: &SqlServer, login: &Login) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname(&server.host)
        .tcp_port(server.port)
        .user(Some(&login.username))
        .pass(Some(&login.password))
        // The driver would otherwise switch to the server's Unix socket, which may belong to another container.
        .prefer_socket(false)
        .init(vec![SESSION])
}

async fn execute(connection: &mut Conn, statement: &str) -> Result<(), Failure> {
    let done = connection.query_drop(statement);
    Ok(timeout(STATEMENT_TIMEOUT, done).await.context(SlowStatementSnafu)??)
}

/// The first column of every row.
async fn query(connection: &mut Conn, statement: &str) -> Result<Vec<String>, Failure> {
    let rows = connection.query(statement);
    let rows: Vec<Row> = timeout(STATEMENT_TIMEOUT, rows).await.context(SlowStatementSnafu)??;
    rows.into_iter().map(|mut row| row.take_opt(0).and_then(Result::ok).context(ProtocolSnafu)).collect()
}

/// Failures do not matter, since all statements are done.
async fn disconnect(connection: Conn) {
    if !matches!(timeout(STATEMENT_TIMEOUT, connection.disconnect()).await, Ok(Ok(()))) {
        tracing::debug!("failed to close a database connection cleanly");
    }
}

/// Names are the only text in a statement that is not quoted as a literal.
fn database_name(name: &str) -> Result<&str, Failure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let has_length = (1..=DATABASE_NAME_LENGTH).contains(&name.len());
    ensure!(has_length && name.bytes().all(is_allowed), DatabaseNameSnafu { name });
    Ok(name)
}

/// Account name of a user from any host, for use in statements.
fn account(user: &str) -> Result<String, Failure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let has_length = (1..=USER_NAME_LENGTH).contains(&user.len());
    ensure!(has_length && user.bytes().all(is_allowed), UserNameSnafu { name: user });
    Ok(format!("'{user}'@'%'"))
}

/// The GRANT statement without the account, as the server lists it. An unescaped underscore is a wildcard and would
/// grant privileges on databases with similar names.
fn grant_statement(database: &str) -> String {
    format!("GRANT ALL PRIVILEGES ON `{}`.*", database.replace('_', "\\_"))
}

/// Quotes text for statements that do not support parameters.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        match character {
            '\'' => literal.push_str("''"),
            '\\' => literal.push_str("\\\\"),
            '\0' => literal.push_str("\\0"),
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests;
