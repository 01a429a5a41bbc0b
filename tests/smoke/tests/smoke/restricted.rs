//! A namespace with the restricted Pod Security Standard confines pods, and rejects others.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, SecurityContext};
use kube::api::PostParams;
use openstack_operator_smoke::pod::{USER, container, metadata, restricted, unconfined};
use openstack_operator_smoke::{PodSecurity, with_namespace};

/// Prints the kernel's view of the process.
const INSPECT: &str = r"
echo User: $(id -u)
grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status
if touch /probe 2>/dev/null; then echo Root: writable; else echo Root: read-only; fi
";

#[tokio::test]
async fn a_restricted_pod_is_confined() -> Result<()> {
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
async fn a_privileged_pod_is_rejected() -> Result<()> {
    with_namespace("refused", PodSecurity::Restricted, async |sandbox| {
        let mut intruder = container("main", sandbox.image("base")?, &["true"]);
        intruder.security_context =
            Some(SecurityContext { privileged: Some(true), ..SecurityContext::default() });
        let pod =
            Pod { metadata: metadata("intruder"), spec: Some(unconfined(vec![intruder])), ..Pod::default() };
        let answer = sandbox.api::<Pod>().create(&PostParams::default(), &pod).await;
        let Err(kube::Error::Api(rejection)) = &answer else {
            anyhow::bail!("the API server did not reject a privileged pod: {answer:?}");
        };
        ensure!(rejection.code == 403, "{rejection:?}");
        for part in [r#"pods "intruder" is forbidden"#, r#"violates PodSecurity "restricted:"#, "privileged"]
        {
            ensure!(rejection.message.contains(part), "the message has no {part:?}: {}", rejection.message);
        }
        Ok(())
    })
    .await
}
