//! The part of the OVSDB protocol (JSON-RPC) that a single transaction needs.

use std::time::Duration;

use openstack_operator_engine::ports::PortError;
use serde_json::{Value, json};
use snafu::{OptionExt, ResultExt, Snafu};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Upper bound for all queries of the operator.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Why a transaction failed.
#[derive(Debug, Snafu)]
pub(super) enum Failure {
    #[snafu(display("invalid database address {address}; expected a form like tcp:10.0.0.1:6642"))]
    Address { address: String },
    #[snafu(display("the database has no known member"))]
    NoMembers,
    #[snafu(display("{address} does not answer"))]
    NoResponse { address: String, source: std::io::Error },
    #[snafu(display("{address} did not answer within {} seconds", TIMEOUT.as_secs()))]
    Timeout { address: String },
    #[snafu(display("invalid response from {address}"))]
    InvalidResponse { address: String, source: serde_json::Error },
    #[snafu(display("the response from {address} is too long"))]
    ResponseTooLong { address: String },
    #[snafu(display("{address} rejected the transaction: {reason}"))]
    Rejected { address: String, reason: String },
}

impl Failure {
    pub(super) fn into_port_error(self, action: &str) -> PortError {
        let action = action.to_owned();
        match &self {
            Self::Address { .. } => PortError::Rejected { action, reason: self.to_string() },
            _ => PortError::Unavailable { action, source: Box::new(self) },
        }
    }
}

/// Runs one transaction on the first member that answers, and returns the result of each operation.
pub(super) async fn transact(
    members: &[String],
    database: &str,
    operations: &[Value],
) -> Result<Vec<Value>, Failure> {
    let parameters: Vec<Value> = std::iter::once(json!(database)).chain(operations.iter().cloned()).collect();
    let request = json!({ "id": 0, "method": "transact", "params": parameters }).to_string();
    let mut failure = Failure::NoMembers;
    for address in members {
        let response = timeout(TIMEOUT, send(address, &request)).await;
        match response.unwrap_or_else(|_| TimeoutSnafu { address }.fail()) {
            Ok(results) => return Ok(results),
            // Another member may succeed.
            Err(found) => failure = found,
        }
    }
    Err(failure)
}

async fn send(address: &str, request: &str) -> Result<Vec<Value>, Failure> {
    let socket_address = address.strip_prefix("tcp:").context(AddressSnafu { address })?;
    let mut stream = TcpStream::connect(socket_address).await.context(NoResponseSnafu { address })?;
    stream.write_all(request.as_bytes()).await.context(NoResponseSnafu { address })?;
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await.context(NoResponseSnafu { address })? == 0 {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Failure::NoResponse { address: address.to_owned(), source });
        }
        if received.len() > MAX_RESPONSE_BYTES {
            return ResponseTooLongSnafu { address }.fail();
        }
        for message in serde_json::Deserializer::from_slice(&received).into_iter::<Value>() {
            match message {
                // The server may send echo requests in between.
                Ok(message) if message.get("method").is_some() => {}
                Ok(mut message) => return results(address, &mut message),
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(error).context(InvalidResponseSnafu { address }),
            }
        }
    }
}

/// Results of the operations. A failed one rolls back the transaction; its error is in its place or after the last.
fn results(address: &str, message: &mut Value) -> Result<Vec<Value>, Failure> {
    let reject = |error: &Value| RejectedSnafu { address, reason: error.to_string() }.fail();
    if !message["error"].is_null() {
        return reject(&message["error"]);
    }
    let Value::Array(results) = message["result"].take() else {
        return RejectedSnafu { address, reason: "no results".to_owned() }.fail();
    };
    match results.iter().find(|result| result.get("error").is_some()) {
        Some(failed) => reject(failed),
        None => Ok(results),
    }
}
