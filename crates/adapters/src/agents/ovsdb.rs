//! The OVSDB protocol, as far as one transaction needs it: JSON values in both directions, one after the other.

use std::time::Duration;

use openstack_operator_engine::ports::PortError;
use serde_json::{Value, json};
use snafu::{OptionExt, ResultExt, Snafu};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(10);
/// No answer that is asked for here is longer.
const LONGEST_ANSWER: usize = 16 << 20;

/// Why a transaction was not made.
#[derive(Debug, Snafu)]
pub(super) enum Failure {
    #[snafu(display("{address} is no address of a database; it must be like tcp:10.0.0.1:6642"))]
    Address { address: String },
    #[snafu(display("no member of the database is known"))]
    Nobody,
    #[snafu(display("{address} does not answer"))]
    Silence { address: String, source: std::io::Error },
    #[snafu(display("{address} did not answer within {} seconds", TIMEOUT.as_secs()))]
    Slow { address: String },
    #[snafu(display("the answer of {address} cannot be read"))]
    Garbled { address: String, source: serde_json::Error },
    #[snafu(display("the answer of {address} is too long"))]
    Long { address: String },
    #[snafu(display("{address} refused: {reason}"))]
    Refused { address: String, reason: String },
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

/// Makes one transaction with the first member that answers, and returns a result for each operation.
pub(super) async fn transact(
    members: &[String],
    database: &str,
    operations: &[Value],
) -> Result<Vec<Value>, Failure> {
    let parameters: Vec<Value> = std::iter::once(json!(database)).chain(operations.iter().cloned()).collect();
    let request = json!({ "id": 0, "method": "transact", "params": parameters }).to_string();
    let mut failure = Failure::Nobody;
    for address in members {
        let asked = timeout(TIMEOUT, ask(address, &request)).await;
        match asked.unwrap_or_else(|_| SlowSnafu { address }.fail()) {
            Ok(results) => return Ok(results),
            // Another member may be better off.
            Err(found) => failure = found,
        }
    }
    Err(failure)
}

async fn ask(address: &str, request: &str) -> Result<Vec<Value>, Failure> {
    let place = address.strip_prefix("tcp:").context(AddressSnafu { address })?;
    let mut stream = TcpStream::connect(place).await.context(SilenceSnafu { address })?;
    stream.write_all(request.as_bytes()).await.context(SilenceSnafu { address })?;
    let mut received = Vec::new();
    loop {
        if stream.read_buf(&mut received).await.context(SilenceSnafu { address })? == 0 {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Failure::Silence { address: address.to_owned(), source });
        }
        if received.len() > LONGEST_ANSWER {
            return LongSnafu { address }.fail();
        }
        for message in serde_json::Deserializer::from_slice(&received).into_iter::<Value>() {
            match message {
                // The server may ask in between whether anybody is still there.
                Ok(message) if message.get("method").is_some() => {}
                Ok(mut message) => return results(address, &mut message),
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(error).context(GarbledSnafu { address }),
            }
        }
    }
}

/// What each operation gave. One that failed undoes them all, and is told in its place or after the last.
fn results(address: &str, message: &mut Value) -> Result<Vec<Value>, Failure> {
    let refusal = |error: &Value| RefusedSnafu { address, reason: error.to_string() }.fail();
    if !message["error"].is_null() {
        return refusal(&message["error"]);
    }
    let Value::Array(results) = message["result"].take() else {
        return RefusedSnafu { address, reason: "no results".to_owned() }.fail();
    };
    match results.iter().find(|result| result.get("error").is_some()) {
        Some(failed) => refusal(failed),
        None => Ok(results),
    }
}
