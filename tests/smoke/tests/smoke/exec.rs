//! Commands in a running container return their output and status, and logs can be followed.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt, Stream, TryStreamExt};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, PodSpec, Volume, VolumeMount};
use kube::api::LogParams;
use openstack_operator_smoke::pod::{container, metadata, restricted};
use openstack_operator_smoke::wait::{POD_START, await_condition, pod_phase};
use openstack_operator_smoke::{Output, PodSecurity, with_namespace};
use tokio::time::timeout;

const LINE: Duration = Duration::from_secs(30);

/// Prints the lines that it reads from a pipe, until it reads `end`.
const REPEAT_LINES: &str = "
mkfifo /tmp/lines
echo listening
while read -r line; do
  echo \"$line\"
  if [ \"$line\" = end ]; then exit 0; fi
done <>/tmp/lines
";

#[tokio::test]
async fn exec_returns_streams_and_status() -> Result<()> {
    with_namespace("exec", PodSecurity::Restricted, async |sandbox| {
        let spec = restricted(container("main", sandbox.image("base")?, &["sleep", "infinity"]));
        sandbox.start("worker", spec).await?;
        let script = "echo result; echo complaint >&2; exit 7";
        let output = sandbox.exec("worker", "main", &["sh", "-c", script]).await?;
        let expected = Output { stdout: "result\n".to_owned(), stderr: "complaint\n".to_owned(), code: 7 };
        ensure!(output == expected, "{output:?} is not {expected:?}");
        // More than the buffers between the processes hold.
        let output = sandbox.exec("worker", "main", &["head", "-c", "1000000", "/dev/zero"]).await?;
        ensure!((output.stdout.len(), output.code) == (1_000_000, 0), "{} bytes", output.stdout.len());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn logs_follow_a_container_to_its_end() -> Result<()> {
    with_namespace("logs", PodSecurity::Restricted, async |sandbox| {
        sandbox.create(&repeater(sandbox.image("base")?)).await?;
        let pods = sandbox.api::<Pod>();
        await_condition(&pods, "repeater", "to run", POD_START, |pod| pod_phase(pod) == "Running").await?;
        let parameters = LogParams { follow: true, ..LogParams::default() };
        let mut lines = pin!(pods.log_stream("repeater", &parameters).await?.lines());

        expect_line(&mut lines, Some("listening")).await?;
        sandbox.shell("repeater", "main", "echo first > /tmp/lines").await?;
        expect_line(&mut lines, Some("first")).await?;
        // The container may end before the command does; the log shows that the line arrived.
        let _ = sandbox.exec("repeater", "main", &["sh", "-c", "echo end > /tmp/lines"]).await;
        expect_line(&mut lines, Some("end")).await?;
        expect_line(&mut lines, None).await
    })
    .await
}

async fn expect_line(
    lines: &mut (impl Stream<Item = std::io::Result<String>> + Unpin),
    expected: Option<&str>,
) -> Result<()> {
    let seen = timeout(LINE, lines.try_next())
        .await
        .with_context(|| format!("the log stands still where {expected:?} should follow"))??;
    ensure!(seen.as_deref() == expected, "the log goes on with {seen:?} instead of {expected:?}");
    Ok(())
}

fn repeater(image: String) -> Pod {
    let mut main = container("main", image, &["sh", "-euc", REPEAT_LINES]);
    main.volume_mounts = Some(vec![VolumeMount {
        name: "tmp".to_owned(),
        mount_path: "/tmp".to_owned(),
        ..VolumeMount::default()
    }]);
    let tmp = Volume {
        name: "tmp".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let spec =
        PodSpec { restart_policy: Some("Never".to_owned()), volumes: Some(vec![tmp]), ..restricted(main) };
    Pod { metadata: metadata("repeater"), spec: Some(spec), ..Pod::default() }
}
