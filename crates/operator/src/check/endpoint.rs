//! Public endpoints: whether their names resolve, whether they answer, and how long their certificates are valid.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use futures::future::join_all;
use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_engine::engine::Key;
use reqwest::redirect::Policy;
use reqwest::tls::TlsInfo;
use reqwest::{Client, Response, Url};
use serde_json::Value;
use tokio::net::lookup_host;
use tokio::time::timeout;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::answer::TIMEOUT;
use super::{Findings, items, text};
use crate::output;

/// A certificate that is valid for less than this many days is reported.
const RENEWAL_DAYS: i64 = 14;
const SECONDS_PER_DAY: i64 = 86400;

/// A URL to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: Url,
    /// The object behind it.
    pub(crate) object: String,
    /// Whether the URL itself is in the catalog; otherwise only its host is known, from a route.
    pub(crate) is_catalog: bool,
}

/// The result of probing a URL.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) target: Target,
    pub(crate) addresses: Result<Vec<IpAddr>, String>,
    /// The HTTP status, from the Gateway's address if the name does not resolve.
    pub(crate) answer: Option<Result<u16, String>>,
    pub(crate) certificate: Option<Certificate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) expires: Timestamp,
    pub(crate) trust: Trust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Trusted,
    /// This machine does not trust the issuer, or the certificate is for another name.
    Untrusted,
}

/// Every URL behind a route: endpoints of objects, and hosts of routes that no endpoint names.
pub(crate) fn targets(objects: &[(Key, DynamicObject)], routes: &[Value]) -> Vec<Target> {
    let mut hosts: BTreeMap<&str, String> = BTreeMap::new();
    for route in routes {
        let title =
            format!("HTTPRoute {}/{}", text(route, "/metadata/namespace"), text(route, "/metadata/name"));
        hosts.extend(
            items(route, "/spec/hostnames").filter_map(Value::as_str).map(|host| (host, title.clone())),
        );
    }
    let mut seen = BTreeSet::new();
    let mut targets = Vec::new();
    for (key, object) in objects {
        let endpoint = object.data.pointer("/status/endpoint").and_then(Value::as_str);
        let Some(url) = endpoint.and_then(|endpoint| Url::parse(endpoint).ok()) else { continue };
        let host = url.host_str().unwrap_or_default().to_owned();
        if hosts.contains_key(host.as_str()) && seen.insert(host) {
            targets.push(Target { url, object: key.to_string(), is_catalog: true });
        }
    }
    // Routes do not say whether the Gateway ends TLS for them; endpoints of the same cloud do.
    let scheme = targets.first().map_or("https", |target| target.url.scheme()).to_owned();
    for (host, title) in hosts.into_iter().filter(|(host, _)| !seen.contains(*host)) {
        if let Ok(url) = Url::parse(&format!("{scheme}://{host}/")) {
            targets.push(Target { url, object: title, is_catalog: false });
        }
    }
    targets
}

/// Probes all targets at once. Names that do not resolve are requested at the address of the Gateway, if it is known.
pub(crate) async fn probe_all(targets: Vec<Target>, gateway: Option<IpAddr>) -> Vec<Probe> {
    let found = join_all(targets.iter().map(|target| lookup(&target.url))).await;
    let unresolved = targets.iter().zip(&found).filter(|(_, addresses)| addresses.is_err());
    let hosts = unresolved.filter_map(|(target, _)| target.url.host_str());
    let overrides: Vec<(&str, SocketAddr)> = match gateway {
        Some(address) => hosts.map(|host| (host, SocketAddr::from((address, 0)))).collect(),
        None => Vec::new(),
    };
    let clients = Clients::new(&overrides);
    let is_known = |addresses: &Result<Vec<IpAddr>, String>| addresses.is_ok() || gateway.is_some();
    join_all(targets.into_iter().zip(found).map(async |(target, addresses)| {
        let can_be_requested = is_known(&addresses);
        let probe = Probe { target, addresses, answer: None, certificate: None };
        if can_be_requested { probe.request(&clients).await } else { probe }
    }))
    .await
}

async fn lookup(url: &Url) -> Result<Vec<IpAddr>, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    match timeout(TIMEOUT, lookup_host((host, port))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

struct Clients {
    /// Verifies certificates with the trust store of this machine; none if the store is empty.
    verifying: Option<Client>,
    /// Accepts any certificate, to read when it expires. No credentials are sent.
    accepting: Option<Client>,
}

impl Clients {
    fn new(overrides: &[(&str, SocketAddr)]) -> Self {
        let builder = || {
            let plain = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).tls_info(true);
            overrides.iter().fold(plain, |builder, (host, address)| builder.resolve(host, *address))
        };
        Self {
            verifying: builder().build().ok(),
            accepting: builder().tls_danger_accept_invalid_certs(true).build().ok(),
        }
    }
}

async fn request(client: Option<&Client>, url: &Url) -> Result<Response, String> {
    let client =
        client.ok_or("no HTTP client can be set up: this machine trusts no certificate authority")?;
    client.get(url.clone()).send().await.map_err(|error| output::chain(&error.without_url()))
}

impl Probe {
    async fn request(mut self, clients: &Clients) -> Self {
        let verified = request(clients.verifying.as_ref(), &self.target.url).await;
        match verified {
            Ok(response) => self.read(&response, Trust::Trusted),
            Err(error) if self.target.url.scheme() == "https" => {
                match request(clients.accepting.as_ref(), &self.target.url).await {
                    Ok(response) => self.read(&response, Trust::Untrusted),
                    Err(_) => self.answer = Some(Err(error)),
                }
            }
            Err(error) => self.answer = Some(Err(error)),
        }
        self
    }

    fn read(&mut self, response: &Response, trust: Trust) {
        self.answer = Some(Ok(response.status().as_u16()));
        let certificate = response.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
        self.certificate = certificate.and_then(expiry).map(|expires| Certificate { expires, trust });
    }
}

fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Whether endpoints resolve and answer.
pub(super) fn check(probes: &[Probe], findings: &mut Findings) {
    if probes.is_empty() {
        findings.add(
            super::Verdict::Passed,
            "the cloud has no public endpoints",
            Some("set spec.gatewayRef to publish its APIs".to_owned()),
        );
    }
    for probe in probes {
        let Target { url, object, is_catalog } = &probe.target;
        let host = url.host_str().unwrap_or_default();
        match (&probe.addresses, &probe.answer) {
            (Err(reason), Some(Ok(status))) if *status < 500 => findings.warn(
                format!("{url} ({object}) answers at the Gateway's address, but {host} does not resolve here: {reason}"),
                format!("create a DNS record for {host}, or add it to /etc/hosts"),
            ),
            (Err(reason), _) => findings.fail(
                format!("{url} ({object}): {host} does not resolve: {reason}"),
                format!(
                    "create a DNS record for {host} with the address of the Gateway, or add it to /etc/hosts"
                ),
            ),
            (Ok(_), Some(Ok(status))) if *status >= 500 => findings.fail(
                format!("{url} ({object}) answers with HTTP {status}"),
                "look at the pods of the service, and at the logs of the Gateway controller",
            ),
            (Ok(_), Some(Ok(404))) if *is_catalog => findings.warn(
                format!("{url} ({object}) answers with HTTP 404"),
                "another server may own the address that the name resolves to",
            ),
            (Ok(_), Some(Ok(status))) => {
                findings.pass(format!("{url} ({object}) answers with HTTP {status}"));
            }
            (Ok(addresses), Some(Err(reason))) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                findings.fail(
                    format!("{url} ({object}) does not answer at {}: {reason}", addresses.join(", ")),
                    "check that this machine can reach the Gateway: its address, firewalls and proxies",
                );
            }
            (Ok(_), None) => {}
        }
    }
}

/// Whether certificates are trusted and valid for long enough.
pub(super) fn check_certificates(probes: &[Probe], now: Timestamp, findings: &mut Findings) {
    for probe in probes {
        let Some(certificate) = probe.certificate else { continue };
        let host = probe.target.url.host_str().unwrap_or_default();
        let days = (certificate.expires.as_second() - now.as_second()).div_euclid(SECONDS_PER_DAY);
        let renew = "renew it in the Secret that the listener of the Gateway names";
        if days < 0 {
            findings.fail(format!("the certificate of {host} expired {} days ago", -days), renew);
        } else if days < RENEWAL_DAYS {
            findings.warn(format!("the certificate of {host} expires in {days} days"), renew);
        } else if certificate.trust == Trust::Untrusted {
            findings.warn(
                format!("this machine does not trust the certificate of {host} (it expires in {days} days)"),
                "clients need its certificate authority: cacert in clouds.yaml, or the trust store of the machine",
            );
        } else {
            findings.pass(format!("the certificate of {host} expires in {days} days"));
        }
    }
}

#[cfg(test)]
mod tests;
