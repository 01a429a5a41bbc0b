//! Invariants of the source: dependencies of the pure crates, and crates without service names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use openstack_operator_services::{ALL, PARTS, fields_beyond_identity};

/// Planned services. Their names must not appear in other crates either. Watcher is excluded, because Kubernetes
/// clients use the word.
const PLANNED: [&str; 23] = [
    "aodh",
    "blazar",
    "ceilometer",
    "cinder",
    "cloudkitty",
    "cortex",
    "cyborg",
    "designate",
    "gnocchi",
    "ironic",
    "magnum",
    "manila",
    "masakari",
    "mistral",
    "octavia",
    "skyline",
    "swift",
    "tacker",
    "tempest",
    "trove",
    "valkey",
    "venus",
    "zaqar",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let tests = path.file_stem().is_some_and(|name| name == "tests" || name == "testing");
        if path.is_dir() && !tests {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !tests {
            found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Words of a source file without comments and tests.
fn words(text: &str) -> BTreeSet<String> {
    let program = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut words = BTreeSet::new();
    for line in program.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for word in code.split(|c: char| !c.is_ascii_alphanumeric()) {
            words.insert(word.to_lowercase());
            // `KeystoneUser` is two words.
            let mut part = String::new();
            for character in word.chars() {
                if character.is_ascii_uppercase() {
                    words.insert(std::mem::take(&mut part));
                }
                part.push(character.to_ascii_lowercase());
            }
            words.insert(part);
        }
    }
    words
}

#[test]
fn words_are_found_in_identifiers_and_strings() {
    let text =
        "let x = keystone_url; // swift\nstruct NovaCell;\nlet y = \"http://glance\";\n#[cfg(test)]\nheat";
    let found = words(text);
    for word in ["keystone", "nova"] {
        assert!(found.contains(word), "{word} in {found:?}");
    }
    for word in ["swift", "heat"] {
        assert!(!found.contains(word), "{word} in {found:?}");
    }
}

#[test]
fn existing_services_are_not_planned_services() {
    let existing: Vec<&str> =
        ALL.iter().map(|service| service.name()).filter(|name| PLANNED.contains(name)).collect();
    assert_eq!(existing, [""; 0]);
}

#[test]
fn a_cloud_that_issues_tokens_has_keystone_and_its_dependencies() {
    let further: Vec<&str> = fields_beyond_identity().collect();
    let kept: Vec<&str> =
        PARTS.iter().map(|part| part.field()).filter(|field| !further.contains(field)).collect();
    assert_eq!(kept, ["mariadb", "rabbitmq", "memcached", "keystone"]);
}

#[test]
fn only_the_services_crate_contains_service_names() {
    let own = ALL.iter().flat_map(|service| [service.name().to_owned(), service.kind().kind.to_lowercase()]);
    let names: BTreeSet<String> = own.chain(PLANNED.map(str::to_owned)).collect();
    let mut found = Vec::new();
    for part in ["engine", "model", "adapters"] {
        let mut files = Vec::new();
        sources(&root().join("crates").join(part).join("src"), &mut files);
        assert!(files.len() > 5, "{part}");
        for (path, text) in files {
            let known: Vec<String> = words(&text).intersection(&names).cloned().collect();
            if !known.is_empty() {
                found.push(format!("{} knows {}", path.display(), known.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// TLS becomes a switch only if one place knows the scheme.
#[test]
fn no_url_is_written_with_its_scheme() {
    for part in ["model", "services", "engine"] {
        let mut files = Vec::new();
        sources(&root().join("crates").join(part).join("src"), &mut files);
        for (path, text) in files {
            let program = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code = program.lines().filter(|line| !line.trim_start().starts_with("//"));
            let written = code.filter(|line| line.contains("\"http://") || line.contains("\"https://"));
            // Descriptions of fields have examples.
            let written: Vec<&str> = written.filter(|line| !line.contains("#[")).collect();
            assert_eq!(written, [""; 0], "{}", path.display());
        }
    }
}

fn manifest(part: &str) -> toml::Table {
    let path = root().join("crates").join(part).join("Cargo.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

#[test]
fn pure_crates_have_no_client_clock_or_randomness() {
    for part in ["model", "services"] {
        let manifest = manifest(part);
        let dependencies = manifest["dependencies"].as_table().unwrap();
        for impure in [
            "tokio",
            "rand",
            "reqwest",
            "futures",
            "hyper",
            "mysql_async",
            "axum",
            "openstack-operator-engine",
        ] {
            assert!(!dependencies.contains_key(impure), "{part} depends on {impure}");
        }
        let features: Vec<&str> = dependencies["kube"]["features"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(toml::Value::as_str)
            .collect();
        assert_eq!(features, ["derive"], "{part}");
        assert!(manifest.get("build-dependencies").is_none());
    }
    let workspace: toml::Table = std::fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let kube = &workspace["workspace"]["dependencies"]["kube"];
    assert_eq!(kube["default-features"].as_bool(), Some(false), "or the pure crates have a client after all");
}

#[test]
fn pure_code_does_not_read_the_time_or_the_environment() {
    let impure =
        ["SystemTime", "Instant::now", "Timestamp::now", "std::env", "std::fs", "std::net", "std::process"];
    for part in ["model", "services"] {
        let mut files = Vec::new();
        sources(&root().join("crates").join(part).join("src"), &mut files);
        for (path, text) in files {
            let used = impure.iter().find(|word| text.contains(**word));
            assert_eq!(used, None, "{}", path.display());
        }
    }
}
