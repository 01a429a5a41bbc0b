//! Test services: one that uses everything other services provide, and one that panics.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use openstack_operator_model::common::NameReference;
use openstack_operator_model::common::{Reference, Scheduling};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::{Needs, Resolved};
use openstack_operator_model::plan::{
    Catalog, CatalogEndpoint, CatalogService, Change, Charset, Container, Controller, Database, Domain,
    Entry, Grant, GrantTarget, IdentityDomain, IdentityUser, Interface, Messaging, Mount, Plan, Pod,
    SecretContent, SecretKey, SecretPlan, Task, TaskStage, Workload,
};
use openstack_operator_model::service::{AnyObject, AnyService, Invalid, Site};
use openstack_operator_services::{keystone, mariadb, rabbitmq};

pub(crate) const WIDGET: Kind = Kind::own("Widget", "widgets");
pub(crate) const BOMB: Kind = Kind::own("Bomb", "bombs");

/// Uses database, message bus and catalog of the cloud in `spec.cloud`, under the names in `spec.database`,
/// `spec.virtualHost`, `spec.service` and `spec.user`. With `spec.mounts` it has pods that mount that Secret, with
/// `spec.domain` a domain and a user in it, with `spec.role` roles, with `spec.workers` this number of workers.
pub(crate) struct Widget;

/// A field of the spec, or its default.
fn field<'a>(object: &'a DynamicObject, name: &str, default: &'a str) -> &'a str {
    object.data["spec"][name].as_str().unwrap_or(default)
}

fn part(object: &DynamicObject, service: &str) -> String {
    format!("{}-{service}", field(object, "cloud", "cloud"))
}

fn reference(kind: Kind, name: &str) -> Reference {
    Reference { kind: kind.kind.to_owned(), name: name.to_owned() }
}

fn workloads(object: &DynamicObject) -> Vec<Workload> {
    let Some(secret) = object.data["spec"]["mounts"].as_str() else {
        return workers(object).into_iter().map(|(workload, _)| workload).collect();
    };
    let mount =
        Mount::Secret { secret: secret.to_owned(), path: "/etc/widget".to_owned(), change: Change::Roll };
    let container = Container {
        name: "widget",
        image: "widget:1".to_owned(),
        mounts: vec![mount],
        ..Container::default()
    };
    vec![Workload {
        component: "server".into(),
        suffix: None,
        controller: Controller::Deployment,
        replicas: 1,
        pod: Pod::new(1000, &Scheduling::default(), vec![container]),
        after: Vec::new(),
        services: Vec::new(),
    }]
}

/// Workers that register by their names, and the task that removes their records.
fn workers(object: &DynamicObject) -> Option<(Workload, Task)> {
    let replicas = i32::try_from(object.data["spec"]["workers"].as_i64()?).unwrap();
    let container = |name| Container { name, image: "widget:1".to_owned(), ..Container::default() };
    let controller = Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false };
    let pod = Pod::new(1000, &Scheduling::default(), vec![container("worker")]);
    let task = Task {
        name: "forget",
        stage: TaskStage::ScaleDown { component: "worker" },
        user: 1000,
        container: container("forget"),
        repeat_on: Vec::new(),
        after: Vec::new(),
    };
    Some((Workload::part("worker", controller, replicas, pod), task))
}

fn charset(object: &DynamicObject) -> Charset {
    match field(object, "charset", "utf8mb3") {
        "utf8mb4" => Charset::Utf8mb4,
        _ => Charset::Utf8mb3,
    }
}

fn tasks(object: &DynamicObject) -> Vec<Task> {
    workers(object).into_iter().map(|(_, task)| task).collect()
}

fn domains(object: &DynamicObject) -> Vec<IdentityDomain> {
    let retained = field(object, "deletionPolicy", "Delete") == "Retain";
    let name = object.data["spec"]["domain"].as_str();
    name.into_iter().map(|name| IdentityDomain { name: name.to_owned(), retained }).collect()
}

/// A user in the default domain, and one in the domain of the object, who has no project.
fn users(object: &DynamicObject, name: &str, password: &SecretKey) -> Vec<IdentityUser> {
    let user = |domain: Domain, on: GrantTarget| IdentityUser {
        name: name.to_owned(),
        domain,
        password: password.clone(),
        grants: vec![Grant { role: "admin".to_owned(), on }],
    };
    let service = user(Domain::Default, GrantTarget::Project("service".to_owned()));
    let administrators = domains(object).into_iter().map(|domain| {
        let domain = Domain::Named(domain.name);
        user(domain.clone(), GrantTarget::Domain(domain))
    });
    [service].into_iter().chain(administrators).collect()
}

impl AnyService for Widget {
    fn kind(&self) -> Kind {
        WIDGET
    }

    fn name(&self) -> &'static str {
        "widget"
    }

    fn crd(&self) -> CustomResourceDefinition {
        CustomResourceDefinition::default()
    }

    fn directs(&self) -> bool {
        false
    }

    fn decode(&self, object: &DynamicObject) -> Result<Box<dyn AnyObject>, Invalid> {
        Ok(Box::new(WidgetObject(object.clone())))
    }
}

struct WidgetObject(DynamicObject);

impl AnyObject for WidgetObject {
    fn needs(&self) -> Needs {
        let Self(object) = self;
        Needs::default()
            .object("spec.cloud", mariadb::KIND, Some(&NameReference::new(part(object, "mariadb"))))
            .object("spec.cloud", rabbitmq::KIND, Some(&NameReference::new(part(object, "rabbitmq"))))
            .object("spec.cloud", keystone::KIND, Some(&NameReference::new(part(object, "keystone"))))
    }

    fn plan(
        &self,
        inputs: &Resolved,
        _site: &Site,
        _memory: &BTreeMap<String, String>,
    ) -> Result<Plan, Invalid> {
        let Self(object) = self;
        let instance = object.metadata.name.clone().unwrap_or_default();
        let [database, virtual_host, service, user] = ["database", "virtualHost", "service", "user"]
            .map(|resource| field(object, resource, "widget").to_owned());
        let secret = |name: &str, user: &str| SecretPlan {
            name: format!("{instance}-{name}"),
            content: SecretContent::Entries(BTreeMap::from([
                ("username".to_owned(), Entry::Text(user.to_owned())),
                ("password".to_owned(), Entry::Password { length: 32 }),
            ])),
            retained: false,
            irreplaceable: false,
        };
        let [mariadb_name, rabbitmq_name, keystone_name] =
            ["mariadb", "rabbitmq", "keystone"].map(|service| part(object, service));
        let identity = inputs.identity(keystone::KIND, &keystone_name, "spec.cloud")?;
        Ok(Plan {
            secrets: vec![
                secret("database", &database),
                secret("messaging", &virtual_host),
                secret("user", &user),
            ],
            databases: vec![Database {
                provider: reference(mariadb::KIND, &mariadb_name),
                server: inputs.database(mariadb::KIND, &mariadb_name, "spec.cloud")?.clone(),
                database,
                charset: charset(object),
                secret: format!("{instance}-database"),
                retained: field(object, "deletionPolicy", "Delete") == "Retain",
            }],
            messaging: vec![Messaging {
                provider: reference(rabbitmq::KIND, &rabbitmq_name),
                server: inputs.messaging(rabbitmq::KIND, &rabbitmq_name, "spec.cloud")?.clone(),
                virtual_host,
                secret: format!("{instance}-messaging"),
            }],
            catalog: Some(Catalog {
                provider: reference(keystone::KIND, &keystone_name),
                server: identity.clone(),
                domains: domains(object),
                projects: Vec::new(),
                roles: Vec::new(),
                service_roles: field(object, "role", "").split_whitespace().map(str::to_owned).collect(),
                services: vec![CatalogService {
                    service_type: service,
                    name: "widget".to_owned(),
                    description: "Widgets".to_owned(),
                    region: identity.region.clone(),
                    endpoints: vec![CatalogEndpoint {
                        interface: Interface::Public,
                        url: "http://widget".to_owned(),
                    }],
                }],
                users: users(object, &user, &SecretKey::new(format!("{instance}-user"), "password")),
            }),
            workloads: workloads(object),
            tasks: tasks(object),
            ..Plan::default()
        })
    }
}

/// Panics in planning.
pub(crate) struct Bomb;

impl AnyService for Bomb {
    fn kind(&self) -> Kind {
        BOMB
    }

    fn name(&self) -> &'static str {
        "bomb"
    }

    fn crd(&self) -> CustomResourceDefinition {
        CustomResourceDefinition::default()
    }

    fn directs(&self) -> bool {
        false
    }

    fn decode(&self, _object: &DynamicObject) -> Result<Box<dyn AnyObject>, Invalid> {
        Ok(Box::new(BombObject))
    }
}

struct BombObject;

impl AnyObject for BombObject {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn plan(
        &self,
        _inputs: &Resolved,
        _site: &Site,
        _memory: &BTreeMap<String, String>,
    ) -> Result<Plan, Invalid> {
        panic!("the fuse was too short");
    }
}
