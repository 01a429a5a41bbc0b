//! The parts of a fault: what happens to the cloud, how it ends, and what is expected of the cloud.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The APIs under observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Api {
    Keystone,
    Neutron,
    Nova,
    Glance,
    Placement,
}

impl Api {
    pub(super) const ALL: [Self; 5] =
        [Self::Keystone, Self::Neutron, Self::Nova, Self::Glance, Self::Placement];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Keystone => "Keystone",
            Self::Neutron => "Neutron",
            Self::Nova => "Nova",
            Self::Glance => "Glance",
            Self::Placement => "Placement",
        }
    }
}

/// A service whose members form a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quorum {
    MariaDb,
    RabbitMq,
    Northbound,
    Southbound,
}

impl Quorum {
    pub(super) const ALL: [Self; 4] = [Self::MariaDb, Self::RabbitMq, Self::Northbound, Self::Southbound];

    /// The name of its StatefulSet after that of the cloud.
    pub(super) fn part(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::RabbitMq => "rabbitmq",
            Self::Northbound => "ovn-nb",
            Self::Southbound => "ovn-sb",
        }
    }

    /// The program of the server.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::RabbitMq => "beam.smp",
            Self::Northbound | Self::Southbound => "ovsdb-server",
        }
    }

    /// The APIs that may fail while it does not serve.
    pub(super) fn users(self) -> &'static [Api] {
        match self {
            Self::MariaDb => &Api::ALL,
            Self::RabbitMq => &[Api::Neutron, Api::Nova],
            Self::Northbound => &[Api::Neutron],
            Self::Southbound => &[],
        }
    }

    pub(super) fn pod(self, cloud: &str, member: usize) -> String {
        format!("{cloud}-{}-{member}", self.part())
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MariaDb => "MariaDB",
            Self::RabbitMq => "RabbitMQ",
            Self::Northbound => "OVN northbound",
            Self::Southbound => "OVN southbound",
        })
    }
}

/// Nodes of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nodes {
    Number(u8),
    /// The node of the database member that clients write to.
    Writer,
    All,
}

/// One step of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Kills the servers of members.
    Kill(Quorum, &'static [usize]),
    /// Waits until one of the killed members serves.
    AwaitFirstMember(Quorum),
    /// Kills the operator, unless it does not run.
    KillOperator,
    PowerOff(Nodes),
    /// Restores the power of all nodes.
    PowerOn,
    /// Waits until Kubernetes reports the nodes without power as not ready.
    AwaitLoss,
    /// Waits until every API answers, while the fault lasts.
    AwaitService,
    Drain(u8),
    /// Allows pods on all nodes.
    Uncordon,
    /// Deletes the volume and the pod of a member.
    LoseVolume(Quorum, usize),
    /// Gives a member a small, empty volume, and waits until it serves with a copy of the data.
    LimitVolume(Quorum, usize),
    /// Fills the small volume.
    FillVolume(Quorum, usize),
    /// Gives the member its own volume with the old data.
    RestoreVolume(Quorum, usize),
    DeleteSecret(String),
    /// Waits until the control plane reports that only the user can continue.
    AwaitStalled,
    RestoreSecret(String),
    /// Disconnects a node from all networks.
    Isolate(u8),
    /// Connects all nodes.
    Rejoin,
    /// Stops the process of the API server without closing its connections.
    SuspendApiServer,
    ResumeApiServer,
    /// The fault lasts for this number of seconds.
    Hold(u64),
}

/// Seconds that are expected of a fault. They are reported and decide nothing: they depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// Seconds of errors of any API; none where APIs fail as long as the fault lasts.
    pub(super) errors: Option<u32>,
    /// Seconds until the control plane is Ready.
    pub(super) ready: u32,
}

/// How a fault is injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Injection {
    Steps(Vec<Action>),
    /// One fault for each Secret of the cloud, whose names the running cloud determines.
    EachSecret,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) name: String,
    /// What happens, for the list of faults and the document.
    pub(super) summary: String,
    pub(super) injection: Injection,
    /// Steps that end the fault. Time until Ready counts from here, or without them from the fault.
    pub(super) repair: Vec<Action>,
    pub(super) may_fail: &'static [Api],
    pub(super) target: Target,
    /// What a person does; none if the cloud recovers alone.
    pub(super) person: Option<&'static str>,
}

impl Fault {
    pub(super) fn steps(&self) -> &[Action] {
        match &self.injection {
            Injection::Steps(steps) => steps,
            Injection::EachSecret => &[],
        }
    }

    /// The same fault, during which the operator is killed.
    pub(super) fn with_operator_killed(&self) -> Self {
        let mut fault = self.clone();
        fault.name = format!("{}{WITH_OPERATOR}", self.name);
        fault.summary = format!("{}; the operator is killed {OPERATOR_DELAY} s later", self.summary);
        if let Injection::Steps(steps) = &mut fault.injection {
            let after_first = steps.len().min(1);
            drop(
                steps.splice(after_first..after_first, [Action::Hold(OPERATOR_DELAY), Action::KillOperator]),
            );
        }
        fault
    }
}

/// The end of the name of a fault during which the operator is killed.
pub(super) const WITH_OPERATOR: &str = "+operator";
/// Seconds from the fault to the kill of the operator.
const OPERATOR_DELAY: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_killed_two_seconds_after_the_first_step() {
        let fault = Fault {
            name: "a".to_owned(),
            summary: "b".to_owned(),
            injection: Injection::Steps(vec![Action::PowerOff(Nodes::All), Action::AwaitLoss]),
            repair: vec![Action::PowerOn],
            may_fail: &Api::ALL,
            target: Target { errors: None, ready: 1 },
            person: None,
        };
        let both = fault.with_operator_killed();
        assert_eq!(both.name, "a+operator");
        let steps = [Action::PowerOff(Nodes::All), Action::Hold(2), Action::KillOperator, Action::AwaitLoss];
        assert_eq!(both.steps(), steps);
        assert_eq!(both.repair, fault.repair);
    }
}
