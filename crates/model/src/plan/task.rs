//! Commands that run to completion, once or on a schedule.

use super::{Container, FileName, Reference};
use crate::keyring;

/// A command that runs to completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub name: &'static str,
    pub stage: TaskStage,
    pub user: i64,
    pub container: Container,
    /// What makes the task run again when it changes, besides image, command and plain environment.
    pub repeat_on: Vec<TaskInput>,
    /// Objects that must be Ready before the task starts, from `Needs.before_tasks`.
    pub after: Vec<Reference>,
}

/// When a task runs. On an upgrade, database schemas are expanded before the rollout and contracted after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStage {
    /// Once, before the first start of the workloads.
    Install,
    /// Before the rollout of a new image.
    Expand,
    /// After `Expand`, before the rollout.
    Migrate,
    /// Beside the first workloads.
    Bootstrap,
    /// After the workloads are ready, because it uses them.
    Configure,
    /// After the rollout of a new image.
    Contract,
    /// After each rotation of a key ring.
    Rotate { ring: String },
    /// After a component, which is a StatefulSet, has fewer pods than before, and the pods have stopped. The task removes the
    /// records that they may have left, e.g. in a list of services. Variable [`REMOVED_PODS`] has their names.
    ScaleDown { component: &'static str },
}

/// Variable of tasks that follow a scale-down: names of the removed pods, separated by spaces.
pub const REMOVED_PODS: &str = "REMOVED_PODS";

/// Content that a task depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskInput {
    /// One of `Plan::files`.
    File(FileName),
    /// The values of a Secret.
    Secret(String),
}

/// A command that runs at certain times, one run at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub name: &'static str,
    pub cron: Cron,
    pub user: i64,
    pub container: Container,
    /// Maximum duration of a run.
    pub deadline_seconds: i64,
}

/// A cron expression that Kubernetes accepts, in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron(String);

/// Names that may replace numbers in the last two fields.
const NAMES: [&[&str]; 2] = [
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
];

impl Cron {
    /// Checks an expression; the error says how to correct it. Other programs know more forms than Kubernetes: seconds, the
    /// last day of a month, and 7 as Sunday.
    pub fn new(text: &str) -> Result<Self, String> {
        keyring::check_schedule(text)?;
        let fields: Vec<&str> = text.split_whitespace().collect();
        let is_sunday = |day: &str| day.split('/').next() == Some("7");
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("{text:?} does not have five fields: write e.g. \"0 3 * * *\""));
        };
        if weekdays.split([',', '-']).any(is_sunday) {
            return Err(format!("{text:?} has weekday 7: write 0 for Sunday"));
        }
        let named = [months, weekdays].into_iter().zip(NAMES).map(|(field, names)| {
            names.iter().fold(field.to_owned(), |field, name| field.replace(name, "0"))
        });
        let numbers: String = [minutes, hours, days].into_iter().map(str::to_owned).chain(named).collect();
        if let Some(unknown) = numbers.chars().find(|c| !c.is_ascii_digit() && !"*/,-".contains(*c)) {
            return Err(format!("{text:?} has {unknown:?}: write numbers, or names like MON and JAN"));
        }
        Ok(Self(fields.join(" ")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_expression_has_the_form_that_kubernetes_accepts() {
        for good in ["0 3 * * *", "*/15 0-6,12 1 JAN-MAR MON,WED", "0 0 * * */2"] {
            assert_eq!(Cron::new(good).map(|cron| cron.as_str().to_owned()), Ok(good.to_owned()));
        }
        assert_eq!(Cron::new(" 0  3 * * * ").map(|cron| cron.0), Ok("0 3 * * *".to_owned()));
        for (bad, reason) in [
            ("daily", "five fields"),
            ("61 0 * * *", "cron expression"),
            ("0 0 3 * * *", "five fields"),
            ("0 0 L * *", "'L'"),
            ("0 0 * * 1-7", "0 for Sunday"),
            ("0 0 * * MON#2", "'#'"),
            ("@daily", ""),
        ] {
            let refused = Cron::new(bad).unwrap_err();
            assert!(refused.contains(reason), "{bad}: {refused}");
        }
    }
}
