//! Settings of Horizon: what users may override, and how pods apply them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::Plan;
use serde_json::{Value, json};

use crate::fixture::{Case, case};

fn plan(case: &Case) -> Plan {
    case.render(&Observed::default()).unwrap().plan
}

fn settings(case: &Case) -> Value {
    serde_json::from_str(plan(case).files["settings.json"].text().unwrap()).unwrap()
}

/// The case with one setting of the user.
fn with_setting(name: &str, value: &str) -> Case {
    let mut case = case("horizon-minimal");
    case.spec["settings"] = json!({ name: value });
    case
}

#[test]
fn a_setting_is_json_or_else_a_string() {
    for (text, value) in [
        ("7200", json!(7200)),
        ("true", json!(true)),
        ("null", Value::Null),
        ("[\"a\"]", json!(["a"])),
        ("ACME Cloud", json!("ACME Cloud")),
        ("\"7200\"", json!("7200")),
        ("", json!("")),
        ("'; import os", json!("'; import os")),
    ] {
        assert_eq!(settings(&with_setting("SITE_BRANDING", text))["SITE_BRANDING"], value, "{text}");
    }
}

#[test]
fn a_map_of_the_user_is_merged_into_that_of_the_operator() {
    let merged = settings(&with_setting("LOGGING", r#"{ "root": { "level": "DEBUG" } }"#));
    assert_eq!(merged["LOGGING"]["root"], json!({ "level": "DEBUG" }));
    assert_eq!(merged["LOGGING"]["version"], 1);
}

#[test]
fn a_setting_that_cannot_be_applied_is_refused_with_its_name() {
    for (name, text, reason) in [
        ("SECRET_KEY", "x", "comes from a Secret"),
        ("WEBROOT", "/dashboard/", "use publicHostname"),
        ("STATIC_URL", "/files/", "remove it"),
        ("session_timeout", "1", "names consist of capitals"),
        ("_PRIVATE", "1", "names consist of capitals"),
        ("HORIZON_CONFIG", "{ help_url: x }", "is not valid JSON"),
        ("SITE_BRANDING", "\"ACME", "is not valid JSON"),
    ] {
        let refused = with_setting(name, text).render(&Observed::default()).err().unwrap();
        assert_eq!(refused.path, format!("spec.settings.{name}"));
        assert!(refused.reason.contains(reason), "{refused}");
    }
}

#[test]
fn sessions_need_servers() {
    let mut case = case("horizon-minimal");
    case.spec["cache"] = json!({});
    let refused = case.render(&Observed::default()).err().unwrap();
    assert_eq!(refused.path, "spec.cache");
}

/// Browsers do not send secure cookies to a dashboard without TLS, so that users could not log in.
#[test]
fn cookies_are_secure_if_the_public_url_is() {
    let mut case = case("horizon-rich");
    let secure = |case: &Case| {
        let settings = settings(case);
        let given = ["SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_PROXY_SSL_HEADER"]
            .map(|name| settings.get(name).is_some());
        assert!(given.iter().all(|one| *one == given[0]), "{settings}");
        given[0]
    };
    assert!(secure(&case));
    case.spec["publicScheme"] = json!("http");
    assert!(!secure(&case));
    case.spec["publicScheme"] = json!("https");
    case.spec.as_object_mut().unwrap().remove("gatewayRef");
    assert!(!secure(&case));
}

/// Directory instead of that of the settings of a pod, with a dashboard of a service.
fn directory(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("horizon").join(name);
    if root.exists() {
        std::fs::remove_dir_all(&root).unwrap();
    }
    for (file, text) in [
        ("heat_dashboard/__init__.py", ""),
        ("heat_dashboard/enabled/_1610_panel.py", ""),
        (
            "heat_dashboard/local_settings.d/_1699_settings.py",
            "OPENSTACK_HEAT_STACK = {'enable_user_pass': True}",
        ),
        ("heat_dashboard/conf/heat_policy.yaml", ""),
        ("policy.d/policy.yaml", ""),
    ] {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

/// Applies settings of a pod to defaults like those of Horizon, and prints them.
fn apply(root: &Path, settings: &Value) -> Output {
    const DEFAULTS: &str = "
import json, sys, types
root = sys.argv[1]
enabled = types.SimpleNamespace(__path__=[])
names = {
    'ALLOWED_HOSTS': [], 'HORIZON_CONFIG': {'help_url': None, 'bug_url': None}, 'LOCAL_SETTINGS_DIR_PATH': root,
    'POLICY_FILES': {'compute': 'nova.yaml', 'orchestration': 'heat_policy.yaml'}, 'DEFAULT_POLICY_FILES': {},
    'POLICY_DIRS': {'compute': ['nova_policy.d']}, 'POLICY_FILES_PATH': root, 'local_enabled': enabled,
}
exec(sys.stdin.read(), names)
shown = {name: value for name, value in names.items() if name.isupper()}
print(json.dumps({**shown, 'enabled': enabled.__path__}))
";
    let text = plan(&case("horizon-minimal")).files["operator_settings.py"].text().unwrap().to_owned();
    let text = text.replace("/etc/openstack-dashboard", root.to_str().unwrap());
    let program = root.join("operator_settings.py");
    std::fs::write(&program, text).unwrap();
    std::fs::write(root.join("settings.json"), settings.to_string()).unwrap();
    Command::new("python3")
        .args(["-c", DEFAULTS])
        .arg(root)
        .stdin(std::fs::File::open(program).unwrap())
        .env("PYTHONPATH", root)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("POD_IP", "10.0.0.7")
        .output()
        .unwrap()
}

#[test]
fn a_pod_merges_its_settings_and_adds_the_dashboards_of_its_image() {
    let root = directory("merged");
    let given = json!({
        "ALLOWED_HOSTS": ["dashboard.example.com"],
        "HORIZON_CONFIG": { "help_url": "https://help.example.com" },
        "OPENSTACK_HEAT_STACK": { "enable_user_pass": false },
    });
    let output = apply(&root, &given);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["ALLOWED_HOSTS"], json!(["dashboard.example.com", "10.0.0.7", "[10.0.0.7]"]));
    assert_eq!(found["HORIZON_CONFIG"], json!({ "help_url": "https://help.example.com", "bug_url": null }));
    // The user overrides settings of dashboards.
    assert_eq!(found["OPENSTACK_HEAT_STACK"], json!({ "enable_user_pass": false }));
    let path = |file: &str| root.join(file).to_str().unwrap().to_owned();
    assert_eq!(found["enabled"], json!([path("heat_dashboard/enabled")]));
    assert_eq!(found["POLICY_FILES"]["orchestration"], path("heat_dashboard/conf/heat_policy.yaml"));
    assert_eq!(found["POLICY_FILES"]["compute"], "nova.yaml");
    assert_eq!(found["POLICY_DIRS"]["compute"], json!(["nova_policy.d", path("policy.d")]));
}

/// Horizon ignores the errors of settings, and would run with its defaults.
#[test]
fn a_pod_that_cannot_apply_its_settings_ends() {
    let output = apply(&directory("ended"), &json!({ "ALLOWED_HOSTS": "dashboard.example.com" }));
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("failed to apply the settings of the operator"), "{error}");
}
