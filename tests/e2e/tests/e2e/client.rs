//! A user of the cloud: the command-line client in a pod, with the clouds.yaml that the operator writes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{EnvVar, ImageVolumeSource, Volume, VolumeMount};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::pod::{at_home, container};
use serde_json::Value;

use crate::cloud::Cloud;
use crate::operator::Operator;

const POD: &str = "client";
/// Volume with the disk of a guest, and its path.
const GUEST: &str = "guest";

pub(crate) struct Client<'a> {
    sandbox: &'a Sandbox,
    operator: &'a Operator,
    cloud: &'a Cloud<'a>,
}

impl<'a> Client<'a> {
    pub(crate) async fn start(
        sandbox: &'a Sandbox,
        operator: &'a Operator,
        cloud: &'a Cloud<'a>,
        guest: Option<String>,
    ) -> Result<Self> {
        let mut main = container(POD, sandbox.image("client")?, &["sleep", "infinity"]);
        let mount = |name: &str| VolumeMount {
            name: name.to_owned(),
            mount_path: format!("/{name}"),
            ..VolumeMount::default()
        };
        main.volume_mounts = guest.is_some().then(|| vec![mount(GUEST)]);
        let variable = |name: &str, value: &str| EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            ..EnvVar::default()
        };
        main.env = Some(vec![
            variable("OS_CLIENT_CONFIG_FILE", "/tmp/clouds.yaml"),
            variable("OS_CLOUD", cloud.name),
        ]);
        let mut spec = at_home(main);
        spec.volumes.get_or_insert_default().extend(guest.map(|reference| Volume {
            name: GUEST.to_owned(),
            image: Some(ImageVolumeSource { reference: Some(reference), ..ImageVolumeSource::default() }),
            ..Volume::default()
        }));
        sandbox.start(POD, spec).await?;
        let client = Self { sandbox, operator, cloud };
        client.log_in().await?;
        Ok(client)
    }

    /// Fetches the administrator's password anew.
    pub(crate) async fn log_in(&self) -> Result<()> {
        let arguments = [
            "login",
            self.cloud.name,
            "--namespace",
            &self.sandbox.namespace,
            "--output",
            "-",
            "--cloud",
            self.cloud.name,
        ];
        let clouds = self.operator.succeeds(&arguments).await?;
        let script = format!("cat >/tmp/clouds.yaml <<'END'\n{clouds}\nEND\n");
        self.shell(&script).await.map(drop)
    }

    pub(crate) async fn shell(&self, script: &str) -> Result<String> {
        self.sandbox.shell(POD, POD, script).await
    }

    /// What an address answers, asked from inside the cluster.
    pub(crate) async fn fetch(&self, url: &str) -> Result<String> {
        let program = format!(
            "import urllib.request; print(urllib.request.urlopen({url:?}, timeout=10).read().decode())"
        );
        self.shell(&format!("python3 -c {program:?}", program = program.replace('"', "'"))).await
    }

    /// Runs the client and reads its answer.
    pub(crate) async fn openstack(&self, command: &str) -> Result<Value> {
        let text = self.shell(&format!("openstack {command} -f json")).await?;
        serde_json::from_str(&text).with_context(|| format!("openstack {command} answered {text}"))
    }

    /// A token, the catalog and the users, through the Gateway.
    pub(crate) async fn uses_the_cloud(&self) -> Result<()> {
        let token = self.openstack("token issue").await?;
        ensure!(token["id"].is_string(), "no token: {token}");
        let catalog = self.openstack("catalog list").await?;
        let text = catalog.to_string();
        ensure!(text.contains(&self.cloud.hostname()), "the catalog has no public address: {text}");
        let users = self.openstack("user list").await?;
        ensure!(users.to_string().contains("\"admin\""), "no administrator: {users}");
        let projects = self.openstack("project list").await?;
        ensure!(projects.to_string().contains("\"service\""), "no project for services: {projects}");
        Ok(())
    }
}
