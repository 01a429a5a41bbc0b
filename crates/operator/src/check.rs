//! Verdicts on a cluster or a cloud: pure functions from gathered facts to findings.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::output::{Color, Paint};

pub(crate) mod answer;
pub(crate) mod cloud;
pub(crate) mod cluster;
mod definitions;
pub(crate) mod endpoint;
pub(crate) mod gather;
mod operator;
pub(crate) mod requirements;

/// The oldest Kubernetes minor version that the operator supports: definitions use the CEL function `quantity()`.
pub(crate) const MINIMUM_KUBERNETES: (u32, u32) = (1, 29);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Warning,
    Failed,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }

    fn mark(self) -> (&'static str, Color) {
        match self {
            Self::Passed => ("✓", Color::Green),
            Self::Warning => ("!", Color::Yellow),
            Self::Failed => ("✗", Color::Red),
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) group: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) message: String,
    /// How to repair it.
    pub(crate) hint: Option<String>,
}

/// Findings of one group.
pub(crate) struct Findings {
    group: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    pub(crate) fn new(group: &'static str) -> Self {
        Self { group, list: Vec::new() }
    }

    pub(crate) fn pass(&mut self, message: impl Into<String>) {
        self.add(Verdict::Passed, message, None);
    }

    pub(crate) fn warn(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Verdict::Warning, message, Some(hint.into()));
    }

    pub(crate) fn fail(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Verdict::Failed, message, Some(hint.into()));
    }

    pub(crate) fn add(&mut self, verdict: Verdict, message: impl Into<String>, hint: Option<String>) {
        self.list.push(Finding { group: self.group, verdict, message: message.into(), hint });
    }

    pub(crate) fn into_list(self) -> Vec<Finding> {
        self.list
    }
}

/// Every finding, in the order of the checks.
pub(crate) struct Report(pub(crate) Vec<Finding>);

impl Report {
    pub(crate) fn is_failed(&self) -> bool {
        self.count(Verdict::Failed) > 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// One line per check under the heading of its group, hints below, and the totals last.
    pub(crate) fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        let mut group = "";
        for finding in &self.0 {
            if finding.group != group {
                let gap = if group.is_empty() { "" } else { "\n" };
                group = finding.group;
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{gap}{}", paint.apply(Color::Bold, group));
            }
            let (mark, color) = finding.verdict.mark();
            let _ = writeln!(text, "{} {}", paint.apply(color, mark), finding.message);
            if let Some(hint) = &finding.hint {
                let _ = writeln!(text, "    {}", paint.apply(Color::Dim, format!("hint: {hint}")));
            }
        }
        let _ = writeln!(
            text,
            "\n{} passed, {} warnings, {} failed",
            self.count(Verdict::Passed),
            self.count(Verdict::Warning),
            self.count(Verdict::Failed)
        );
        text
    }

    pub(crate) fn json(&self) -> Value {
        let check = |finding: &Finding| {
            json!({
                "group": finding.group,
                "verdict": finding.verdict.name(),
                "message": finding.message,
                "hint": finding.hint,
            })
        };
        json!({
            "passed": self.count(Verdict::Passed),
            "warnings": self.count(Verdict::Warning),
            "failed": self.count(Verdict::Failed),
            "checks": self.0.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

/// The text of a field, empty if the object does not have it.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// A condition of an object, below `pointer`.
fn condition<'a>(object: &'a Value, pointer: &str, kind: &str) -> Option<&'a Value> {
    items(object, pointer).find(|condition| condition["type"] == kind)
}

fn holds(object: &Value, pointer: &str, kind: &str) -> bool {
    condition(object, pointer, kind).is_some_and(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut kubernetes = Findings::new("Kubernetes");
        kubernetes.pass("Kubernetes v1.36.3 is supported");
        let mut nodes = Findings::new("Nodes");
        nodes.warn("node a is not Ready", "kubectl describe node a");
        nodes.fail("no node has the label x", "kubectl label node NODE x=");
        Report([kubernetes.into_list(), nodes.into_list()].concat())
    }

    #[test]
    fn a_report_has_headings_marks_hints_and_totals() {
        assert_eq!(
            report().text(Paint::Plain),
            "Kubernetes\n✓ Kubernetes v1.36.3 is supported\n\nNodes\n! node a is not Ready\n    hint: kubectl describe node a\n\
             ✗ no node has the label x\n    hint: kubectl label node NODE x=\n\n1 passed, 1 warnings, 1 failed\n"
        );
        assert!(report().text(Paint::Colored).contains("\u{1b}[31m✗\u{1b}[0m"));
    }

    #[test]
    fn only_a_failed_check_fails_the_report() {
        let mut report = report();
        assert!(report.is_failed());
        assert_eq!(report.json()["failed"], 1);
        assert_eq!(report.json()["checks"][1]["verdict"], "warning");
        report.0.pop();
        assert!(!report.is_failed());
    }

    #[test]
    fn the_minimum_version_is_documented_and_needed() {
        let (major, minor) = MINIMUM_KUBERNETES;
        let document = include_str!("../../../docs/cli.md");
        assert!(
            document.contains(&format!("({major}.{minor} or later")),
            "docs/cli.md names another version"
        );
        let rules = include_str!("../../../deploy/crds/keystones.openstack.k8s.io.yaml");
        assert!(rules.contains("quantity("), "the reason for the minimum is gone");
    }
}
