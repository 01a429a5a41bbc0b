//! Pod specifications that tests adjust and run.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, HTTPGetAction, Pod,
    PodSecurityContext, PodSpec, Probe, SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{LogParams, ObjectMeta};

use crate::Sandbox;
use crate::wait::{POD_START, await_condition, is_pod_finished, is_pod_ready, pod_phase};

/// An arbitrary user, which no image knows.
pub const USER: i64 = 65532;
/// The port that [`answering`] serves.
pub const PORT: u16 = 8080;

/// Answers every request with the name of its pod.
const ANSWER_WITH_NAME: &str = r#"
import http.server, socket

class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = socket.gethostname().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(name)))
        self.end_headers()
        self.wfile.write(name)

http.server.ThreadingHTTPServer(("", 8080), Name).serve_forever()
"#;

#[must_use]
pub fn container(name: &str, image: String, command: &[&str]) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image),
        command: Some(command.iter().map(ToString::to_string).collect()),
        ..Container::default()
    }
}

/// One container that meets the restricted Pod Security Standard, with a read-only root.
#[must_use]
pub fn restricted(mut container: Container) -> PodSpec {
    container.security_context = Some(SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    });
    PodSpec {
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        ..unconfined(vec![container])
    }
}

/// The same with a writable `/tmp` as home directory.
#[must_use]
pub fn at_home(mut container: Container) -> PodSpec {
    let mount =
        VolumeMount { name: "tmp".to_owned(), mount_path: "/tmp".to_owned(), ..VolumeMount::default() };
    container.volume_mounts.get_or_insert_default().push(mount);
    let home = EnvVar { name: "HOME".to_owned(), value: Some("/tmp".to_owned()), ..EnvVar::default() };
    container.env.get_or_insert_default().push(home);
    let tmp = Some(EmptyDirVolumeSource::default());
    let volume = Volume { name: "tmp".to_owned(), empty_dir: tmp, ..Volume::default() };
    PodSpec { volumes: Some(vec![volume]), ..restricted(container) }
}

/// Containers with the users and privileges of their images and security contexts.
#[must_use]
pub fn unconfined(containers: Vec<Container>) -> PodSpec {
    PodSpec {
        containers,
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        // The first process of a container ignores SIGTERM, and no test needs a graceful end.
        termination_grace_period_seconds: Some(1),
        ..PodSpec::default()
    }
}

/// A restricted pod that answers HTTP with its own name.
#[must_use]
pub fn answering(image: String) -> PodSpec {
    let port = IntOrString::Int(PORT.into());
    restricted(Container {
        ports: Some(vec![ContainerPort { container_port: PORT.into(), ..ContainerPort::default() }]),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction { port, ..HTTPGetAction::default() }),
            period_seconds: Some(2),
            timeout_seconds: Some(5),
            ..Probe::default()
        }),
        ..container("main", image, &["python3", "-c", ANSWER_WITH_NAME])
    })
}

/// A Service on port 80 for the [`answering`] pods labelled with its name.
#[must_use]
pub fn service(name: &str) -> Service {
    Service {
        metadata: metadata(name),
        spec: Some(ServiceSpec {
            selector: metadata(name).labels,
            ports: Some(vec![ServicePort {
                port: 80,
                target_port: Some(IntOrString::Int(PORT.into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// A name, and a label of the same value for selectors.
#[must_use]
pub fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("app.kubernetes.io/name".to_owned(), name.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

impl Sandbox {
    /// Starts a pod and waits until it is ready.
    pub async fn start(&self, name: &str, spec: PodSpec) -> Result<Pod> {
        self.create(&Pod { metadata: metadata(name), spec: Some(spec), ..Pod::default() }).await?;
        await_condition(&self.api(), name, "to be ready", POD_START, is_pod_ready).await
    }

    /// Runs a pod that must succeed, and returns the log of its first container.
    pub async fn run(&self, name: &str, mut spec: PodSpec) -> Result<String> {
        spec.restart_policy = Some("Never".to_owned());
        self.create(&Pod { metadata: metadata(name), spec: Some(spec), ..Pod::default() }).await?;
        let pod = await_condition(&self.api(), name, "to end", POD_START, is_pod_finished).await?;
        let container =
            pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| &container.name).next();
        let log = self.log(name, container.context("the pod has no containers")?).await?;
        ensure!(pod_phase(&pod) == "Succeeded", "pod {name} failed; its log:\n{log}");
        Ok(log)
    }

    pub async fn log(&self, pod: &str, container: &str) -> Result<String> {
        let parameters = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        let failure = || format!("failed to read the log of container {container} in pod {pod}");
        self.api::<Pod>().logs(pod, &parameters).await.with_context(failure)
    }
}
