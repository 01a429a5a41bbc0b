//! The part of the `MySQL` protocol that the adapter uses.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::testing::OWNER;

/// State of the fake server.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// Character set of the database, if it exists.
    pub(super) character_set: Option<&'static str>,
    /// The user, if it exists.
    pub(super) user: Option<&'static str>,
    pub(super) grant: &'static str,
    /// Owner of the database and of the user.
    pub(super) owner: Option<&'static str>,
    /// The table of owners exists only after it is created.
    pub(super) missing_table: bool,
    /// User whose login is denied.
    pub(super) denied_user: Option<&'static str>,
    /// Rejects every write with an error that quotes it.
    pub(super) rejects_writes: bool,
}

impl Default for Facts {
    fn default() -> Self {
        let grant = "GRANT USAGE ON *.* TO `cloud-api`@`%`";
        Self {
            character_set: None,
            user: None,
            grant,
            owner: None,
            missing_table: false,
            denied_user: None,
            rejects_writes: false,
        }
    }
}

impl Facts {
    /// Database, user and privileges exist and have an owner.
    pub(super) fn complete() -> Self {
        let grant = r"GRANT ALL PRIVILEGES ON `cloud\_api`.* TO `cloud-api`@`%`";
        let (character_set, user) = (Some("utf8mb3"), Some("cloud-api"));
        Self { character_set, user, grant, owner: Some(OWNER), ..Self::default() }
    }
}

pub(super) struct FakeServer {
    pub(super) port: u16,
    statements: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    pub(super) async fn start(facts: Facts) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let statements = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&statements);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (facts, received) = (facts, Arc::clone(&received));
                tokio::spawn(async move { Peer { stream, sequence: 0, facts, received }.serve().await });
            }
        });
        Ok(Self { port, statements })
    }

    /// Statements that change something, apart from the session's own settings.
    pub(super) fn writes(&self) -> Vec<String> {
        let statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.iter().filter(|statement| is_write(statement)).cloned().collect()
    }
}

fn is_write(statement: &str) -> bool {
    !["SELECT", "SHOW", "SET"].iter().any(|verb| statement.starts_with(verb))
}

struct Peer {
    stream: TcpStream,
    sequence: u8,
    facts: Facts,
    received: Arc<Mutex<Vec<String>>>,
}

const COMMAND_QUERY: u8 = 3;
/// Long passwords, the protocol of version 4.1, secure passwords.
const CAPABILITIES: u16 = 0x8201;
const UTF8: u8 = 33;
/// Offset of the username in the handshake response.
const NAME_OFFSET: usize = 32;
const GREETING_SCRAMBLE: &[u8] = b"12345678901234567890";

impl Peer {
    async fn serve(mut self) -> std::io::Result<()> {
        self.greet().await?;
        let handshake = self.read().await?;
        let name = handshake[NAME_OFFSET..].split(|byte| *byte == 0).next().unwrap_or_default();
        if self.facts.denied_user.is_some_and(|denied| denied.as_bytes() == name) {
            return self.error(1045, "Access denied").await;
        }
        self.ok().await?;
        loop {
            let command = self.read().await?;
            let Some((&COMMAND_QUERY, statement)) = command.split_first() else {
                return Ok(());
            };
            let statement = String::from_utf8_lossy(statement).into_owned();
            self.received.lock().unwrap_or_else(PoisonError::into_inner).push(statement.clone());
            self.answer(&statement).await?;
        }
    }

    async fn answer(&mut self, statement: &str) -> std::io::Result<()> {
        let facts = self.facts;
        let is_created = || {
            let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            received.iter().any(|statement| statement.starts_with("CREATE TABLE"))
        };
        let uses_owners = statement.contains("`owners`") && !statement.starts_with("CREATE");
        if uses_owners && facts.missing_table && !is_created() {
            self.error(1146, "Table 'openstack_operator.owners' doesn't exist").await
        } else if statement.starts_with("SELECT owner") {
            self.rows(1, facts.owner.as_slice()).await
        } else if statement.contains("information_schema.SCHEMATA") {
            self.rows(1, facts.character_set.as_slice()).await
        } else if statement.contains("mysql.user") {
            self.rows(1, facts.user.as_slice()).await
        } else if statement.starts_with("SHOW GRANTS") {
            self.rows(1, &["GRANT USAGE ON *.* TO `cloud-api`@`%`", facts.grant]).await
        } else if statement.starts_with("SELECT") {
            // Settings that the driver reads when it connects: sizes and timeouts.
            let columns = statement.matches("@@").count();
            self.rows(columns, &vec!["1048576"; columns]).await
        } else if is_write(statement) && facts.rejects_writes {
            self.error(1064, &format!("You have an error in your SQL syntax near '{statement}'")).await
        } else {
            self.ok().await
        }
    }

    async fn greet(&mut self) -> std::io::Result<()> {
        let mut packet = vec![10];
        packet.extend(b"11.8.2-MariaDB\0");
        packet.extend(1_u32.to_le_bytes());
        packet.extend(&GREETING_SCRAMBLE[..8]);
        packet.push(0);
        packet.extend(CAPABILITIES.to_le_bytes());
        packet.push(UTF8);
        packet.extend(2_u16.to_le_bytes());
        packet.extend(0_u16.to_le_bytes());
        packet.extend([0; 11]);
        packet.extend(&GREETING_SCRAMBLE[8..]);
        packet.push(0);
        self.write(&packet).await
    }

    async fn rows(&mut self, columns: usize, values: &[&str]) -> std::io::Result<()> {
        self.write(&[length(columns)]).await?;
        for _ in 0..columns {
            let mut column = b"\x03def\0\0\0\x01c\0\x0c".to_vec();
            column.extend([UTF8, 0, 0, 4, 0, 0, 0xfd, 0, 0, 0, 0, 0]);
            self.write(&column).await?;
        }
        self.end().await?;
        for row in values.chunks(columns.max(1)) {
            let row: Vec<u8> =
                row.iter().flat_map(|value| [&[length(value.len())], value.as_bytes()].concat()).collect();
            self.write(&row).await?;
        }
        self.end().await
    }

    async fn ok(&mut self) -> std::io::Result<()> {
        self.write(&[0, 0, 0, 2, 0, 0, 0]).await
    }

    async fn end(&mut self) -> std::io::Result<()> {
        self.write(&[0xfe, 0, 0, 2, 0]).await
    }

    async fn error(&mut self, code: u16, message: &str) -> std::io::Result<()> {
        let packet = [&[0xff], code.to_le_bytes().as_slice(), b"#42000", message.as_bytes()].concat();
        self.write(&packet).await
    }

    async fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await?;
        let mut packet = vec![0; usize::from(u16::from_le_bytes([header[0], header[1]]))];
        self.stream.read_exact(&mut packet).await?;
        self.sequence = header[3].wrapping_add(1);
        Ok(packet)
    }

    async fn write(&mut self, packet: &[u8]) -> std::io::Result<()> {
        let header = [length(packet.len()), 0, 0, self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&[&header, packet].concat()).await
    }
}

/// All packets here fit one length byte.
fn length(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}
