//! A user of the cloud: a pod with the command-line client and the clouds.yaml that the operator writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, EnvVar, ImageVolumeSource, Volume, VolumeMount,
};
use openstack_operator_e2e::proofs::{CLIENT, proofs};
use openstack_operator_smoke::pod::{at_home, container, metadata};
use openstack_operator_smoke::{Sandbox, notice};
use serde_json::Value;

use crate::cloud::Cloud;
use crate::operator::Operator;

/// Volume with the disk of a guest.
const GUEST: &str = "guest";
/// Volume with the proofs.
const PROOFS: &str = "proofs";
/// Prints the files that a proof leaves, e.g. screenshots, as JSON.
const RESULTS: &str = r#"
import base64, json, pathlib
files = pathlib.Path("/tmp/results").glob("*")
print(json.dumps({file.name: base64.b64encode(file.read_bytes()).decode() for file in files}))
"#;

#[derive(Clone)]
pub(crate) struct Client {
    sandbox: Arc<Sandbox>,
    operator: Operator,
    cloud: Cloud,
}

impl Client {
    pub(crate) fn new(operator: &Operator, cloud: &Cloud) -> Self {
        Self { sandbox: Arc::clone(&cloud.sandbox), operator: operator.clone(), cloud: cloud.clone() }
    }

    /// Starts the pod and logs in.
    pub(crate) async fn start(&self) -> Result<()> {
        let programs = proofs()?.into_iter().map(|proof| (format!("{}.py", proof.service), proof.program));
        let data = Some(programs.collect());
        self.sandbox.create(&ConfigMap { metadata: metadata(PROOFS), data, ..ConfigMap::default() }).await?;
        self.start_pod(CLIENT).await
    }

    /// Starts a pod with this image and its name, and logs in.
    async fn start_pod(&self, image: &str) -> Result<()> {
        let sandbox = &self.sandbox;
        let mut main = container(image, sandbox.image(image)?, &["sleep", "infinity"]);
        let mount = |name: &str| VolumeMount {
            name: name.to_owned(),
            mount_path: format!("/{name}"),
            ..VolumeMount::default()
        };
        main.volume_mounts = Some([GUEST, PROOFS].map(mount).into());
        let variable = |name: &str, value: &str| EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            ..EnvVar::default()
        };
        main.env = Some(vec![
            variable("OS_CLIENT_CONFIG_FILE", "/tmp/clouds.yaml"),
            variable("OS_CLOUD", &self.cloud.name),
        ]);
        let mut spec = at_home(main);
        let reference = std::env::var("E2E_GUEST_IMAGE").context("E2E_GUEST_IMAGE is not set")?;
        let guest = ImageVolumeSource { reference: Some(reference), ..ImageVolumeSource::default() };
        let programs = ConfigMapVolumeSource { name: PROOFS.to_owned(), ..ConfigMapVolumeSource::default() };
        spec.volumes.get_or_insert_default().extend([
            Volume { name: GUEST.to_owned(), image: Some(guest), ..Volume::default() },
            Volume { name: PROOFS.to_owned(), config_map: Some(programs), ..Volume::default() },
        ]);
        sandbox.start(image, spec).await?;
        self.log_in_pod(image).await
    }

    /// Fetches the administrator's current password.
    pub(crate) async fn log_in(&self) -> Result<()> {
        self.log_in_pod(CLIENT).await
    }

    async fn log_in_pod(&self, pod: &str) -> Result<()> {
        let Cloud { name, namespace, .. } = &self.cloud;
        let arguments = ["login", name, "--namespace", namespace, "--output", "-", "--cloud", name];
        let clouds = self.operator.succeeds(&arguments).await?;
        let script = format!("cat >/tmp/clouds.yaml <<'END'\n{clouds}\nEND\n");
        self.sandbox.shell(pod, pod, &script).await.map(drop)
    }

    pub(crate) async fn shell(&self, script: &str) -> Result<String> {
        self.sandbox.shell(CLIENT, CLIENT, script).await
    }

    /// Runs a Python program with these arguments and returns its output.
    pub(crate) async fn python(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let arguments = arguments.join(" ");
        self.shell(&format!("python3 - {arguments} <<'END'\n{program}\nEND\n")).await
    }

    /// Gets a URL from inside the cluster.
    pub(crate) async fn fetch(&self, url: &str) -> Result<String> {
        let program = "import sys, urllib.request\n\
                       print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())";
        self.python(program, &[&format!("'{url}'")]).await
    }

    /// Runs the command-line client and parses its output.
    pub(crate) async fn openstack(&self, command: &str) -> Result<Value> {
        let text = self.shell(&format!("openstack {command} -f json")).await?;
        serde_json::from_str(&text).with_context(|| format!("openstack {command} printed {text}"))
    }

    /// Runs a service's proof, and keeps the files that it leaves.
    pub(crate) async fn proves(&self, service: &str) -> Result<()> {
        let proof = proofs()?.into_iter().find(|proof| proof.service == service);
        let proof = proof.with_context(|| format!("{service} has no proof"))?;
        let pod = proof.image();
        if pod != CLIENT {
            self.start_pod(pod).await?;
        }
        let outcome = self.sandbox.shell(pod, pod, &format!("python3 /{PROOFS}/{service}.py")).await;
        if pod != CLIENT {
            self.keep_results(pod, service).await?;
        }
        outcome.with_context(|| format!("the proof of {service} failed")).map(drop)
    }

    async fn keep_results(&self, pod: &str, service: &str) -> Result<()> {
        let answer = self.sandbox.shell(pod, pod, &format!("python3 - <<'END'\n{RESULTS}\nEND\n")).await?;
        let files: BTreeMap<String, ByteString> = serde_json::from_str(&answer)?;
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("results").join(service);
        let failure = || format!("failed to write to {}", directory.display());
        fs::create_dir_all(&directory).with_context(failure)?;
        for (name, ByteString(content)) in &files {
            fs::write(directory.join(name), content).with_context(failure)?;
        }
        notice(&format!("the proof of {service} left {} files in {}", files.len(), directory.display()));
        Ok(())
    }
}
