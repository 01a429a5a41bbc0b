//! Domains, users in them, and roles of services in the identity service.

use openstack_operator_engine::engine::Engine;
use openstack_operator_testkit::{IdentityState, World};
use serde_json::{Value, json};

use crate::driver::{
    self, NAMESPACE, assert_same, cloud, condition, converge, get, is_ready, object, writes,
};
use crate::test_services::WIDGET;

const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

fn identity(world: &World) -> IdentityState {
    world.identity.state(IDENTITY)
}

fn spec() -> Value {
    json!({ "domain": "gadgets", "role": "gadget_owner gadget_user" })
}

async fn widget(spec: &Value) -> (World, Engine) {
    let (world, engine) = cloud().await;
    world.apply_object(&object(WIDGET, "widget", spec));
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    world.script.clear_log();
    (world, engine)
}

async fn delete(world: &World, engine: &Engine, name: &str) {
    world.delete_object(WIDGET, NAMESPACE, name);
    converge(world, engine).await;
    assert!(world.object(WIDGET, NAMESPACE, name).is_none());
}

#[tokio::test]
async fn a_domain_has_a_user_without_a_project_and_the_status_records_both() {
    let (world, _) = widget(&spec()).await;
    let state = identity(&world);
    assert!(state.domains.contains("gadgets"));
    let user = &state.users["widget@gadgets"];
    assert_eq!(user.assignments.iter().collect::<Vec<_>>(), [&("@gadgets".to_owned(), "admin".to_owned())]);
    assert_eq!(state.role_users["gadget_owner"].iter().collect::<Vec<_>>(), ["Widget openstack/widget"]);
    let status = get(&world, WIDGET, "widget")["status"]["effects"].clone();
    let recorded: Vec<(&str, &str, &str)> = status
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| {
            let text = |field: &str| effect[field].as_str().unwrap_or_default();
            (text("what"), text("domain"), text("name"))
        })
        .filter(|(kind, ..)| kind.starts_with("Identity"))
        .collect();
    let expected = [
        ("IdentityUser", "", "widget"),
        ("IdentityUser", "gadgets", "widget"),
        ("IdentityDomain", "", "gadgets"),
        ("IdentityRole", "", "gadget_owner"),
        ("IdentityRole", "", "gadget_user"),
    ];
    assert_eq!(recorded, expected);
}

#[tokio::test]
async fn deletion_leaves_nothing_in_the_identity_service() {
    let (before, _) = cloud().await;
    let (world, engine) = widget(&spec()).await;
    delete(&world, &engine, "widget").await;
    let undone: Vec<String> = writes(&world).into_iter().filter(|call| call.contains(" identity ")).collect();
    let expected = [
        "drop_service identity widget",
        "drop_user identity widget",
        "drop_user identity widget@gadgets",
        "drop_domain identity gadgets",
        "release_role identity gadget_owner",
        "release_role identity gadget_user",
    ];
    assert_eq!(undone, expected);
    assert_eq!(identity(&world), identity(&before));
}

#[tokio::test]
async fn a_domain_and_roles_that_the_spec_no_longer_has_are_removed() {
    let (plain, _) = widget(&json!({})).await;
    let (world, engine) = widget(&spec()).await;
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    converge(&world, &engine).await;
    let (found, expected) = (identity(&world), identity(&plain));
    assert_eq!((found.domains, found.roles), (expected.domains, expected.roles));
    assert!(found.users.keys().eq(expected.users.keys()));
}

#[tokio::test]
async fn a_domain_with_retained_data_stays_and_belongs_to_the_next_object_of_the_name() {
    let mut retaining = spec();
    retaining["deletionPolicy"] = json!("Retain");
    let (world, engine) = widget(&retaining).await;
    delete(&world, &engine, "widget").await;
    assert!(identity(&world).domains.contains("gadgets"));
    world.apply_object(&object(WIDGET, "widget", &retaining));
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
}

#[tokio::test]
async fn manual_changes_of_domains_users_and_roles_are_reverted() {
    let damages: [fn(&mut IdentityState); 4] = [
        |state| {
            state.domains.remove("gadgets");
        },
        |state| {
            state.users.remove("widget@gadgets");
        },
        |state| state.users.get_mut("widget@gadgets").unwrap().assignments.clear(),
        |state| {
            state.roles.remove("gadget_user");
        },
    ];
    for damage in damages {
        let (world, engine) = widget(&spec()).await;
        let before = identity(&world);
        world.identity.edit(IDENTITY, damage);
        assert_ne!(identity(&world), before);
        converge(&world, &engine).await;
        assert_eq!(identity(&world), before);
    }
}

#[tokio::test]
async fn a_role_stays_until_its_last_object_is_deleted() {
    let (world, engine) = widget(&spec()).await;
    let names = ["database", "virtualHost", "service", "user", "domain"];
    let mut second: Value = names.iter().map(|field| ((*field).to_owned(), json!("second"))).collect();
    second["role"] = json!("gadget_owner");
    world.apply_object(&object(WIDGET, "second", &second));
    converge(&world, &engine).await;
    delete(&world, &engine, "widget").await;
    let state = identity(&world);
    assert!(state.roles.contains("gadget_owner") && !state.roles.contains("gadget_user"));
    delete(&world, &engine, "second").await;
    assert!(!identity(&world).roles.contains("gadget_owner"));
}

#[tokio::test]
async fn a_role_that_a_person_holds_survives_its_service() {
    let (world, engine) = widget(&spec()).await;
    world.identity.edit(IDENTITY, |state| {
        let person = state.users.entry("person".to_owned()).or_default();
        person.assignments.insert(("project".to_owned(), "gadget_owner".to_owned()));
    });
    delete(&world, &engine, "widget").await;
    let state = identity(&world);
    assert!(state.roles.contains("gadget_owner") && !state.roles.contains("gadget_user"));
}

#[tokio::test]
async fn a_domain_of_another_object_stalls_and_is_not_touched() {
    let (world, engine) = widget(&spec()).await;
    let before = identity(&world);
    let names = ["database", "virtualHost", "service", "user"];
    let mut second: Value = names.iter().map(|field| ((*field).to_owned(), json!("second"))).collect();
    second["domain"] = json!("gadgets");
    world.apply_object(&object(WIDGET, "second", &second));
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, WIDGET, "second", "Stalled");
    assert!(status == "True" && message.starts_with("identity domain gadgets belongs to"), "{message}");
    delete(&world, &engine, "second").await;
    assert_eq!(identity(&world), before);
}

#[tokio::test]
async fn a_domain_is_complete_wherever_the_operator_is_killed() {
    let (whole, _) = widget(&spec()).await;
    for write in 1.. {
        let (world, engine) = cloud().await;
        world.apply_object(&object(WIDGET, "widget", &spec()));
        world.script.crash_after_write(write);
        converge(&world, &engine).await;
        if !world.script.crashed() {
            assert!(write > 4, "too few writes");
            return;
        }
        world.script.revive();
        converge(&world, &driver::engine(&world)).await;
        assert_same(&world.fingerprint(), &whole.fingerprint(), || format!("killed after write {write}"));
    }
}
