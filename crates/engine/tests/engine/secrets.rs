//! Secrets beyond passwords: values of other forms, certificates, SSH keys, and files with values of Secrets.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{DEPLOYMENT, SECRET};
use openstack_operator_testkit::{Gadget, World};
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, condition, converge, engine, full_object, get, is_ready, statuses, world, writes,
};

const DAY: Duration = Duration::from_hours(24);

/// A Ready gadget.
async fn gadget(spec: &Value) -> (World, Engine) {
    let world = world();
    world.apply_object(&full_object(Gadget::KIND, "x", spec));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"), "{}", statuses(&world, &engine));
    world.script.clear_log();
    (world, engine)
}

fn edit(world: &World, field: &str, value: &Value) {
    world.edit_object(Gadget::KIND, NAMESPACE, "x", |body| body["spec"][field] = value.clone());
}

fn value(world: &World, secret: &str, key: &str) -> String {
    let body = get(world, SECRET, secret);
    let text = body["data"][key].as_str().unwrap_or_else(|| panic!("Secret {secret} has no key {key}"));
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

fn template(world: &World) -> Value {
    get(world, DEPLOYMENT, "x")["spec"]["template"].clone()
}

fn user_secret(world: &World, password: &str) {
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret", "data": { "password": STANDARD.encode(password) },
        "metadata": { "name": "login", "namespace": NAMESPACE },
    }));
}

#[tokio::test]
async fn generated_values_of_every_form_are_kept() {
    let (world, engine) = gadget(&json!({})).await;
    let secrets = ["values", "authority", "server", "ssh", "ring", "options"].map(|part| format!("x-{part}"));
    let before = secrets.clone().map(|secret| get(&world, SECRET, &secret));
    assert_eq!(STANDARD.decode(value(&world, "x-values", "bytes")).unwrap().len(), 16);
    assert_eq!(value(&world, "x-values", "fernet").len(), 44);
    assert_eq!(value(&world, "x-values", "uuid").len(), 36);
    converge(&world, &engine).await;
    converge(&world, &crate::driver::engine(&world)).await;
    assert_eq!(writes(&world), [""; 0]);
    assert_eq!(before, secrets.map(|secret| get(&world, SECRET, &secret)));
}

#[tokio::test]
async fn a_lost_value_or_authority_that_is_irreplaceable_stalls_the_object() {
    for (secret, key) in [("x-values", "bytes"), ("x-values", "uuid"), ("x-authority", "tls.key")] {
        let (world, engine) = gadget(&json!({})).await;
        world.edit_object(SECRET, NAMESPACE, secret, |body| {
            body["data"].as_object_mut().unwrap().remove(key);
        });
        converge(&world, &engine).await;
        let (status, reason, message) = condition(&world, Gadget::KIND, "x", "Stalled");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "ActionRequired"), "{secret} {key}");
        assert!(message.contains(&format!("Secret {secret} is missing or incomplete")), "{message}");
        assert_eq!(writes(&world).iter().filter(|call| call.contains("apply Secret")).count(), 0);
    }
}

#[tokio::test]
async fn a_lost_ssh_key_is_replaced_as_a_pair() {
    let (world, engine) = gadget(&json!({})).await;
    let before = ["ssh-privatekey", "ssh-publickey"].map(|key| value(&world, "x-ssh", key));
    world.edit_object(SECRET, NAMESPACE, "x-ssh", |body| {
        body["data"].as_object_mut().unwrap().remove("ssh-publickey");
    });
    converge(&world, &engine).await;
    let after = ["ssh-privatekey", "ssh-publickey"].map(|key| value(&world, "x-ssh", key));
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{after:?}");
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_expires_and_restarts_the_pods() {
    let (world, engine) = gadget(&json!({ "names": ["a.example.com"] })).await;
    let certificate = || value(&world, "x-server", "tls.crt");
    assert!(
        certificate().starts_with("certificate of gadget [a.example.com] until 2026-04-01"),
        "{}",
        certificate()
    );
    assert_eq!(value(&world, "x-server", "ca.crt"), value(&world, "x-authority", "tls.crt"));
    let (before, pods) = (certificate(), template(&world));
    world.environment.advance(DAY * 59);
    converge(&world, &engine).await;
    assert_eq!(certificate(), before, "a day too early");
    world.environment.advance(DAY);
    converge(&world, &engine).await;
    assert!(certificate().contains("until 2026-05-31"), "{}", certificate());
    assert_ne!(template(&world), pods);
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_certificate_with_other_names_is_issued_at_once_and_a_renewed_authority_keeps_its_key() {
    let (world, engine) = gadget(&json!({ "names": ["a.example.com"] })).await;
    let key = value(&world, "x-authority", "tls.key");
    edit(&world, "names", &json!(["b.example.com"]));
    converge(&world, &engine).await;
    assert!(value(&world, "x-server", "tls.crt").contains("[b.example.com]"));
    let before = value(&world, "x-authority", "tls.crt");
    world.environment.advance(DAY * 2440);
    converge(&world, &engine).await;
    assert_ne!(value(&world, "x-authority", "tls.crt"), before);
    assert_eq!(value(&world, "x-authority", "tls.key"), key);
    assert_eq!(value(&world, "x-server", "ca.crt"), value(&world, "x-authority", "tls.crt"));
}

#[tokio::test]
async fn a_file_contains_the_values_of_secrets_and_a_changed_value_restarts_the_pods() {
    let world = world();
    user_secret(&world, "pa$$word");
    world.apply_object(&full_object(Gadget::KIND, "x", &json!({ "login": "login" })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let file = || value(&world, "x-options", "secrets.conf");
    let (password, [primary, staged]) =
        (value(&world, "x-values", "password"), ["1", "0"].map(|number| value(&world, "x-ring", number)));
    assert_eq!(
        file(),
        format!(
            "[DEFAULT]\nurl = http://gadget:{password}\n\n[crypto]\nkek = {primary}\nkek = {staged}\n\n\
             [login]\npasswords = {password}\npasswords = pa$$$$word\n"
        )
    );
    let pods = template(&world);
    let mounts = pods["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["subPath"] == "secrets.conf"), "{mounts:?}");
    user_secret(&world, "other");
    converge(&world, &engine).await;
    assert!(file().ends_with("passwords = other\n"), "{}", file());
    assert_ne!(template(&world), pods);
}

#[tokio::test]
async fn a_file_lists_the_key_that_encrypts_first_and_pods_restart_after_a_rotation() {
    let (world, engine) = gadget(&json!({})).await;
    let (pods, former) = (template(&world), value(&world, "x-ring", "1"));
    let staged = value(&world, "x-ring", "0");
    world.environment.advance(DAY);
    edit(&world, "request", &json!("now"));
    converge(&world, &engine).await;
    let file = value(&world, "x-options", "secrets.conf");
    let next = value(&world, "x-ring", "0");
    assert!(file.contains(&format!("kek = {staged}\nkek = {former}\nkek = {next}\n")), "{file}");
    assert_ne!(template(&world), pods);
}

#[tokio::test]
async fn a_value_that_would_be_two_options_stalls_the_object() {
    let (world, engine) = gadget(&json!({})).await;
    user_secret(&world, "a\nauth = none");
    edit(&world, "login", &json!("login"));
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, Gadget::KIND, "x", "Stalled");
    assert_eq!(status, "True");
    assert!(message.contains("key password of Secret login has a line break"), "{message}");
    assert!(!statuses(&world, &engine).contains("auth = none"));
}
