//! `login`: adds a cloud to the clouds.yaml of the OpenStack clients.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use openstack_operator_model::name;
use openstack_operator_model::status::{IdentityServer, Status};
use openstack_operator_services::{control_plane, keystone};
use serde_json::{Value, json};
use snafu::{OptionExt, ResultExt, Snafu};

use crate::cluster::{self, ClusterArguments, GetSnafu, ListSnafu, api};
use crate::{clouds, output};

/// Add a cloud to the clouds.yaml of the OpenStack clients, with the credentials of its administrator.
///
/// Other clouds in the file stay. Only its owner can read the file, since it holds the password.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator login -n openstack
  openstack-operator login cloud -n openstack --output clouds.yaml
  openstack-operator login cloud --internal --output -")]
pub(crate) struct Arguments {
    /// Control plane, or Keystone [default: the only one in the namespace].
    name: Option<String>,
    /// Namespace of the cloud [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// File to write; `-` is standard output [default: `$OS_CLIENT_CONFIG_FILE`, or openstack/clouds.yaml in
    /// `$XDG_CONFIG_HOME` or ~/.config].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the cloud in the file [default: the name of the control plane].
    #[arg(long, value_name = "NAME")]
    cloud: Option<String>,
    /// Use the endpoints inside the cluster.
    #[arg(long)]
    internal: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display("there is no Keystone{wanted} in namespace {namespace}"))]
    NoKeystone { wanted: String, namespace: String },
    #[snafu(display("there are several Keystones in namespace {namespace}: name one of {names}"))]
    SeveralKeystones { names: String, namespace: String },
    #[snafu(display(
        "Keystone {name} is not available yet{message}; openstack-operator status --wait waits for it"
    ))]
    NotAvailable { name: String, message: String },
    #[snafu(display("Secret {secret} has no password under key {key}"))]
    NoPassword { secret: String, key: String },
    #[snafu(display("failed to read {}", path.display()))]
    Read { path: PathBuf, source: std::io::Error },
    #[snafu(display("there is no home directory for clouds.yaml: set HOME, or give --output FILE"))]
    NoHome,
    #[snafu(display("failed to add the cloud to {}: correct the file, or give --output FILE", path.display()))]
    Merge { path: PathBuf, source: clouds::Error },
    #[snafu(display("failed to write {}", path.display()))]
    Write { path: PathBuf, source: std::io::Error },
}

pub(crate) async fn login(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = arguments.cluster.client().await?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let keystone = find(&client, &namespace, arguments.name.as_deref()).await?;
    let identity = identity(&keystone)?;
    let password = password(&client, &namespace, &identity).await?;
    let cloud = arguments.cloud.clone().unwrap_or_else(|| cloud_name(&keystone));
    let entry = entry(&identity, &password, arguments.internal);
    let place = Place::new(arguments.output.as_deref(), |name| std::env::var_os(name).map(PathBuf::from));
    let place = place.context(NoHomeSnafu)?;
    let Some(path) = place.path() else {
        output::print(&clouds::merge("", &cloud, &entry).context(MergeSnafu { path: "-" })?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let text = clouds::merge(&read(path)?, &cloud, &entry).context(MergeSnafu { path })?;
    write(path, &text).context(WriteSnafu { path })?;
    output::print(&place.next_steps(&cloud))?;
    if matches!(place, Place::Clients(_)) && Path::new(FILE).exists() {
        output::remark(&format!("note: in this directory clients read ./{FILE} instead"));
    }
    Ok(ExitCode::SUCCESS)
}

const FILE: &str = "clouds.yaml";
const CONFIG_VARIABLE: &str = "OS_CLIENT_CONFIG_FILE";

/// Where the cloud is written.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Output,
    /// A file that the clients read by default.
    Clients(PathBuf),
    /// A file of the command line.
    Named(PathBuf),
    /// The file that the environment names to the clients.
    Variable(PathBuf),
}

impl Place {
    fn new(given: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
        if let Some(path) = given {
            return Some(if path == Path::new("-") { Self::Output } else { Self::Named(path.to_owned()) });
        }
        if let Some(path) = variable(CONFIG_VARIABLE) {
            return Some(Self::Variable(path));
        }
        // The specification ignores relative paths in this variable.
        let config = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        let config = config.or_else(|| variable("HOME").map(|home| home.join(".config")));
        config.map(|config| Self::Clients(config.join("openstack").join(FILE)))
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Output => None,
            Self::Clients(path) | Self::Named(path) | Self::Variable(path) => Some(path),
        }
    }

    fn next_steps(&self, cloud: &str) -> String {
        let path = self.path().unwrap_or(Path::new("-")).display();
        let file = match self {
            Self::Named(_) => format!("{CONFIG_VARIABLE}={path} "),
            Self::Output | Self::Clients(_) | Self::Variable(_) => String::new(),
        };
        format!(
            "Cloud {cloud} is in {path}. To use it:\n\n  export {file}OS_CLOUD={cloud}\n  openstack token issue\n"
        )
    }
}

/// The Keystone of a control plane of this name, or of this name itself; without a name the only one.
async fn find(client: &Client, namespace: &str, wanted: Option<&str>) -> Result<DynamicObject, Error> {
    let api = api(client, keystone::KIND, Some(namespace));
    let listed = api.list(&ListParams::default()).await;
    let found = listed.context(ListSnafu { resource: keystone::KIND.plural })?.items;
    choose(found, namespace, wanted)
}

fn choose(found: Vec<DynamicObject>, namespace: &str, wanted: Option<&str>) -> Result<DynamicObject, Error> {
    let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    let mut matching: Vec<DynamicObject> = match wanted {
        None => found,
        Some(wanted) => {
            let part = name::part(wanted, "keystone");
            let name = if names.contains(&part) { part } else { wanted.to_owned() };
            found.into_iter().filter(|object| object.name_any() == name).collect()
        }
    };
    match (matching.pop(), matching.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => SeveralKeystonesSnafu { names: names.join(", "), namespace }.fail(),
        (None, _) => {
            let wanted = wanted.map(|wanted| format!(" of {wanted}")).unwrap_or_default();
            NoKeystoneSnafu { wanted, namespace }.fail()
        }
    }
}

fn identity(keystone: &DynamicObject) -> Result<IdentityServer, Error> {
    let status = keystone.data.get("status").cloned().unwrap_or_default();
    let status: Status = serde_json::from_value(status).unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let message = ready.map(|ready| format!(": {}", ready.message)).unwrap_or_default();
    status.provides.identity.context(NotAvailableSnafu { name: keystone.name_any(), message })
}

async fn password(client: &Client, namespace: &str, identity: &IdentityServer) -> Result<String, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let IdentityServer { secret, secret_key: key, .. } = identity;
    let name = secret.as_deref().unwrap_or_default();
    let secret = api.get(name).await.context(GetSnafu { object: format!("Secret {namespace}/{name}") })?;
    let value = secret.data.unwrap_or_default().remove(key).map(|value| value.0);
    let text = value.and_then(|value| String::from_utf8(value).ok()).filter(|text| !text.is_empty());
    text.context(NoPasswordSnafu { secret: name, key })
}

/// The name of the control plane that the Keystone is part of, or its own.
fn cloud_name(keystone: &DynamicObject) -> String {
    let mut owners = keystone.metadata.owner_references.iter().flatten();
    let plane = owners.find(|owner| owner.kind == control_plane::KIND.kind);
    plane.map_or_else(|| keystone.name_any(), |owner| owner.name.clone())
}

fn entry(identity: &IdentityServer, password: &str, internal: bool) -> Value {
    let (url, interface) =
        if internal { (&identity.internal_url, "internal") } else { (&identity.public_url, "public") };
    json!({
        "auth": {
            "auth_url": url,
            "username": identity.username,
            "password": password,
            "project_name": "admin",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
        },
        "region_name": identity.region,
        "interface": interface,
        "identity_api_version": 3,
    })
}

fn read(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.context(ReadSnafu { path }),
    }
}

/// Replaces the file as a whole, so that neither a reader nor a crash leaves half of it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link; its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let draft = parent.join(format!(".clouds.yaml.{}", std::process::id()));
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        });
    if written.is_err() {
        // The draft may not exist; the first failure is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn keystone(name: &str, owner: Option<&str>) -> DynamicObject {
        let owners: Vec<Value> = owner
            .map(|name| json!({ "apiVersion": "a", "kind": "OpenStackControlPlane", "name": name, "uid": "u" }))
            .into_iter()
            .collect();
        serde_json::from_value(json!({ "metadata": { "name": name, "ownerReferences": owners } })).unwrap()
    }

    fn chosen(found: &[&str], wanted: Option<&str>) -> Result<String, String> {
        let found = found.iter().map(|name| keystone(name, None)).collect();
        choose(found, "n", wanted).map(|object| object.name_any()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_keystone_of_a_control_plane_is_found_by_its_name() {
        assert_eq!(chosen(&["cloud-keystone", "other"], Some("cloud")).as_deref(), Ok("cloud-keystone"));
        assert_eq!(chosen(&["cloud-keystone", "other"], Some("other")).as_deref(), Ok("other"));
        assert_eq!(chosen(&["other"], None).as_deref(), Ok("other"));
        assert_eq!(
            chosen(&["a", "b"], None).unwrap_err(),
            "there are several Keystones in namespace n: name one of a, b"
        );
        assert!(
            chosen(&[], Some("cloud"))
                .unwrap_err()
                .starts_with("there is no Keystone of cloud in namespace n")
        );
        assert_eq!(cloud_name(&keystone("cloud-keystone", Some("cloud"))), "cloud");
        assert_eq!(cloud_name(&keystone("own", None)), "own");
    }

    #[test]
    fn an_entry_has_the_settings_that_clients_need() {
        let identity = IdentityServer {
            internal_url: "http://in/v3".to_owned(),
            public_url: "https://out/v3".to_owned(),
            region: "R".to_owned(),
            username: Some("admin".to_owned()),
            secret: Some("s".to_owned()),
            secret_key: "password".to_owned(),
        };
        let public = entry(&identity, "p", false);
        assert_eq!(public["auth"]["auth_url"], "https://out/v3");
        assert_eq!(public["interface"], "public");
        let internal = entry(&identity, "p", true);
        assert_eq!(
            (&internal["auth"]["auth_url"], &internal["interface"]),
            (&json!("http://in/v3"), &json!("internal"))
        );
    }

    #[test]
    fn a_keystone_that_does_not_serve_yet_is_an_error_with_its_reason() {
        let mut waiting = keystone("k", None);
        waiting.data = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "message": "Job x runs",
            "reason": "Waiting", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        let error = identity(&waiting).unwrap_err().to_string();
        assert!(error.starts_with("Keystone k is not available yet: Job x runs; "), "{error}");
    }

    #[test]
    fn only_the_owner_can_read_the_file() {
        let directory = std::env::temp_dir().join(format!("openstack-operator-login-{}", std::process::id()));
        let path = directory.join("below/clouds.yaml");
        write(&path, "a").unwrap();
        write(&path, "b").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_default_is_the_place_of_the_clients() {
        let variables = |set: &'static [(&'static str, &'static str)]| {
            move |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
            }
        };
        let home = variables(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "")]);
        let place = |given: Option<&str>, variable: &dyn Fn(&str) -> Option<PathBuf>| {
            Place::new(given.map(Path::new), variable)
        };
        let clients = place(None, &home).unwrap();
        assert_eq!(clients, Place::Clients("/home/a/.config/openstack/clouds.yaml".into()));
        assert!(clients.next_steps("c").contains("\n  export OS_CLOUD=c\n"));
        let config = variables(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/etc/a")]);
        assert_eq!(place(None, &config), Some(Place::Clients("/etc/a/openstack/clouds.yaml".into())));
        let named = variables(&[("HOME", "/home/a"), (CONFIG_VARIABLE, "/c.yaml")]);
        assert_eq!(place(None, &named), Some(Place::Variable("/c.yaml".into())));
        let given = place(Some("x.yaml"), &named).unwrap();
        assert!(given.next_steps("c").contains("export OS_CLIENT_CONFIG_FILE=x.yaml OS_CLOUD=c\n"));
        assert_eq!(place(Some("-"), &named), Some(Place::Output));
        assert_eq!(place(None, &variables(&[])), None);
    }
}
