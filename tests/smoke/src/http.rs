//! HTTP requests from the host to an address that the host name need not resolve to.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

pub async fn get(address: &str, port: u16, host: &str) -> Result<Answer> {
    let exchange = async { request(TcpStream::connect((address, port)).await?, host).await };
    bounded(exchange, &format!("http://{host} at {address}:{port}")).await
}

/// Like [`get`], over TLS with a certificate for `host` that `roots` have signed.
pub async fn get_tls(address: &str, port: u16, host: &str, roots: RootCertStore) -> Result<Answer> {
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let server = ServerName::try_from(host.to_owned())?;
    let exchange = async {
        let stream = TcpStream::connect((address, port)).await?;
        request(TlsConnector::from(Arc::new(config)).connect(server, stream).await?, host).await
    };
    bounded(exchange, &format!("https://{host} at {address}:{port}")).await
}

async fn bounded(exchange: impl Future<Output = Result<Answer>>, target: &str) -> Result<Answer> {
    timeout(ANSWER, exchange)
        .await
        .with_context(|| format!("no answer within {ANSWER:?}"))
        .flatten()
        .with_context(|| format!("failed to get {target}"))
}

async fn request(stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> Result<Answer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection closes when this block drops its sender.
    let exchange = async move {
        let request = hyper::Request::get("/").header(HOST, host).body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    let (answer, _closed) = tokio::join!(exchange, connection);
    answer
}
