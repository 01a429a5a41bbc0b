//! Invariants of Secrets: each has a writer, and no value is in plain text.

use std::collections::BTreeSet;

use openstack_operator_model::plan::{
    CERTIFICATE_KEYS, Entry, Mount, Piece, SSH_KEYS, SecretContent, SecretKey, Variable, VariableValue,
};

use openstack_operator_model::lower::Observed;
use serde_json::json;

use crate::fixture::{rendered, rendered_and_gadget, walk};

#[test]
fn every_referenced_secret_is_written_by_the_plan_or_needed() {
    for (case, rendered) in rendered_and_gadget() {
        let planned = rendered.plan.secrets.iter().map(|secret| secret.name.as_str());
        let needed = rendered.needs.secrets.iter().map(|need| need.name.as_str());
        let provided = rendered.provided_secrets.iter().map(String::as_str);
        let known: BTreeSet<&str> = planned.chain(needed).chain(provided).collect();
        let mut named: Vec<String> = Vec::new();
        for manifest in &rendered.manifests {
            walk("", &manifest.body, &mut |path, value| {
                // The user provides the Secrets of extra mounts.
                if path.contains("extraMounts") {
                    return;
                }
                let name = match path.rsplit('.').next() {
                    Some("secretKeyRef") => &value["name"],
                    Some("secret") => &value["secretName"],
                    _ => return,
                };
                named.push(name.as_str().unwrap().to_owned());
            });
        }
        named.extend(rendered.plan.databases.iter().map(|database| database.secret.clone()));
        named.extend(rendered.plan.messaging.iter().map(|messaging| messaging.secret.clone()));
        named.extend(rendered.plan.provides.database.iter().map(|server| server.secret.clone()));
        named.extend(rendered.plan.provides.messaging.iter().map(|server| server.secret.clone()));
        named.extend(rendered.plan.provides.identity.iter().filter_map(|server| server.secret.clone()));
        named.extend(rendered.plan.provides.notifications.iter().map(|server| server.secret.clone()));
        if let Some(server) = &rendered.plan.provides.compute {
            named.extend([server.metadata_secret.clone(), server.identity_secret.clone()]);
            named.extend(server.cells.iter().map(|cell| cell.messaging_secret.clone()));
        }
        for name in named {
            assert!(known.contains(name.as_str()), "{}: no object writes Secret {name}", case.title);
        }
    }
}

#[test]
fn every_key_that_is_read_is_written() {
    for (case, rendered) in rendered_and_gadget() {
        let mut read = Vec::new();
        for container in rendered.plan.containers() {
            read.extend(container.environment.iter().filter_map(|variable| match &variable.value {
                VariableValue::Secret(key) => Some(key.clone()),
                VariableValue::Text(_) | VariableValue::Field(_) => None,
            }));
            read.extend(container.mounts.iter().filter_map(|mount| match mount {
                Mount::SecretFile { secret, key, .. } => Some(SecretKey::new(secret, key)),
                _ => None,
            }));
        }
        for secret in &rendered.plan.secrets {
            let SecretContent::Entries(entries) = &secret.content else { continue };
            let templates = entries.values().filter_map(|entry| match entry {
                Entry::Template(pieces) => Some(pieces),
                _ => None,
            });
            read.extend(templates.flatten().filter_map(|piece| match piece {
                Piece::Value(key) | Piece::Escaped(key) | Piece::Option(key) => Some(key.clone()),
                Piece::Text(_) | Piece::Keys { .. } => None,
            }));
        }
        for key in read {
            let planned = rendered.plan.secrets.iter().find(|secret| secret.name == key.secret);
            let has = match planned.map(|secret| &secret.content) {
                Some(SecretContent::Entries(entries)) => entries.contains_key(&key.key),
                Some(SecretContent::KeyRing(_)) => false,
                Some(SecretContent::Certificate(_)) => CERTIFICATE_KEYS.contains(&key.key.as_str()),
                Some(SecretContent::SshKey) => SSH_KEYS.contains(&key.key.as_str()),
                // The test of its own object checks its keys.
                None if rendered.provided_secrets.contains(&key.secret) => true,
                None => rendered
                    .needs
                    .secrets
                    .iter()
                    .any(|need| need.name == key.secret && need.keys.contains(&key.key)),
            };
            assert!(has, "{}: Secret {} has no {}", case.title, key.secret, key.key);
        }
    }
}

#[test]
fn tasks_connect_to_databases_without_timeouts_and_services_with_them() {
    let (mut tasks, mut services) = (0, 0);
    for (case, rendered) in rendered() {
        // Whether the value of a variable is a database connection with timeouts.
        let has_timeout = |variable: &Variable| -> Option<bool> {
            let VariableValue::Secret(key) = &variable.value else { return None };
            let secret = rendered.plan.secrets.iter().find(|secret| secret.name == key.secret)?;
            let SecretContent::Entries(entries) = &secret.content else { return None };
            let Some(Entry::Template(pieces)) = entries.get(&key.key) else { return None };
            let text = format!("{pieces:?}");
            text.contains("mysql+pymysql://").then(|| text.contains("read_timeout="))
        };
        for task in &rendered.plan.tasks {
            // Services use the connections in cell mappings.
            let own = task.container.environment.iter().filter(|own| !own.name.starts_with("CELL_MAPPING_"));
            for timeout in own.filter_map(has_timeout) {
                assert!(!timeout, "{}: a migration of {} may be interrupted", case.title, task.name);
                tasks += 1;
            }
        }
        let pods = rendered.plan.workloads.iter().map(|workload| &workload.pod);
        let containers = pods.flat_map(|pod| pod.setup.iter().chain(&pod.containers));
        for timeout in containers.flat_map(|container| &container.environment).filter_map(has_timeout) {
            assert!(timeout, "{}: a connection to a lost node hangs", case.title);
            services += 1;
        }
    }
    assert!(tasks > 0 && services > 0);
}

/// Options whose values must not be in plain text.
const SECRET_WORDS: [&str; 5] = ["password", "passwd", "secret", "cookie", "token"];

#[test]
fn no_secret_is_in_a_file_an_argument_or_a_plain_variable() {
    let shows = |text: &str| -> Option<String> {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            let (name, value) = (name.trim().to_lowercase(), value.trim());
            // A variable, a placeholder or a path is not the value, with or without quotes.
            let value = value.trim_start_matches(['"', '\'']);
            let reference = value.is_empty() || value.starts_with(['$', '%', '/']);
            let reference = reference || matches!(value, "true" | "false");
            let secret = SECRET_WORDS.iter().any(|word| name.ends_with(word));
            let login = line.split("://").skip(1).any(|rest| {
                let host = rest.split('/').next().unwrap_or_default();
                host.contains('@') && !host.contains('$')
            });
            (secret && !reference || login).then(|| line.to_owned())
        })
    };
    assert!(shows("connection = mysql://x:y@host/db").is_some(), "the check detects a password");
    assert!(shows("  admin_password = hunter2").is_some());
    assert!(shows("password = \"hunter2\"").is_some());
    assert!(shows("PASSWORD='hunter2'").is_some());
    assert!(shows("PASSWORD=\"$ROOT_PASSWORD\"").is_none());
    assert!(shows("--url=http://x:y@host").is_some());
    for (case, rendered) in rendered() {
        for manifest in &rendered.manifests {
            walk("", &manifest.body, &mut |path, value| {
                let Some(text) = value.as_str() else { return };
                let pointless = path.contains(".metadata.") || path.ends_with(".description");
                if !pointless && let Some(line) = shows(text) {
                    panic!("{}: {path} of {} {}: {line}", case.title, manifest.kind.kind, manifest.name);
                }
            });
        }
    }
}

#[test]
fn an_option_that_comes_by_the_environment_is_rejected_in_extra_config() {
    for (title, section, option, instead) in [
        ("keystone-minimal", "database", "connection", "use the field `database`"),
        ("nova-minimal", "DEFAULT", "transport_url", "use the field `messaging`"),
        ("nova-minimal", "keystone_authtoken", "password", "use the field `keystone`"),
        ("nova-compute-minimal", "DEFAULT", "transport_url", "use the field `messaging`"),
        ("nova-compute-minimal", "DEFAULT", "host", "the operator derives its value"),
        ("nova-compute-minimal", "DEFAULT", "my_ip", "the operator derives its value"),
        ("nova-compute-minimal", "libvirt", "virt_type", "use the field `virtType`"),
    ] {
        let mut case = crate::fixture::case(title);
        let file = if title.starts_with("keystone") { "keystone.conf" } else { "nova.conf" };
        case.spec["extraConfig"] = json!({ file: { section: { option: "x" } } });
        let refused = case.render(&Observed::default()).err().unwrap();
        assert_eq!(refused.path, format!("spec.extraConfig.{file:?}.{section}.{option}"));
        assert!(refused.reason.contains(&format!("remove it; {instead}")), "{refused}");
    }
}

#[test]
fn an_option_that_a_script_sets_only_on_some_nodes_can_be_overridden() {
    let mut case = crate::fixture::case("nova-compute-minimal");
    case.spec["extraConfig"] = json!({ "nova.conf": { "libvirt": { "cpu_mode": "host-passthrough" } } });
    assert!(case.render(&Observed::default()).is_ok());
}

#[test]
fn a_user_secret_with_the_name_of_an_operator_secret_is_rejected() {
    let mut case = crate::fixture::case("placement-existing");
    case.spec["database"]["secretRef"]["name"] = json!("test-database");
    let refused = case.render(&Observed::default()).err().unwrap();
    assert_eq!(refused.path, "spec.database.secretRef.name");
    assert!(refused.reason.contains("choose another name"), "{refused}");
}
