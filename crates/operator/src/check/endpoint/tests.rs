//! Probes of small servers, and findings from their results.

use std::sync::Arc;

use openstack_operator_services::of_kind;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::super::Verdict::{Failed, Passed, Warning};
use super::super::{Finding, Verdict};
use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn target(url: &str) -> Target {
    Target { url: Url::parse(url).unwrap(), object: "Keystone n/k".to_owned(), is_catalog: true }
}

fn probe_of(addresses: Result<Vec<IpAddr>, String>, answer: Option<Result<u16, String>>) -> Probe {
    Probe { target: target("https://keystone.example/v3"), addresses, answer, certificate: None }
}

fn found(probe: Probe) -> (Verdict, String) {
    let mut findings = Findings::new("Endpoints");
    check(&[probe], &mut findings);
    let Finding { verdict, message, .. } = findings.into_list().remove(0);
    (verdict, message)
}

#[test]
fn endpoints_behind_routes_are_probed_and_internal_ones_are_not() {
    let object = |kind: &str, endpoint: &str| {
        let key =
            Key { kind: of_kind(kind).unwrap().kind(), namespace: "n".to_owned(), name: "x".to_owned() };
        let object = json!({ "metadata": { "name": "x" }, "status": { "endpoint": endpoint } });
        (key, serde_json::from_value(object).unwrap())
    };
    let objects = [
        object("Keystone", "http://keystone.example/v3"),
        object("Placement", "http://x.n.svc.cluster.local:8778"),
        object("OpenStackControlPlane", "http://keystone.example/v3"),
    ];
    let route = |name: &str| {
        json!({ "metadata": { "name": name, "namespace": "n" },
                                     "spec": { "hostnames": [format!("{name}.example")] } })
    };
    let targets = targets(&objects, &[route("keystone"), route("console")]);
    let found: Vec<(&str, &str)> =
        targets.iter().map(|target| (target.url.as_str(), target.object.as_str())).collect();
    assert_eq!(
        found,
        [("http://keystone.example/v3", "Keystone n/x"), ("http://console.example/", "HTTPRoute n/console")]
    );
}

#[test]
fn a_name_that_does_not_resolve_and_a_server_that_does_not_answer_fail() {
    let address = || Ok(vec!["192.0.2.1".parse().unwrap()]);
    let unresolved = found(probe_of(Err("Name or service not known".to_owned()), None));
    assert_eq!(unresolved.0, Failed);
    assert!(unresolved.1.contains("keystone.example does not resolve"), "{}", unresolved.1);
    let silent = found(probe_of(address(), Some(Err("connection refused".to_owned()))));
    assert_eq!(silent.0, Failed);
    assert!(silent.1.contains("does not answer at 192.0.2.1: connection refused"), "{}", silent.1);
    for (status, verdict) in [(200, Passed), (300, Passed), (401, Passed), (404, Warning), (503, Failed)] {
        assert_eq!(found(probe_of(address(), Some(Ok(status)))).0, verdict, "{status}");
    }
}

#[test]
fn a_certificate_is_reported_before_it_expires() {
    let verdict = |expires: &str, trust: Trust| {
        let certificate = Some(Certificate { expires: expires.parse().unwrap(), trust });
        let mut findings = Findings::new("Certificates");
        check_certificates(&[Probe { certificate, ..probe_of(Ok(Vec::new()), None) }], now(), &mut findings);
        let Finding { verdict, message, .. } = findings.into_list().remove(0);
        (verdict, message)
    };
    assert_eq!(
        verdict("2026-03-01T00:00:00Z", Trust::Trusted),
        (Passed, "the certificate of keystone.example expires in 59 days".to_owned())
    );
    assert_eq!(
        verdict("2026-01-08T12:00:00Z", Trust::Trusted).1,
        "the certificate of keystone.example expires in 7 days"
    );
    assert_eq!(verdict("2026-01-08T12:00:00Z", Trust::Trusted).0, Warning);
    assert_eq!(verdict("2026-03-01T00:00:00Z", Trust::Untrusted).0, Warning);
    assert_eq!(
        verdict("2025-12-30T00:00:00Z", Trust::Trusted),
        (Failed, "the certificate of keystone.example expired 2 days ago".to_owned())
    );
}

#[tokio::test]
async fn a_probe_reads_the_status_and_the_certificate_of_a_server_that_is_not_trusted() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2031, 5, 6);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 300 Multiple Choices\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let probe = probe_all(vec![target(&format!("https://localhost:{port}/v3"))], None).await.remove(0);
    assert_eq!(probe.answer, Some(Ok(300)));
    let expires = "2031-05-06T00:00:00Z".parse().unwrap();
    assert_eq!(probe.certificate, Some(Certificate { expires, trust: Trust::Untrusted }));
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_not_requested() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let probe = probe_all(vec![target("http://keystone.invalid/v3")], None).await.remove(0);
    assert!(probe.addresses.is_err() && probe.answer.is_none(), "{probe:?}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_requested_at_the_gateway() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    let targets = vec![target(&format!("http://keystone.invalid:{port}/v3"))];
    let probe = probe_all(targets, Some("127.0.0.1".parse().unwrap())).await.remove(0);
    assert_eq!(probe.answer, Some(Ok(200)));
    let (verdict, message) = found(probe);
    assert_eq!(verdict, Warning);
    assert!(
        message.contains("answers at the Gateway's address, but keystone.invalid does not resolve"),
        "{message}"
    );
}
