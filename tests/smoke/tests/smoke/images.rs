//! Every image runs as the user of the image table, on a read-only root.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, PodSpec, SecurityContext};
use openstack_operator_smoke::pod::{container, metadata, unconfined};
use openstack_operator_smoke::wait::{await_condition, is_pod_finished};
use openstack_operator_smoke::{PodSecurity, with_namespace};

/// All images together are several gigabytes to pull and unpack.
const ALL_IMAGES: Duration = Duration::from_mins(30);

#[tokio::test]
async fn images_run_as_their_documented_users() -> Result<()> {
    // A restricted namespace would not run images whose user is root.
    with_namespace("images", PodSecurity::Privileged, async |sandbox| {
        let images = &sandbox.environment.images;
        let containers = images.iter().map(|(name, image)| {
            let mut probe = container(name, image.reference.clone(), &["id", "-u"]);
            probe.security_context = Some(SecurityContext {
                read_only_root_filesystem: Some(true),
                allow_privilege_escalation: Some(false),
                ..SecurityContext::default()
            });
            probe
        });
        let spec = PodSpec { restart_policy: Some("Never".to_owned()), ..unconfined(containers.collect()) };
        sandbox.create(&Pod { metadata: metadata("images"), spec: Some(spec), ..Pod::default() }).await?;
        await_condition(&sandbox.api(), "images", "to end", ALL_IMAGES, is_pod_finished).await?;

        let mut differences = Vec::new();
        for (name, image) in images {
            let log = sandbox.log("images", name).await.unwrap_or_else(|error| format!("{error:#}"));
            if log.trim() != image.user.to_string() {
                differences.push(format!("{name} runs as {:?} instead of {}", log.trim(), image.user));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n"));
        Ok(())
    })
    .await
}
