//! Reports for developers: the state of a failed test's namespace, and notices.

use std::io::Write;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{ListParams, LogParams};

use crate::Sandbox;
use crate::wait::pod_phase;

const LOG_LINES: i64 = 20;
const EVENTS: usize = 30;

/// Prints a line that the harness does not capture, so it is visible if the test passes.
pub fn notice(text: &str) {
    // A closed standard error cannot be reported.
    let _ = writeln!(std::io::stderr(), "notice: {text}");
}

#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it with the failed test")]
pub async fn print_namespace(sandbox: &Sandbox) {
    eprintln!("state of namespace {}:", sandbox.namespace);
    match sandbox.api::<Pod>().list(&ListParams::default()).await {
        Ok(pods) => {
            for pod in pods {
                eprintln!("{}", describe_pod(sandbox, &pod).await);
            }
        }
        Err(error) => eprintln!("  failed to list pods: {error}"),
    }
    match sandbox.api::<Event>().list(&ListParams::default()).await {
        Ok(events) => eprintln!("  events:\n{}", describe_events(events.items)),
        Err(error) => eprintln!("  failed to list events: {error}"),
    }
}

async fn describe_pod(sandbox: &Sandbox, pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let mut lines = vec![format!("  pod {} on {node}: {}", pod.name_any(), pod_phase(pod))];
    let status = pod.status.clone().unwrap_or_default();
    lines.extend(status.message.map(|message| format!("    {message}")));
    let containers = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
    for container in containers {
        lines.push(describe_container(&container));
        if container.restart_count > 0 {
            lines.extend(last_log_lines(sandbox, pod, &container.name, Run::Previous).await);
        }
        lines.extend(last_log_lines(sandbox, pod, &container.name, Run::Current).await);
    }
    lines.join("\n")
}

fn describe_container(container: &ContainerStatus) -> String {
    let state = match &container.state {
        Some(ContainerState { waiting: Some(waiting), .. }) => format!(
            "waiting, {} {}",
            waiting.reason.as_deref().unwrap_or_default(),
            waiting.message.as_deref().unwrap_or_default()
        ),
        Some(ContainerState { terminated: Some(end), .. }) => format!(
            "ended with status {}, {} {}",
            end.exit_code,
            end.reason.as_deref().unwrap_or_default(),
            end.message.as_deref().unwrap_or_default()
        ),
        Some(ContainerState { running: Some(_), .. }) if container.ready => "running, ready".to_owned(),
        Some(ContainerState { running: Some(_), .. }) => "running, not ready".to_owned(),
        _ => "unknown".to_owned(),
    };
    format!("    container {}: {state}; restarts: {}", container.name, container.restart_count)
}

#[derive(Clone, Copy, PartialEq)]
enum Run {
    Previous,
    Current,
}

async fn last_log_lines(sandbox: &Sandbox, pod: &Pod, container: &str, run: Run) -> Vec<String> {
    let parameters = LogParams {
        container: Some(container.to_owned()),
        previous: run == Run::Previous,
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    // A container that never started has no log.
    let log = sandbox.api::<Pod>().logs(&pod.name_any(), &parameters).await.unwrap_or_default();
    log.lines().map(|line| format!("      | {line}")).collect()
}

fn describe_events(mut events: Vec<Event>) -> String {
    events.sort_by_key(last_seen);
    let newest = events.split_off(events.len().saturating_sub(EVENTS));
    let describe = |event: Event| {
        format!(
            "    {} {}/{}: {} {} (seen {})",
            event.type_.unwrap_or_default(),
            event.involved_object.kind.unwrap_or_default(),
            event.involved_object.name.unwrap_or_default(),
            event.reason.unwrap_or_default(),
            event.message.unwrap_or_default(),
            event.count.unwrap_or(1)
        )
    };
    newest.into_iter().map(describe).collect::<Vec<_>>().join("\n")
}

fn last_seen(event: &Event) -> Option<Time> {
    let exact = event.event_time.clone().map(|time| Time(time.0));
    event.last_timestamp.clone().or(exact).or_else(|| event.metadata.creation_timestamp.clone())
}
