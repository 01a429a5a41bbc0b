//! The OpenStack client of the local cloud. It runs in a pod, where the public names of the cloud resolve.

use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, stdin, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::NAMESPACE;
use crate::cluster::settings::Settings;
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::images::{Builder, PROJECT, RELEASE};
use crate::kubectl::Kubectl;
use crate::progress;
use crate::store::Key;

/// The pod and its container.
const POD: &str = "openstack-client";
/// The annotation with the hash of the manifest that the pod was created from.
const MANIFEST: &str = "xtask/manifest";
/// The directory with the administrator's password. The kubelet updates it when the Secret changes.
const CREDENTIALS: &str = "/credentials";
/// Runs a program with the password in its environment: never in an argument.
const AUTHENTICATE: &str = r#"OS_PASSWORD=$(cat /credentials/password) exec "$0" "$@""#;
const REMEDY: &str = "run cargo xtask up";

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of the client, e.g. server list. It reads files of its pod only; pass a file as standard input.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process with the client: standard streams, terminal, signals and exit code are the client's.
pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<()> {
    let client = Client::start(directories)?;
    let terminal = stdin().is_terminal() && stdout().is_terminal();
    let mut command = client.command("openstack", terminal);
    let error = command.args(&arguments.arguments).exec();
    Err(error).context("failed to start kubectl")
}

/// The client's pod, which runs.
pub(super) struct Client {
    kubectl: Kubectl,
}

impl Client {
    /// Starts the pod unless it runs already, with the administrator and the images of today.
    pub(super) fn start(directories: &Directories) -> Result<Self> {
        let settings =
            Settings::load(directories)?.with_context(|| format!("there is no local cluster: {REMEDY}"))?;
        let kubectl = Kubectl::local(directories)?;
        let manifest = manifest(&administrator(&kubectl)?, &Images::find(directories, &settings)?);
        if !is_running(&kubectl, &manifest)? {
            progress::notify(&format!("starting the client in pod {POD}"));
            create(directories, &kubectl, &manifest)?;
        }
        Ok(Self { kubectl })
    }

    /// A program in the pod, as the administrator of the cloud; its arguments are still to be added.
    pub(super) fn command(&self, program: &str, terminal: bool) -> Command {
        let mut command = self.kubectl.command();
        command.args(["--namespace", NAMESPACE, "exec", "--quiet", "--stdin"]);
        command.args(terminal.then_some("--tty"));
        command.args([POD, "--", "sh", "-c", AUTHENTICATE, program]);
        command
    }
}

/// The administrator of the cloud, as the status of its Keystone states.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Administrator {
    public_url: String,
    region: String,
    pub(crate) username: String,
    pub(crate) secret: String,
    pub(crate) secret_key: String,
}

pub(crate) fn administrator(kubectl: &Kubectl) -> Result<Administrator> {
    let get = ["--namespace", NAMESPACE, "get", "keystones.openstack.k8s.io", "--output=json"];
    let answer = output(kubectl.query().args(get));
    let answer = answer.with_context(|| format!("the local cluster has no cloud: {REMEDY}"))?;
    find_administrator(&serde_json::from_str(&answer).context("kubectl did not return JSON")?)
}

fn find_administrator(keystones: &Value) -> Result<Administrator> {
    let keystones = keystones["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [keystone] = keystones else {
        bail!("namespace {NAMESPACE} has {} Keystones instead of one: {REMEDY}", keystones.len());
    };
    let identity = keystone.pointer("/status/provides/identity").cloned();
    let identity = identity
        .with_context(|| format!("Keystone is not available yet: {REMEDY}, and wait until it ends"))?;
    serde_json::from_value(identity).context("the status of Keystone does not name the administrator")
}

/// References of the images, as pods name them.
struct Images {
    client: String,
    guest: String,
}

impl Images {
    fn find(directories: &Directories, settings: &Settings) -> Result<Self> {
        let builder = Builder::new(directories);
        let reference = |image: &str| -> Result<String> {
            // A recipe that changed since the last build has no image yet: the image of the last build will do.
            let candidates = [builder.name(image)?, format!("{PROJECT}/{image}:{RELEASE}")];
            let found = candidates.into_iter().find(|name| builder.has(name));
            let found = found.with_context(|| format!("the registry has no image {image}: {REMEDY}"))?;
            Ok(format!("{}/{found}", settings.addresses.registry()))
        };
        Ok(Self { client: reference("client")?, guest: reference("guest")? })
    }
}

fn is_running(kubectl: &Kubectl, manifest: &Value) -> Result<bool> {
    let get = ["--namespace", NAMESPACE, "get", "pod", POD, "--ignore-not-found", "--output=json"];
    let answer = output(kubectl.query().args(get))?;
    if answer.trim().is_empty() {
        return Ok(false);
    }
    Ok(matches(&serde_json::from_str(&answer).context("kubectl did not return JSON")?, manifest))
}

/// Whether the pod runs and was created from the manifest.
fn matches(pod: &Value, manifest: &Value) -> bool {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let is_ready = statuses.is_some_and(|statuses| statuses.iter().all(|status| status["ready"] == true));
    is_ready
        && pod.pointer("/metadata/deletionTimestamp").is_none()
        && pod["metadata"]["annotations"][MANIFEST] == manifest["metadata"]["annotations"][MANIFEST]
}

fn create(directories: &Directories, kubectl: &Kubectl, manifest: &Value) -> Result<()> {
    let log = Log::create(directories, POD)?;
    let path = directories.cluster().join(format!("{POD}.json"));
    fs::write(&path, manifest.to_string()).with_context(|| format!("failed to write {}", path.display()))?;
    // Forced, because the kubelet of a lost node never confirms a deletion.
    let delete = ["delete", "pod", POD, "--ignore-not-found", "--force", "--grace-period=0"];
    log.run(kubectl.command().args(["--namespace", NAMESPACE]).args(delete))?;
    kubectl.apply(Some(NAMESPACE), &path, &log)?;
    kubectl.wait_for("Ready", Some(NAMESPACE), &[&format!("pod/{POD}")], &log)
}

fn manifest(administrator: &Administrator, images: &Images) -> Value {
    let mut pod = pod(administrator, images);
    let hash = Key::default().text(&pod.to_string()).digits();
    pod["metadata"]["annotations"] = json!({ MANIFEST: hash });
    pod
}

/// A pod that the restricted Pod Security Standard admits, with a read-only root file system.
fn pod(administrator: &Administrator, images: &Images) -> Value {
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": POD, "labels": { "app.kubernetes.io/name": POD } },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": POD,
                "image": images.client,
                "command": ["sleep", "infinity"],
                "workingDir": "/tmp",
                "env": [
                    variable("HOME", "/tmp"),
                    variable("OS_AUTH_URL", &administrator.public_url),
                    variable("OS_IDENTITY_API_VERSION", "3"),
                    variable("OS_INTERFACE", "public"),
                    variable("OS_PROJECT_DOMAIN_NAME", "Default"),
                    variable("OS_PROJECT_NAME", "admin"),
                    variable("OS_REGION_NAME", &administrator.region),
                    variable("OS_USERNAME", &administrator.username),
                    variable("OS_USER_DOMAIN_NAME", "Default"),
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
                "volumeMounts": [
                    { "name": "credentials", "mountPath": CREDENTIALS, "readOnly": true },
                    { "name": "guest", "mountPath": "/guest" },
                    { "name": "tmp", "mountPath": "/tmp" },
                ],
            }],
            "volumes": [
                {
                    "name": "credentials",
                    "secret": {
                        "secretName": administrator.secret,
                        "items": [{ "key": administrator.secret_key, "path": "password" }],
                    },
                },
                { "name": "guest", "image": { "reference": images.guest } },
                { "name": "tmp", "emptyDir": {} },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn keystone(identity: &Value) -> Value {
        json!({ "items": [{ "status": { "provides": { "identity": identity } } }] })
    }

    fn identity() -> Value {
        json!({
            "internalUrl": "http://cloud-keystone.openstack.svc:5000/v3",
            "publicUrl": "http://keystone.openstack.test/v3",
            "region": "RegionOne",
            "username": "admin",
            "secret": "cloud-keystone-admin",
            "secretKey": "password",
        })
    }

    fn images() -> Images {
        Images { client: "r/client:1".to_owned(), guest: "r/guest:1".to_owned() }
    }

    #[test]
    fn all_arguments_are_the_clients() {
        for line in ["--help", "server list -f json --long", "--os-cloud a -- b", "-h", ""] {
            let words: Vec<&str> = line.split_whitespace().collect();
            let parsed = CommandLine::parse_from(std::iter::once(&"openstack").chain(&words));
            assert_eq!(parsed.arguments.arguments, words, "{line}");
        }
    }

    #[test]
    fn the_client_runs_with_the_password_of_the_mounted_secret() {
        let client = Client { kubectl: Kubectl::existing("kubectl".into(), "/c/kubeconfig".into()) };
        let mut command = client.command("openstack", false);
        let line = crate::command::show(command.args(["server", "list"]));
        assert_eq!(
            line,
            "kubectl --kubeconfig /c/kubeconfig --namespace openstack exec --quiet --stdin openstack-client \
             -- sh -c OS_PASSWORD=$(cat /credentials/password) exec \"$0\" \"$@\" openstack server list"
        );
        assert!(crate::command::show(&client.command("openstack", true)).contains("--stdin --tty "));
    }

    #[test]
    fn the_pod_names_the_secret_and_contains_no_password() -> Result<()> {
        let manifest = manifest(&find_administrator(&keystone(&identity()))?, &images());
        let secret = manifest.pointer("/spec/volumes/0/secret/secretName");
        assert_eq!(secret, Some(&json!("cloud-keystone-admin")));
        let variables = manifest.pointer("/spec/containers/0/env").map(ToString::to_string);
        assert!(variables.is_some_and(|variables| !variables.contains("PASSWORD")));
        Ok(())
    }

    #[test]
    fn a_pod_of_another_manifest_is_replaced() -> Result<()> {
        let administrator = find_administrator(&keystone(&identity()))?;
        let wanted = manifest(&administrator, &images());
        let mut pod = wanted.clone();
        assert!(!matches(&pod, &wanted), "it does not run yet");
        pod["status"] = json!({ "containerStatuses": [{ "ready": true }] });
        assert!(matches(&pod, &wanted));
        let newer = Images { client: "r/client:2".to_owned(), ..images() };
        assert!(!matches(&pod, &manifest(&administrator, &newer)));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!matches(&pod, &wanted));
        Ok(())
    }

    #[test]
    fn a_missing_cloud_is_reported_with_its_remedy() {
        let error = |keystones: &Value| format!("{:#}", find_administrator(keystones).unwrap_err());
        assert!(error(&json!({ "items": [] })).contains("0 Keystones instead of one: run cargo xtask up"));
        assert!(error(&keystone(&Value::Null)).contains("does not name the administrator"));
        assert!(error(&json!({ "items": [{}] })).contains("not available yet: run cargo xtask up"));
    }
}
