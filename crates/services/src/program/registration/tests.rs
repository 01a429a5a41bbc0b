//! A program with two catalog entries, a domain and roles.

use openstack_operator_model::common::{Common, DeletionPolicy, GatewayReference, NameReference, Origin};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::plan::{
    Domain, Grant, GrantTarget, IdentityDomain, IdentityUser, Plan, TaskStage,
};
use openstack_operator_model::service::Context;
use openstack_operator_model::status::{IdentityServer, Provides};

use super::*;
use crate::keystone;
use crate::program::{Amounts, Project, Settings};
use crate::testing::{provided, with_context};

const PROJECT: Project = Project {
    name: "sample",
    user: 1000,
    configuration: "sample.conf",
    manage: "sample-manage",
    image: ImageNames { kolla: "sample", debian: "sample" },
    scratch: &[],
    amounts: Amounts { cpu: "20m", memory: "192Mi", memory_limit: "512Mi" },
};
const API: Port = Port::tcp("api", 8000);
const OTHER: Port = Port::tcp("other", 8001);

fn plan(keystone: &IdentitySettings, exposure: &Exposure) -> Plan {
    let identity = IdentityServer {
        internal_url: "http://keystone/v3".to_owned(),
        public_url: "https://identity.example.com/v3".to_owned(),
        region: "RegionOne".to_owned(),
        username: Some("admin".to_owned()),
        secret: Some("keystone-admin".to_owned()),
        secret_key: "password".to_owned(),
    };
    let provides = Provides { identity: Some(identity), ..Provides::default() };
    let inputs = provided(keystone::KIND, "keystone", provides);
    with_context(&inputs, |context| plan_in(context, keystone, exposure))
}

fn plan_in(context: &Context<'_, ()>, keystone: &IdentitySettings, exposure: &Exposure) -> Plan {
    let (origin, common) = (Origin::default(), Common::default());
    let settings = Settings { origin: &origin, common: &common, replicas: None, exposure };
    let mut sample = Program::new(context, &PROJECT, settings, &API, &[]).unwrap();
    let hostname = "sample-other.example.com".to_owned();
    let urls = sample.expose("other", &OTHER, Some(&hostname));
    let registrations = [
        sample.registration("sample", "Samples", "/v1/%(project_id)s"),
        urls.registration("sample-other", "other", "Other samples", "/v1"),
    ];
    let account = sample.register(keystone, &registrations, &[], &[]).unwrap();
    let claim = DomainClaim {
        name: "samples",
        administrator: "sample_domain_admin",
        suffix: "domain",
        deletion_policy: DeletionPolicy::Retain,
    };
    sample.domain(&account, &claim, ("DEFAULT", "domain_admin_password"));
    sample.roles(&account, &["sample_owner"]);
    sample.task("db-sync", TaskStage::Install, Vec::new());
    sample.finish().unwrap()
}

fn managed() -> IdentitySettings {
    IdentitySettings { cluster_ref: Some(NameReference::new("keystone")), ..IdentitySettings::default() }
}

#[test]
fn a_program_registers_a_domain_with_an_administrator_and_roles() {
    let plan = plan(&managed(), &Exposure::default());
    let catalog = plan.catalog.unwrap();
    assert_eq!(catalog.domains, [IdentityDomain { name: "samples".to_owned(), retained: true }]);
    assert_eq!(catalog.service_roles, ["sample_owner"]);
    let domain = Domain::Named("samples".to_owned());
    let expected = IdentityUser {
        name: "sample_domain_admin".to_owned(),
        domain: domain.clone(),
        password: SecretKey::new("cloud-sample-domain", "password"),
        grants: vec![Grant { role: "admin".to_owned(), on: GrantTarget::Domain(domain) }],
    };
    assert_eq!(catalog.users.last(), Some(&expected));
    let expected = Variable::secret("OS_DEFAULT__DOMAIN_ADMIN_PASSWORD", "cloud-sample-domain", "password");
    assert!(plan.tasks[0].container.environment.contains(&expected));
    assert!(plan.secrets.iter().any(|secret| secret.name == "cloud-sample-domain"));
}

#[test]
fn each_api_of_a_program_has_its_own_catalog_entry_and_route() {
    let gateway = GatewayReference { name: "gateway".to_owned(), ..GatewayReference::default() };
    let exposure = Exposure {
        gateway_ref: Some(gateway),
        public_hostname: Some("sample.example.com".to_owned()),
        ..Exposure::default()
    };
    for (exposure, other) in [
        (exposure, "https://sample-other.example.com/v1"),
        (Exposure::default(), "http://cloud-sample-other.openstack.svc:8001/v1"),
    ] {
        let plan = plan(&managed(), &exposure);
        let services = plan.catalog.unwrap().services;
        let types: Vec<&str> = services.iter().map(|service| service.service_type.as_str()).collect();
        assert_eq!(types, ["sample", "other"]);
        assert_eq!(services[1].endpoints[0].url, other);
        assert_eq!(services[1].endpoints[1].url, "http://cloud-sample-other.openstack.svc:8001/v1");
        let is_routed = plan.routes.iter().any(|route| route.suffix.as_deref() == Some("other"));
        assert_eq!(is_routed, exposure.gateway_ref.is_some());
    }
}

#[test]
fn without_an_administrator_a_remark_names_what_to_create() {
    let existing = IdentitySettings {
        auth_url: Some("https://keystone.example.com/v3".to_owned()),
        secret_ref: Some(NameReference::new("login")),
        ..IdentitySettings::default()
    };
    let plan = plan(&existing, &Exposure::default());
    assert_eq!(plan.catalog, None);
    let expected = "create domain samples in Keystone, and user sample_domain_admin in it with the password of Secret \
                    cloud-sample-domain and role admin on the domain";
    assert_eq!(plan.remarks, [expected]);
}
