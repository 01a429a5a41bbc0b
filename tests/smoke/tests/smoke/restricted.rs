//! A namespace that enforces the restricted standard runs such pods as promised and refuses others.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, SecurityContext};
use kube::api::PostParams;
use openstack_operator_smoke::pod::{USER, container, metadata, restricted, unconfined};
use openstack_operator_smoke::{PodSecurity, with_namespace};

/// What the kernel says of the process itself, whatever the pod's specification claims.
const INSPECT: &str = r"
echo User: $(id -u)
grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status
if touch /probe 2>/dev/null; then echo Root: writable; else echo Root: read-only; fi
";

#[tokio::test]
async fn restricted_pod_runs_confined() -> Result<()> {
    with_namespace("restricted", PodSecurity::Restricted, async |sandbox| {
        let spec = restricted(container("main", sandbox.image("base")?, &["sh", "-c", INSPECT]));
        let log = sandbox.run("confined", spec).await?;
        let facts: Vec<(&str, &str)> = log
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let user = USER.to_string();
        for fact in [
            ("User", user.as_str()),
            ("NoNewPrivs", "1"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("Seccomp", "2"),
            ("Root", "read-only"),
        ] {
            ensure!(facts.contains(&fact), "the process is not {fact:?}:\n{log}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn privileged_pod_is_refused() -> Result<()> {
    with_namespace("refused", PodSecurity::Restricted, async |sandbox| {
        let mut intruder = container("main", sandbox.image("base")?, &["true"]);
        intruder.security_context =
            Some(SecurityContext { privileged: Some(true), ..SecurityContext::default() });
        let pod =
            Pod { metadata: metadata("intruder"), spec: Some(unconfined(vec![intruder])), ..Pod::default() };
        let answer = sandbox.api::<Pod>().create(&PostParams::default(), &pod).await;
        let Err(kube::Error::Api(refusal)) = &answer else {
            anyhow::bail!("a privileged pod was not refused: {answer:?}");
        };
        ensure!(refusal.code == 403, "{refusal:?}");
        for part in [r#"pods "intruder" is forbidden"#, r#"violates PodSecurity "restricted:"#, "privileged"]
        {
            ensure!(refusal.message.contains(part), "the refusal does not say {part:?}: {}", refusal.message);
        }
        Ok(())
    })
    .await
}
