//! A service whose plan uses elements that few services need, so that tests cover them without such a service.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use openstack_operator_model::common::{Reference, ResourceAmounts, Resources, Scheduling};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::{Needs, Resolved};
use openstack_operator_model::oslo::SecretDocument;
use openstack_operator_model::plan::{
    Certificate, Change, Check, Container, Controller, Cron, Encoding, Entry, File, Issuer, KeyRing, Mount,
    NetworkService, Piece, Plan, Pod, Port, Probe, Probes, Reach, Schedule, SecretContent, SecretKey,
    SecretPlan, Task, TaskInput, TaskStage, Workload,
};
use openstack_operator_model::service::{AnyObject, AnyService, Invalid, Site};
use serde_json::Value;

/// Start of an image, which is not UTF-8.
const LOGO: [u8; 4] = [0x89, b'P', b'N', b'G'];

/// The service. Its spec has `names` of its certificate, `request` of a rotation, `login`, a Secret of the user whose key
/// `password` is in its configuration, `file`, the content of a file that its task uses, `waitsFor`, the gadget that its
/// task waits for, and `purge`, whether it has a schedule.
pub struct Gadget;

impl Gadget {
    pub const KIND: Kind = Kind::own("Gadget", "gadgets");

    /// The plan of an object with this name and spec.
    pub fn plan(name: &str, spec: &Value) -> Plan {
        let part = |part: &str| format!("{name}-{part}");
        let mount = |secret: &str, path: &str| Mount::Secret {
            secret: part(secret),
            path: path.to_owned(),
            change: Change::Roll,
        };
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let server = Container {
            mounts: vec![
                Mount::SecretFile {
                    secret: part("options"),
                    key: "secrets.conf".to_owned(),
                    path: "/etc/gadget/gadget.conf.d/secrets.conf".to_owned(),
                },
                mount("server", "/etc/gadget/tls"),
                mount("ssh", "/etc/gadget/ssh"),
                Mount::File { file: "logo.png".to_owned(), path: "/etc/gadget/logo.png".to_owned() },
            ],
            ports: ports(),
            ..container("server")
        };
        let annotations = BTreeMap::from([("example.com/address".to_owned(), "192.0.2.1".to_owned())]);
        let public = Reach::LoadBalancer { annotations };
        let file = Mount::File { file: "task.conf".to_owned(), path: "/etc/gadget/task.conf".to_owned() };
        let waits_for = spec["waitsFor"].as_str();
        Plan {
            secrets: secrets(name, spec),
            files: BTreeMap::from([
                ("task.conf".to_owned(), File::Text(text("file"))),
                ("logo.png".to_owned(), File::Bytes(LOGO.to_vec())),
            ]),
            tasks: vec![Task {
                name: "configure",
                stage: TaskStage::Configure,
                user: 1000,
                container: Container { mounts: vec![file], ..container("configure") },
                repeat_on: vec![TaskInput::File("task.conf".to_owned()), TaskInput::Secret(part("server"))],
                after: waits_for.map(|name| Reference::new(Self::KIND, name)).into_iter().collect(),
            }],
            schedules: (spec["purge"] != false).then(purge).into_iter().collect(),
            workloads: vec![Workload {
                component: "server".into(),
                suffix: None,
                controller: Controller::Deployment,
                replicas: 1,
                pod: Pod::new(1000, &Scheduling::default(), vec![server]),
                services: vec![
                    NetworkService { suffix: None, ports: ports(), reach: Reach::Cluster },
                    NetworkService { suffix: Some("public".into()), ports: ports(), reach: public },
                ],
                after: Vec::new(),
            }],
            ..Plan::default()
        }
    }
}

/// The same number with both protocols.
fn ports() -> Vec<Port> {
    vec![Port::tcp("dns-tcp", 5353), Port::udp("dns-udp", 5353)]
}

fn purge() -> Schedule {
    Schedule {
        name: "purge",
        cron: Cron::new("0 3 * * *").expect("the constant is a cron expression"),
        user: 1000,
        container: container("purge"),
        deadline_seconds: 600,
    }
}

fn container(name: &'static str) -> Container {
    let amounts = |cpu: &str, memory: &str| ResourceAmounts {
        cpu: Some(cpu.to_owned()),
        memory: Some(memory.to_owned()),
    };
    let probe = Probe {
        check: Check::Command(vec!["true".to_owned()]),
        period_seconds: 10,
        timeout_seconds: 5,
        failures: 3,
    };
    Container {
        name,
        image: "gadget:1".to_owned(),
        command: vec!["gadget".to_owned(), name.to_owned()],
        probes: Probes { readiness: (name == "server").then_some(probe), ..Probes::default() },
        resources: Resources { requests: amounts("10m", "64Mi"), limits: amounts("1", "128Mi") },
        ..Container::default()
    }
}

fn secrets(name: &str, spec: &Value) -> Vec<SecretPlan> {
    let part = |part: &str| format!("{name}-{part}");
    let plain = |name: String, content| SecretPlan { name, content, retained: false, irreplaceable: false };
    let names = spec["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let certificate = |common_name: &str, lifetime_days, issuer| Certificate {
        common_name: common_name.to_owned(),
        alternative_names: Vec::new(),
        lifetime_days,
        issuer,
    };
    let server = Certificate {
        alternative_names: names.map(str::to_owned).collect(),
        ..certificate("gadget", 90, Issuer::Secret(part("authority")))
    };
    let ring = KeyRing {
        condition: "GadgetKeysReady",
        max_active_keys: 3,
        lifetime_seconds: 0,
        schedule: "0 0 * * 0".to_owned(),
        request: spec["request"].as_str().map(str::to_owned),
    };
    vec![
        SecretPlan::with_entries(&part("options"), [("secrets.conf", Entry::Template(options(name, spec)))]),
        SecretPlan {
            retained: true,
            irreplaceable: true,
            ..SecretPlan::with_entries(
                &part("values"),
                [
                    ("bytes", Entry::Bytes { length: 16, encoding: Encoding::Base64 }),
                    ("fernet", Entry::Bytes { length: 32, encoding: Encoding::Base64Url }),
                    ("password", Entry::Password { length: 32 }),
                    ("uuid", Entry::Uuid),
                ],
            )
        },
        plain(part("ring"), SecretContent::KeyRing(ring)),
        SecretPlan {
            retained: true,
            irreplaceable: true,
            ..plain(
                part("authority"),
                SecretContent::Certificate(certificate("gadget authority", 3650, Issuer::Itself)),
            )
        },
        plain(part("server"), SecretContent::Certificate(server)),
        plain(part("ssh"), SecretContent::SshKey),
    ]
}

fn options(name: &str, spec: &Value) -> Vec<Piece> {
    let mut document = SecretDocument::default();
    let password = SecretKey::new(format!("{name}-values"), "password");
    document.set_keys("crypto", "kek", &format!("{name}-ring"));
    let url = [Piece::Text("http://gadget:".to_owned()), Piece::Escaped(password.clone())];
    document.set_template("DEFAULT", "url", url.to_vec());
    let login = spec["login"].as_str().map(|secret| SecretKey::new(secret, "password"));
    let passwords: Vec<SecretKey> = std::iter::once(password).chain(login).collect();
    document.set("login", "passwords", &passwords);
    document.template()
}

impl AnyService for Gadget {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn name(&self) -> &'static str {
        "gadget"
    }

    fn crd(&self) -> CustomResourceDefinition {
        CustomResourceDefinition::default()
    }

    fn directs(&self) -> bool {
        false
    }

    fn decode(&self, object: &DynamicObject) -> Result<Box<dyn AnyObject>, Invalid> {
        Ok(Box::new(GadgetObject(object.clone())))
    }
}

struct GadgetObject(DynamicObject);

impl AnyObject for GadgetObject {
    fn needs(&self) -> Needs {
        let Self(object) = self;
        let spec = &object.data["spec"];
        Needs::default()
            .secret("spec.login", spec["login"].as_str(), &["password"])
            .before_tasks(Gadget::KIND, spec["waitsFor"].as_str())
    }

    fn plan(
        &self,
        _inputs: &Resolved,
        _site: &Site,
        _memory: &BTreeMap<String, String>,
    ) -> Result<Plan, Invalid> {
        let Self(object) = self;
        let name = object.metadata.name.clone().unwrap_or_default();
        Ok(Gadget::plan(&name, &object.data["spec"]))
    }
}
