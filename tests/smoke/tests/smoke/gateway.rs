//! The host reaches an `HTTPRoute` of the cloud's Gateway by its host name, with and without TLS.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Resource};
use openstack_operator_smoke::http::{self, Answer};
use openstack_operator_smoke::pod::{answering, service};
use openstack_operator_smoke::wait::{await_condition, eventually};
use openstack_operator_smoke::{PodSecurity, Sandbox, with_namespace};
use serde_json::{Value, json};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

/// Namespace of the Gateway and of the routes that its listeners accept.
const NAMESPACE: &str = "openstack";
const GATEWAY: &str = "openstack-gateway";
const ROUTE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_route_serves_its_host_name() -> Result<()> {
    with_namespace("gateway", PodSecurity::Restricted, async |sandbox| {
        let gateway = Gateway::read(sandbox).await?;
        sandbox.start("backend", answering(sandbox.image("base")?)).await?;
        sandbox.create(&service("backend")).await?;
        let host = format!("{}.{}", sandbox.namespace, gateway.domain);
        create_route(sandbox, &host).await?;

        let stranger = format!("not-{host}");
        for scheme in [Scheme::Http, Scheme::Https] {
            eventually("the route to answer", ROUTE, async || {
                let answer = gateway.get(scheme, &host).await?;
                let expected = Answer { status: 200, body: "backend".to_owned() };
                ensure!(answer == expected, "{host} answers {answer:?} by {scheme:?}");
                Ok(())
            })
            .await?;
            let answer = gateway.get(scheme, &stranger).await?;
            ensure!(answer.status == 404, "{stranger} has no route, but answers {answer:?} by {scheme:?}");
        }
        Ok(())
    })
    .await
}

/// The route is in the Gateway's namespace and its backend in the test's, which grants the reference.
async fn create_route(sandbox: &Sandbox, host: &str) -> Result<()> {
    let grant = json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": NAMESPACE}],
        "to": [{"group": "", "kind": "Service"}],
    });
    create(sandbox, "v1beta1", "ReferenceGrant", &sandbox.namespace, json!({"spec": grant})).await?;
    let route = json!({
        "parentRefs": [{"name": GATEWAY}],
        "hostnames": [host],
        "rules": [{"backendRefs": [{"name": "backend", "namespace": sandbox.namespace, "port": 80}]}],
    });
    create(sandbox, "v1", "HTTPRoute", NAMESPACE, json!({"spec": route})).await?;
    let routes = api(sandbox, "v1", "HTTPRoute", NAMESPACE);
    let is_accepted = |route: &DynamicObject| {
        ["Accepted", "ResolvedRefs"].iter().all(|condition| has_condition(route, condition))
    };
    await_condition(&routes, &sandbox.namespace, "to be accepted", ROUTE, is_accepted).await.map(drop)
}

fn has_condition(route: &DynamicObject, name: &str) -> bool {
    let parents = route.data["status"]["parents"].as_array();
    let mut conditions =
        parents.into_iter().flatten().filter_map(|parent| parent["conditions"].as_array()).flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Objects have the name of the test's namespace, which owns them: they are deleted with it.
async fn create(sandbox: &Sandbox, version: &str, kind: &str, namespace: &str, data: Value) -> Result<()> {
    let mut object = DynamicObject::new(&sandbox.namespace, &resource(version, kind)).data(data);
    object.metadata.owner_references = sandbox.root.owner_ref(&()).map(|owner| vec![owner]);
    let created = api(sandbox, version, kind, namespace).create(&PostParams::default(), &object).await;
    created.with_context(|| format!("failed to create {kind} in namespace {namespace}")).map(drop)
}

fn api(sandbox: &Sandbox, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(sandbox.client.clone(), namespace, &resource(version, kind))
}

fn resource(version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", version, kind))
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    Http,
    Https,
}

/// Addresses and certificates for clients of the Gateway.
struct Gateway {
    address: String,
    http_port: u16,
    https_port: u16,
    roots: RootCertStore,
    /// The domain of the certificate's wildcard.
    domain: String,
}

impl Gateway {
    async fn read(sandbox: &Sandbox) -> Result<Self> {
        let gateways = api(sandbox, "v1", "Gateway", NAMESPACE);
        let gateway =
            gateways.get(GATEWAY).await.with_context(|| format!("failed to read Gateway {GATEWAY}"))?;
        let listener = |protocol: &str| {
            let listeners = gateway.data["spec"]["listeners"].as_array();
            let found = listeners.into_iter().flatten().find(|listener| listener["protocol"] == protocol);
            found.with_context(|| format!("Gateway {GATEWAY} has no {protocol} listener"))
        };
        let https = listener("HTTPS")?;
        let reference = &https["tls"]["certificateRefs"][0];
        let secret = reference["name"].as_str().context("the HTTPS listener refers to no certificate")?;
        let namespace = reference["namespace"].as_str().unwrap_or(NAMESPACE);
        let secret = Api::<Secret>::namespaced(sandbox.client.clone(), namespace)
            .get(secret)
            .await
            .with_context(|| format!("failed to read Secret {secret} in namespace {namespace}"))?;
        let known = gateway.data["status"]["addresses"][0]["value"].as_str().map(str::to_owned);
        Ok(Self {
            address: sandbox
                .environment
                .gateway_address
                .clone()
                .or(known)
                .context("the Gateway has no address")?,
            http_port: port(listener("HTTP")?)?,
            https_port: port(https)?,
            roots: roots(&secret)?,
            domain: wildcard_domain(&secret)?,
        })
    }

    async fn get(&self, scheme: Scheme, host: &str) -> Result<Answer> {
        match scheme {
            Scheme::Http => http::get(&self.address, self.http_port, host).await,
            Scheme::Https => http::get_tls(&self.address, self.https_port, host, self.roots.clone()).await,
        }
    }
}

fn port(listener: &Value) -> Result<u16> {
    let port = listener["port"].as_u64().and_then(|port| port.try_into().ok());
    port.with_context(|| format!("listener {} has no port", listener["name"]))
}

/// The authority in the Secret, or the certificate itself if it is self-signed.
fn roots(secret: &Secret) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(secret, "ca.crt").or_else(|_| certificates(secret, "tls.crt"))? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn wildcard_domain(secret: &Secret) -> Result<String> {
    let chain = certificates(secret, "tls.crt")?;
    let certificate = chain.first().context("tls.crt holds no certificate")?;
    let certificate = webpki::EndEntityCert::try_from(certificate).context("failed to parse tls.crt")?;
    let domain = certificate.valid_dns_names().find_map(|name| name.strip_prefix("*."));
    Ok(domain.context("the Gateway's certificate covers no wildcard name")?.to_owned())
}

fn certificates(secret: &Secret, key: &str) -> Result<Vec<CertificateDer<'static>>> {
    let text = secret.data.as_ref().and_then(|data| data.get(key));
    let text = text.with_context(|| format!("the Gateway's Secret has no {key}"))?;
    CertificateDer::pem_slice_iter(&text.0)
        .collect::<Result<_, _>>()
        .with_context(|| format!("failed to read {key}"))
}
