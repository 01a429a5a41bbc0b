//! Specs of all services with their plans and manifests. A new service is two files in `tests/specs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube::core::DynamicObject;
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::lower::{self, Instance, Manifest, Observed};
use openstack_operator_model::need::{Labels, Needs, NodeNeed, Resolved};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::service::{AnyService, Invalid, Site};
use openstack_operator_model::status::{
    CacheServers, CellServer, ComputeServer, DatabaseServer, IdentityServer, LoginMethod, MessagingServer,
    NetworkServer, NotificationServer, Provides,
};
use openstack_operator_services as services;
use openstack_operator_testkit::Gadget;
use serde_json::{Value, json};

/// One spec of one service.
pub(crate) struct Case {
    pub(crate) service: &'static dyn AnyService,
    /// Name of the file, e.g. `keystone-rich`.
    pub(crate) title: String,
    pub(crate) name: String,
    pub(crate) spec: Value,
}

/// Plan and manifests of a case.
pub(crate) struct Rendered {
    pub(crate) needs: Needs,
    pub(crate) plan: Plan,
    pub(crate) manifests: Vec<Manifest>,
    /// Secrets that other objects provide.
    pub(crate) provided_secrets: BTreeSet<String>,
}

/// All cases, in the order of their titles.
pub(crate) fn cases() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/specs");
    let mut cases: Vec<Case> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let document: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let kind = document["kind"].as_str().unwrap();
            let service = services::of_kind(kind).unwrap_or_else(|| panic!("there is no kind {kind}"));
            let title = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(title.starts_with(service.name()), "{title} does not start with the name of a service");
            Case { service, title, name: "test".to_owned(), spec: document["spec"].clone() }
        })
        .collect();
    cases.sort_by(|one, other| one.title.cmp(&other.title));
    cases
}

/// The case of a test service with elements of a plan that few services need.
pub(crate) fn gadget() -> Case {
    let spec =
        json!({ "names": ["gadget.example.com"], "login": "login", "file": "x = 1\n", "waitsFor": "other" });
    Case { service: &Gadget, title: "gadget".to_owned(), name: "test".to_owned(), spec }
}

/// All cases, and that of the test service.
pub(crate) fn cases_and_gadget() -> Vec<Case> {
    cases().into_iter().chain([gadget()]).collect()
}

pub(crate) fn case(title: &str) -> Case {
    cases().into_iter().find(|case| case.title == title).unwrap()
}

/// All cases and the test service, planned and lowered without observed state.
pub(crate) fn rendered_and_gadget() -> Vec<(Case, Rendered)> {
    let gadget = gadget();
    let rendered_gadget = gadget.render(&Observed::default()).unwrap();
    rendered().into_iter().chain([(gadget, rendered_gadget)]).collect()
}

/// All cases, planned and lowered without observed state.
pub(crate) fn rendered() -> Vec<(Case, Rendered)> {
    cases()
        .into_iter()
        .map(|case| {
            let rendered = case.render(&Observed::default()).unwrap();
            (case, rendered)
        })
        .collect()
}

impl Case {
    pub(crate) fn object(&self) -> DynamicObject {
        object(self.service, &self.name, &self.spec)
    }

    pub(crate) fn render(&self, observed: &Observed) -> Result<Rendered, Invalid> {
        render(self.service, &self.object(), observed)
    }
}

pub(crate) fn object(service: &dyn AnyService, name: &str, spec: &Value) -> DynamicObject {
    let kind = service.kind();
    let body = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": { "name": name, "namespace": "openstack" }, "spec": spec,
    });
    serde_json::from_value(body).unwrap()
}

pub(crate) fn site() -> Site {
    Site {
        images: ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() },
        cluster_domain: "cluster.local".to_owned(),
    }
}

fn cell_server(nova: &str, cell: &str) -> CellServer {
    CellServer {
        name: cell.to_owned(),
        messaging_secret: if cell == "cell1" {
            format!("{nova}-messaging")
        } else {
            format!("{nova}-messaging-{cell}")
        },
        messaging_port: 5672,
        compute: None,
    }
}

/// All connection details of an object of this name.
fn provides(name: &str) -> Provides {
    let host = format!("{name}.openstack.svc");
    Provides {
        database: Some(DatabaseServer {
            host: host.clone(),
            port: 3306,
            admin_port: 3307,
            secret: format!("{name}-root"),
        }),
        messaging: Some(MessagingServer {
            hosts: (0..2).map(|ordinal| format!("{name}-{ordinal}.{host}")).collect(),
            port: 5672,
            management_url: format!("http://{host}:15672"),
            secret: format!("{name}-administrator"),
        }),
        cache: Some(CacheServers { servers: vec![format!("{host}:11211")] }),
        identity: Some(IdentityServer {
            internal_url: format!("http://{host}:5000/v3"),
            public_url: "https://identity.example.com/v3".to_owned(),
            region: "RegionOne".to_owned(),
            username: Some("admin".to_owned()),
            secret: Some(format!("{name}-admin")),
            secret_key: "password".to_owned(),
        }),
        notifications: Some(NotificationServer { secret: format!("{name}-messaging"), port: 5672 }),
        network: Some(NetworkServer {
            northbound: vec!["tcp:10.96.0.41:6641".to_owned()],
            southbound: vec!["tcp:10.96.0.42:6642".to_owned()],
            userspace: true,
            physical_networks: vec!["physnet1".to_owned()],
            node_selector: BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]),
            leaving: Vec::new(),
        }),
        compute: Some(ComputeServer {
            url: format!("http://{host}:8774/v2.1"),
            metadata_host: format!("{name}-metadata.openstack.svc"),
            metadata_port: 8775,
            metadata_secret: format!("{name}-metadata"),
            identity_secret: format!("{name}-identity"),
            identity_username: Some("nova".to_owned()),
            identity_method: LoginMethod::Password,
            console_url: "https://console.example.com/vnc_lite.html".to_owned(),
            cells: ["cell1", "cell2"].map(|cell| cell_server(name, cell)).to_vec(),
        }),
    }
}

/// All needs resolved, as if each object provided everything.
pub(crate) fn resolved(needs: &Needs, leaving: &[&str]) -> Resolved {
    let objects = needs
        .objects
        .iter()
        .map(|need| ((need.kind.kind.to_owned(), need.name.clone()), provides(&need.name)));
    let addresses =
        needs.addresses.iter().zip(41..).map(|(name, last)| (name.clone(), format!("10.96.0.{last}")));
    let mut nodes = BTreeMap::new();
    if let Some(NodeNeed { labels, .. }) = &needs.nodes {
        nodes.insert("node-a".to_owned(), labels.clone());
        let mut labels = labels.clone();
        labels.insert("rack".to_owned(), "two".to_owned());
        nodes.insert("node-b".to_owned(), labels);
    }
    Resolved {
        objects: objects.collect(),
        addresses: addresses.collect(),
        peers: BTreeMap::new(),
        parts: BTreeMap::new(),
        claimed: nodes.keys().cloned().collect(),
        nodes,
        leaving: leaving.iter().map(|&name| (name.to_owned(), Labels::new())).collect(),
    }
}

pub(crate) fn render(
    service: &dyn AnyService,
    object: &DynamicObject,
    observed: &Observed,
) -> Result<Rendered, Invalid> {
    render_leaving(service, object, observed, &[])
}

/// The same with leaving nodes.
pub(crate) fn render_leaving(
    service: &dyn AnyService,
    object: &DynamicObject,
    observed: &Observed,
    leaving: &[&str],
) -> Result<Rendered, Invalid> {
    let decoded = service.decode(object)?;
    let needs = decoded.needs();
    let resolved = resolved(&needs, leaving);
    let plan = decoded.plan(&resolved, &site(), &BTreeMap::new())?;
    let mut provided_secrets = BTreeSet::new();
    for provides in resolved.objects.values() {
        walk("", &serde_json::to_value(provides).unwrap(), &mut |path, value| {
            let name = value.as_str().filter(|_| path.to_lowercase().ends_with("secret"));
            provided_secrets.extend(name.map(str::to_owned));
        });
    }
    let instance = Instance {
        kind: service.kind(),
        service: service.name(),
        name: object.metadata.name.clone().unwrap(),
        namespace: "openstack".to_owned(),
        uid: "00000000-0000-4000-8000-000000000001".to_owned(),
    };
    let manifests = lower::lower(&instance, &plan, observed).into_values().flatten().collect();
    Ok(Rendered { needs, plan, manifests, provided_secrets })
}

/// Visits all parts of a value with their paths, parents first.
pub(crate) fn walk<'a>(path: &str, value: &'a Value, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(field, value)| walk(&format!("{path}.{field}"), value, visit));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| walk(&format!("{path}[{index}]"), item, visit));
        }
        _ => {}
    }
}
