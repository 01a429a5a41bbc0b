//! Common parts of HTTP APIs: uWSGI, probes, policies and routes.

use std::collections::BTreeMap;

use openstack_operator_model::common::{Common, Exposure};
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Check, Container, File, FileName, Mount, Port, Probes, Route};
use openstack_operator_model::release::{Runtime, Varying};
use openstack_operator_model::service::Invalid;

use super::{INTERNAL_SCHEME, command, file, probe};

/// Settings of uWSGI.
pub(crate) struct Uwsgi {
    pub(crate) module: Varying<&'static str>,
    /// Number of processes. It is small, because APIs scale by pods.
    pub(crate) processes: u32,
    /// Maximum duration of a request in seconds. 0 means no limit.
    pub(crate) longest_request: u32,
    /// Maximum size of an upload chunk in bytes, if clients exceed uWSGI's default of 1 MiB.
    pub(crate) largest_chunk: Option<u32>,
    /// Options that most APIs do not need.
    pub(crate) options: &'static [(&'static str, &'static str)],
}

impl Uwsgi {
    pub(crate) fn new(module: Varying<&'static str>) -> Self {
        Self { module, processes: 1, longest_request: 60, largest_chunk: None, options: &[] }
    }
}

/// Configuration file of uWSGI for all image families.
pub(crate) fn uwsgi(uwsgi: &Uwsgi, runtime: Runtime, port: &Port, common: &Common) -> String {
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
        .set("uwsgi", "module", uwsgi.module.of(runtime))
        .set("uwsgi", "processes", uwsgi.processes)
        .set("uwsgi", "http-socket", format!("0.0.0.0:{}", port.number));
    if uwsgi.longest_request > 0 {
        document = document.set("uwsgi", "harakiri", uwsgi.longest_request);
    }
    if let Some(bytes) = uwsgi.largest_chunk {
        document = document.set("uwsgi", "chunked-input-limit", bytes);
    }
    for (option, value) in uwsgi.options {
        document = document.set("uwsgi", option, value);
    }
    let document = document.merge(common.extra_config.get("uwsgi.ini"));
    // Debian's uWSGI loads Python with this line, so it must come first.
    document.render().replacen("[uwsgi]\n", "[uwsgi]\nplugins = python3\n", 1)
}

/// Time until clients stop sending requests, plus the longest usual request, plus reserve.
pub(crate) const GRACE_SECONDS: i64 = 75;

/// Adds port, probes and stop delay of an HTTP server to a container.
pub(crate) fn serving(mut container: Container, port: Port, health: &'static str) -> Container {
    let healthy = || Check::Http { scheme: INTERNAL_SCHEME, path: health, port: port.number };
    container.probes = Probes {
        startup: Some(probe(healthy(), 2, 5, 150)),
        readiness: Some(probe(healthy(), 10, 10, 3)),
        // Processes may be busy for long while the database is slow, so liveness only checks the port.
        liveness: Some(probe(Check::Connect { port: port.number }, 20, 10, 6)),
    };
    container.ports = vec![port];
    // Time until clients stop sending requests to this pod.
    container.before_stop = Some(command(["sleep", "5"]));
    container
}

/// Routes of an exposed API.
pub(crate) fn routes(exposure: &Exposure, port: u16) -> Result<Vec<Route>, Invalid> {
    match (&exposure.gateway_ref, &exposure.public_hostname) {
        (None, _) => Ok(Vec::new()),
        (Some(gateway), Some(hostname)) => {
            let scheme = exposure.public_scheme.unwrap_or_default();
            let (hostname, gateway) = (hostname.clone(), gateway.clone());
            Ok(vec![Route { hostname, gateway, suffix: None, port, scheme }])
        }
        (Some(_), None) => Err(Invalid::new(
            "spec.publicHostname",
            "is missing: gatewayRef requires the public host name of the API",
        )),
    }
}

/// Public URL of an API, if it is exposed.
pub(crate) fn public_url(exposure: &Exposure) -> Option<String> {
    exposure.gateway_ref.as_ref()?;
    let hostname = exposure.public_hostname.as_ref()?;
    Some(format!("{}://{hostname}", exposure.public_scheme.unwrap_or_default().name()))
}

/// Mount of the policy file.
pub(crate) fn policy_mount(exposure: &Exposure, service: &str) -> Option<Mount> {
    (!exposure.policy.is_empty()).then(|| file("policy.yaml", &format!("/etc/{service}/policy.yaml")))
}

/// Adds the policy file with the rules of the user, and the option that names it.
pub(crate) fn policy(
    document: Document,
    files: &mut BTreeMap<FileName, File>,
    exposure: &Exposure,
) -> Document {
    let Some(file) = policy_file(exposure) else { return document };
    files.insert("policy.yaml".to_owned(), file);
    document.set("oslo_policy", "policy_file", "policy.yaml")
}

/// Policy file with the rules of the user, if there are any.
pub(crate) fn policy_file(exposure: &Exposure) -> Option<File> {
    // As JSON strings, which are valid YAML for any rule.
    let text = |text: &String| serde_json::Value::String(text.clone());
    let rules = exposure.policy.iter().map(|(rule, check)| format!("{}: {}\n", text(rule), text(check)));
    (!exposure.policy.is_empty()).then(|| File::Text(rules.collect()))
}
