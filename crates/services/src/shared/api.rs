//! What all HTTP APIs have in common: uWSGI, probes, policies, and ways in.

use std::collections::BTreeMap;

use openstack_operator_model::common::{Common, Exposure};
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Check, Container, Mount, Port, Probes, Route};
use openstack_operator_model::service::Invalid;

use super::{command, file, probe};

/// What uWSGI runs, and how.
pub(crate) struct Uwsgi {
    pub(crate) module: &'static str,
    /// Few, since pods are what is scaled.
    pub(crate) processes: u32,
    /// How long a request may take, in seconds; 0 for as long as it takes.
    pub(crate) longest_request: u32,
    /// How large a chunk of an upload may be, in bytes, where clients send larger ones than uWSGI's 1 MiB.
    pub(crate) largest_chunk: Option<u32>,
}

impl Uwsgi {
    pub(crate) fn new(module: &'static str) -> Self {
        Self { module, processes: 1, longest_request: 60, largest_chunk: None }
    }
}

/// Settings of uWSGI that fit every image family.
pub(crate) fn uwsgi(uwsgi: &Uwsgi, port: &Port, common: &Common) -> String {
    let mut document = Document::new()
        .section_of(
            "uwsgi",
            [
                ("master", "true"),
                ("threads", "1"),
                ("lazy-apps", "true"),
                ("enable-threads", "true"),
                ("need-app", "true"),
                ("die-on-term", "true"),
                ("thunder-lock", "true"),
                ("buffer-size", "65535"),
                ("add-header", "Connection: close"),
                ("start-time", "%t"),
                ("worker-reload-mercy", "60"),
            ],
        )
        .set("uwsgi", "module", uwsgi.module)
        .set("uwsgi", "processes", uwsgi.processes)
        .set("uwsgi", "http-socket", format!("0.0.0.0:{}", port.number));
    if uwsgi.longest_request > 0 {
        document = document.set("uwsgi", "harakiri", uwsgi.longest_request);
    }
    if let Some(bytes) = uwsgi.largest_chunk {
        document = document.set("uwsgi", "chunked-input-limit", bytes);
    }
    let document = document.merge(common.extra_config.get("uwsgi.ini"));
    // Debian's uWSGI knows no Python before this line, so it must come first.
    document.render().replacen("[uwsgi]\n", "[uwsgi]\nplugins = python3\n", 1)
}

/// Makes a container one that serves HTTP under a port.
pub(crate) fn serving(mut container: Container, port: Port, health: &'static str) -> Container {
    let healthy = || Check::Http { path: health, port: port.number };
    container.probes = Probes {
        startup: Some(probe(healthy(), 2, 5, 150)),
        readiness: Some(probe(healthy(), 10, 10, 3)),
        // One process may be busy for long while the database is slow: only a dead one is killed.
        liveness: Some(probe(Check::Connect { port: port.number }, 20, 10, 6)),
    };
    container.ports = vec![port];
    // Time for clients to learn that this pod goes.
    container.before_stop = Some(command(["sleep", "5"]));
    container
}

/// Routes for an API that is exposed.
pub(crate) fn routes(exposure: &Exposure, port: u16) -> Result<Vec<Route>, Invalid> {
    match (&exposure.gateway_ref, &exposure.public_hostname) {
        (None, _) => Ok(Vec::new()),
        (Some(gateway), Some(hostname)) => {
            Ok(vec![Route { hostname: hostname.clone(), gateway: gateway.clone(), suffix: None, port }])
        }
        (Some(_), None) => Err(Invalid::new(
            "spec.publicHostname",
            "is missing: a gatewayRef needs the name under which the API is reached",
        )),
    }
}

/// Address of an API for clients outside, or none where it is not exposed.
pub(crate) fn public_url(exposure: &Exposure) -> Option<String> {
    exposure.gateway_ref.as_ref()?;
    let hostname = exposure.public_hostname.as_ref()?;
    Some(format!("{}://{hostname}", exposure.public_scheme.unwrap_or_default().name()))
}

/// Where a service reads the policy rules that win over its own.
pub(crate) fn policy_mount(exposure: &Exposure, service: &str) -> Option<Mount> {
    (!exposure.policy.is_empty()).then(|| file("policy.yaml", &format!("/etc/{service}/policy.yaml")))
}

/// Policy rules that win over a service's own, as the file that the service reads, and the setting that names it.
pub(crate) fn policy(
    document: Document,
    files: &mut BTreeMap<String, String>,
    exposure: &Exposure,
) -> Document {
    if exposure.policy.is_empty() {
        return document;
    }
    // As JSON, which is YAML whatever a rule holds.
    let text = |text: &String| serde_json::Value::String(text.clone());
    let rules = exposure.policy.iter().map(|(rule, check)| format!("{}: {}\n", text(rule), text(check)));
    files.insert("policy.yaml".to_owned(), rules.collect());
    document.set("oslo_policy", "policy_file", "policy.yaml")
}
