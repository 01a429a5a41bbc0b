//! DNS queries from the host to a chosen server, which the host's resolver does not support.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const ANSWER: Duration = Duration::from_secs(5);
const IDENTIFIER: u16 = 0x5eed;
const HEADER: usize = 12;
/// Type A, class IN.
const ADDRESS_QUESTION: [u8; 4] = [0, 1, 0, 1];

/// The IPv4 addresses of a name.
pub(crate) async fn resolve(server: &str, name: &str) -> Result<Vec<Ipv4Addr>> {
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect((server, 53)).await?;
    socket.send(&question(name)?).await?;
    let mut packet = [0; 512];
    let length = timeout(ANSWER, socket.recv(&mut packet))
        .await
        .with_context(|| format!("{server} did not answer within {ANSWER:?}"))??;
    addresses(&packet[..length]).with_context(|| format!("{server} answered the question for {name}"))
}

fn question(name: &str) -> Result<Vec<u8>> {
    let mut packet = IDENTIFIER.to_be_bytes().to_vec();
    // Recursion desired; one question, no records.
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        packet.push(u8::try_from(label.len())?);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(ADDRESS_QUESTION);
    Ok(packet)
}

fn addresses(packet: &[u8]) -> Result<Vec<Ipv4Addr>> {
    let number = |at| number(packet, at);
    ensure!(number(0)? == IDENTIFIER, "with another question's answer");
    let code = number(2)? & 0xf;
    ensure!(code == 0, "with error {code}");
    let mut at = end_of_name(packet, HEADER)? + ADDRESS_QUESTION.len();
    let mut found = Vec::new();
    for _ in 0..number(6)? {
        // A record: name, type, class, lifetime of four bytes, length, data.
        let fixed = end_of_name(packet, at)?;
        let length = usize::from(number(fixed + 8)?);
        let data = packet.get(fixed + 10..fixed + 10 + length).context("with a packet cut short")?;
        if let ([0, 1, 0, 1, ..], &[a, b, c, d]) = (&packet[fixed..], data) {
            found.push(Ipv4Addr::new(a, b, c, d));
        }
        at = fixed + 10 + length;
    }
    Ok(found)
}

fn number(packet: &[u8], at: usize) -> Result<u16> {
    let bytes = packet.get(at..at + 2).context("with a packet cut short")?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A name is a sequence of labels that ends with an empty label or a two-byte pointer to an earlier name.
fn end_of_name(packet: &[u8], mut at: usize) -> Result<usize> {
    loop {
        match *packet.get(at).context("with a packet cut short")? {
            0 => return Ok(at + 1),
            length if length >= 0xc0 => return Ok(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[test]
fn answer_is_read_past_other_records() -> Result<()> {
    let mut packet = question("a.example")?;
    packet[7] = 2;
    packet.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x1e\0\x04\x01b\xc0\x0e");
    packet.extend(b"\x01b\xc0\x0e\0\x01\0\x01\0\0\0\x1e\0\x04\x0a\0\0\x07");
    assert_eq!(addresses(&packet)?, [Ipv4Addr::new(10, 0, 0, 7)]);
    assert!(addresses(&packet[..packet.len() - 1]).is_err());
    Ok(())
}
