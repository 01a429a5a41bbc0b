//! Performs the steps of faults on the local cluster.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::fault::{Action, Nodes, Quorum};
use super::repair;
use super::secret;
use super::victim;
use super::view::{MEMBERS, Pod, Pods, State};
use super::watch::{Waited, Watch};
use crate::cloud::{NAMESPACE, OPERATOR};
use crate::cluster::settings::{Node, Settings};
use crate::cluster::{power, volume};
use crate::command::Log;
use crate::directories::Directories;
use crate::progress::Step;

/// How long Kubernetes may take to notice a lost node.
const LOSS: Duration = Duration::from_mins(4);
/// How long the other nodes may take to serve without a lost one.
const SERVICE: Duration = Duration::from_mins(6);
/// How long the first of several killed members may take to serve.
const FIRST_MEMBER: Duration = Duration::from_mins(10);
/// MiB of a volume that holds the databases of a new cloud and little more.
const SMALL_VOLUME: u32 = 1536;
/// How long the operator may take to report a loss that it cannot repair.
const REPORT: Duration = Duration::from_mins(3);

pub(super) struct Injector<'a> {
    directories: &'a Directories,
    settings: &'a Settings,
    log: &'a Log,
    /// The pods before the fault: while the API server is suspended, nothing can be listed.
    pods: Pods,
    operator: Pods,
    /// Nodes that have lost their power. Their instances stop.
    pub(super) without_power: Vec<String>,
    /// Nodes that Kubernetes cannot reach.
    away: Vec<String>,
    /// Expectations of the fault that were not met.
    pub(super) failures: Vec<String>,
}

impl<'a> Injector<'a> {
    pub(super) fn new(
        directories: &'a Directories,
        settings: &'a Settings,
        log: &'a Log,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        Ok(Self {
            directories,
            settings,
            log,
            pods: watch.view.pods()?,
            operator: watch.view.operator_pods()?,
            without_power: Vec::new(),
            away: Vec::new(),
            failures: Vec::new(),
        })
    }

    pub(super) fn perform(&mut self, action: &Action, watch: &mut Watch<'_>, step: &Step) -> Result<()> {
        match action {
            Action::Kill(quorum, members) => self.kill(*quorum, members, watch),
            Action::AwaitFirstMember(quorum) => self.await_first_member(*quorum, watch, step),
            Action::KillOperator => self.kill_operator(),
            Action::PowerOff(nodes) => self.power_off(*nodes, watch),
            Action::PowerOn | Action::Rejoin => power::restore(self.directories, self.settings, self.log),
            Action::AwaitLoss => self.await_loss(watch, step),
            Action::AwaitService => {
                let waited = watch.wait_until_served(SERVICE, step)?;
                self.require(waited, "the APIs answer while the fault lasts");
                Ok(())
            }
            Action::Drain(number) => self.drain(*number, watch),
            Action::Uncordon => repair::uncordon(&watch.view.kubectl, self.settings, self.log),
            Action::LoseVolume(quorum, member) => self.lose_volume(*quorum, *member, watch),
            Action::LimitVolume(quorum, member) => self.limit_volume(*quorum, *member, watch, step),
            Action::FillVolume(quorum, member) => {
                let (node, directory) = self.volume(*quorum, *member, watch)?;
                volume::fill(self.directories, &node, &directory, self.log)
            }
            Action::RestoreVolume(quorum, member) => {
                volume::uncover_all(self.directories, self.settings, self.log)?;
                let pod = quorum.pod(&watch.view.cloud, *member);
                self.delete("pod", &pod, &["--force", "--grace-period=0"], watch)
            }
            Action::DeleteSecret(name) => {
                secret::save(self.directories, &watch.view.kubectl, name)?;
                self.delete("secret", name, &[], watch)
            }
            Action::AwaitStalled => {
                let is_stalled = |watch: &mut Watch<'_>| {
                    Ok(matches!(watch.samples.last().map(|sample| &sample.state), Some(State::Stalled(_))))
                };
                let waited = watch.wait(REPORT, step, is_stalled)?;
                self.require(waited, "the control plane reports Stalled");
                Ok(())
            }
            Action::RestoreSecret(_) => secret::restore_all(self.directories, &watch.view.kubectl, self.log),
            Action::Isolate(number) => {
                let node = self.settings.node(&node_name(*number))?;
                self.away.push(node.name.clone());
                power::isolate(self.directories, self.settings, &node, self.log)
            }
            Action::SuspendApiServer => power::suspend_api_server(self.directories),
            Action::ResumeApiServer => power::resume_api_server(self.directories),
            Action::Hold(seconds) => {
                watch.wait(Duration::from_secs(*seconds), step, |_| Ok(false)).map(|_| ())
            }
        }
    }

    fn require(&mut self, waited: Waited, expectation: &str) {
        if waited == Waited::Expired {
            self.failures.push(format!("not met in time: {expectation}"));
        }
    }

    fn kill(&mut self, quorum: Quorum, members: &[usize], watch: &Watch<'_>) -> Result<()> {
        self.pods = watch.view.pods()?;
        let mut killed = 0;
        for &member in members {
            let name = quorum.pod(&watch.view.cloud, member);
            let Some(pod) = self.pods.get(&name) else { bail!("there is no pod {name}") };
            killed += victim::kill(&pod.uid, quorum.program())?;
        }
        if killed == 0 {
            bail!("members {members:?} of {quorum} run no {}: nothing was killed", quorum.program());
        }
        self.log.note(&format!("killed {killed} processes {}", quorum.program()))
    }

    fn await_first_member(&mut self, quorum: Quorum, watch: &mut Watch<'_>, step: &Step) -> Result<()> {
        let before = self.pods.clone();
        let waited = watch.wait(FIRST_MEMBER, step, |watch| {
            let mut names = (0..MEMBERS).map(|member| quorum.pod(&watch.view.cloud, member));
            let Ok(pods) = watch.view.pods() else { return Ok(false) };
            Ok(names.any(|name| pods.get(&name).is_some_and(|pod| serves(pod, before.get(&name)))))
        })?;
        self.require(waited, "the first member serves");
        Ok(())
    }

    /// A power cut may have ended the operator already.
    fn kill_operator(&self) -> Result<()> {
        for pod in self.operator.values() {
            victim::kill(&pod.uid, OPERATOR)?;
        }
        Ok(())
    }

    fn power_off(&mut self, nodes: Nodes, watch: &Watch<'_>) -> Result<()> {
        let nodes = match nodes {
            Nodes::All => self.settings.node_list(),
            Nodes::Number(number) => vec![self.settings.node(&node_name(number))?],
            Nodes::Writer => vec![self.settings.node(&watch.view.writer_node()?)?],
        };
        let names = nodes.iter().map(|node| node.name.clone());
        self.without_power.extend(names.clone());
        self.away.extend(names);
        power::cut(self.directories, self.settings, &nodes, self.log)
    }

    fn await_loss(&mut self, watch: &mut Watch<'_>, step: &Step) -> Result<()> {
        let away = self.away.clone();
        let waited = watch.wait(LOSS, step, |watch| {
            let Ok(ready) = watch.view.ready_nodes() else { return Ok(false) };
            Ok(!away.iter().any(|node| ready.contains(node)))
        })?;
        self.require(waited, "Kubernetes reports the node as lost");
        Ok(())
    }

    fn drain(&self, number: u8, watch: &Watch<'_>) -> Result<()> {
        let node = self.settings.node(&node_name(number))?;
        let options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s"];
        self.log.run(watch.view.kubectl.command().args(["drain", &node.name]).args(options))
    }

    fn lose_volume(&self, quorum: Quorum, member: usize, watch: &Watch<'_>) -> Result<()> {
        let pod = quorum.pod(&watch.view.cloud, member);
        // Kubernetes keeps the claim until its pod is gone.
        self.delete("persistentvolumeclaim", &claim(&pod), &["--wait=false"], watch)?;
        self.delete("pod", &pod, &["--force", "--grace-period=0"], watch)
    }

    fn limit_volume(
        &mut self,
        quorum: Quorum,
        member: usize,
        watch: &mut Watch<'_>,
        step: &Step,
    ) -> Result<()> {
        let (node, directory) = self.volume(quorum, member, watch)?;
        volume::cover(self.directories, &node, &directory, SMALL_VOLUME, self.log)?;
        let name = quorum.pod(&watch.view.cloud, member);
        self.delete("pod", &name, &[], watch)?;
        let before = self.pods.clone();
        let waited = watch.wait(FIRST_MEMBER, step, |watch| {
            let Ok(pods) = watch.view.pods() else { return Ok(false) };
            Ok(pods.get(&name).is_some_and(|pod| serves(pod, before.get(&name))))
        })?;
        self.require(waited, "the member serves with a small volume");
        Ok(())
    }

    /// The node and the directory of a member's volume.
    fn volume(&self, quorum: Quorum, member: usize, watch: &Watch<'_>) -> Result<(Node, String)> {
        let pod = quorum.pod(&watch.view.cloud, member);
        let node = self.pods.get(&pod).map(|pod| pod.node.as_str());
        let node = self.settings.node(node.with_context(|| format!("there is no pod {pod}"))?)?;
        Ok((node, watch.view.volume_directory(&claim(&pod))?))
    }

    fn delete(&self, kind: &str, name: &str, options: &[&str], watch: &Watch<'_>) -> Result<()> {
        let arguments = ["--namespace", NAMESPACE, "delete", kind, name];
        self.log.run(watch.view.kubectl.command().args(arguments).args(options))
    }
}

/// A member serves when its pod is ready with another container than before.
fn serves(pod: &Pod, before: Option<&Pod>) -> bool {
    pod.is_ready && before.is_none_or(|before| before.containers != pod.containers)
}

/// The claim of a member.
fn claim(pod: &str) -> String {
    format!("data-{pod}")
}

fn node_name(number: u8) -> String {
    format!("node{number}")
}
