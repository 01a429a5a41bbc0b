//! Kinds of other projects. A cluster serves them only if the project is installed.

use serde_json::Value;

use crate::assess::{condition_of, text};
use crate::condition::Progress;
use crate::kind::{HTTP_ROUTE, Kind};

/// A kind of another project, with the rule by which its objects are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKind {
    pub kind: Kind,
    /// What the user installs to get the kind, e.g. `cert-manager`.
    pub project: &'static str,
    pub readiness: Readiness,
}

/// When an object of another project is ready. A state that an older generation of the object had does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// As soon as it exists.
    Exists,
    /// While a condition of this type is True.
    Condition(&'static str),
    /// While a field of its status has one of some values.
    Field {
        pointer: &'static str,
        ready: &'static [&'static str],
        /// Values with which it needs the user.
        failed: &'static [&'static str],
    },
    /// While a Gateway accepts it.
    Accepted,
}

/// Routes of the Gateway API.
pub const ROUTES: ForeignKind =
    ForeignKind { kind: HTTP_ROUTE, project: "the Gateway API", readiness: Readiness::Accepted };

impl ForeignKind {
    /// Why objects of this kind cannot be created.
    pub fn not_served(&self) -> String {
        let definition = self.kind.definition();
        format!(
            "the cluster does not serve {definition}: install {}, which has the CustomResourceDefinition",
            self.project
        )
    }

    /// Progress of a live object.
    pub fn assess(&self, name: &str, live: &Value) -> Progress {
        match self.readiness {
            Readiness::Exists => Progress::Done,
            Readiness::Condition(type_) => self.by_condition(type_, name, live),
            Readiness::Field { pointer, ready, failed } => {
                let state = text(live, pointer);
                match state {
                    _ if !is_current(live, live) || state.is_empty() => self.not_reported(name),
                    state if ready.contains(&state) => Progress::Done,
                    state if failed.contains(&state) => Progress::stalled(format!(
                        "{}: {state}; see kubectl describe {} {name}",
                        self.title(name),
                        self.kind.definition()
                    )),
                    state => Progress::waiting(format!("{}: {state}", self.title(name))),
                }
            }
            Readiness::Accepted => self.by_gateway(name, live),
        }
    }

    fn by_condition(&self, type_: &str, name: &str, live: &Value) -> Progress {
        match condition_of(live, type_) {
            Some(condition) if is_current(live, condition) => {
                if text(condition, "/status") == "True" {
                    return Progress::Done;
                }
                let message = text(condition, "/message");
                let separator = if message.is_empty() { "" } else { ": " };
                Progress::waiting(format!("{} is not {type_}{separator}{message}", self.title(name)))
            }
            _ => self.not_reported(name),
        }
    }

    fn by_gateway(&self, name: &str, live: &Value) -> Progress {
        let kind = self.kind.kind;
        let parents = live.pointer("/status/parents").and_then(Value::as_array);
        let verdict = parents.into_iter().flatten().find_map(|parent| {
            let conditions = parent.pointer("/conditions").and_then(Value::as_array)?;
            conditions.iter().find(|condition| text(condition, "/type") == "Accepted")
        });
        match verdict {
            Some(accepted) if text(accepted, "/status") == "True" => Progress::Done,
            Some(undecided) if text(undecided, "/reason") == "Pending" => {
                Progress::waiting(format!("{kind} {name}: its Gateway has not decided yet"))
            }
            Some(rejected) => Progress::stalled(format!(
                "{kind} {name} is rejected by its Gateway: {}; correct the Gateway, or gatewayRef and the hostname of \
                 the object",
                text(rejected, "/message")
            )),
            None => Progress::waiting(format!("{kind} {name}: its Gateway has not reported yet")),
        }
    }

    fn not_reported(&self, name: &str) -> Progress {
        Progress::waiting(format!("{}: {} has not reported yet", self.title(name), self.project))
    }

    /// The object with its group, because kinds of several groups have the same name.
    fn title(&self, name: &str) -> String {
        format!("{}.{} {name}", self.kind.kind, self.kind.group)
    }
}

/// Whether a report is about the current generation of an object. Reports without a generation are.
fn is_current(live: &Value, report: &Value) -> bool {
    let generation = live.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = |holder: &Value, pointer: &str| holder.pointer(pointer).and_then(Value::as_i64);
    [observed(live, "/status/observedGeneration"), observed(report, "/observedGeneration")]
        .into_iter()
        .flatten()
        .all(|observed| generation.is_none_or(|generation| observed >= generation))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KIND: Kind = Kind::new("example.com", "v1", "Part", "parts");

    fn assess(readiness: Readiness, status: &Value) -> Progress {
        let live = json!({ "metadata": { "generation": 2 }, "status": status });
        ForeignKind { kind: KIND, project: "parts-operator", readiness }.assess("x", &live)
    }

    fn waiting(message: &str) -> Progress {
        Progress::waiting(message)
    }

    const NOT_REPORTED: &str = "Part.example.com x: parts-operator has not reported yet";

    #[test]
    fn a_condition_counts_for_its_generation() {
        let condition = |status: &Value| assess(Readiness::Condition("Ready"), status);
        let ready = |observed: Option<i64>| {
            let mut condition = json!({ "type": "Ready", "status": "True" });
            condition
                .as_object_mut()
                .unwrap()
                .extend(observed.map(|generation| ("observedGeneration".to_owned(), generation.into())));
            json!([condition])
        };
        assert_eq!(condition(&json!({})), waiting(NOT_REPORTED));
        assert_eq!(condition(&json!({ "conditions": ready(None) })), Progress::Done);
        assert_eq!(condition(&json!({ "conditions": ready(Some(2)) })), Progress::Done);
        assert_eq!(condition(&json!({ "conditions": ready(Some(1)) })), waiting(NOT_REPORTED));
        let old = json!({ "conditions": ready(None), "observedGeneration": 1 });
        assert_eq!(condition(&old), waiting(NOT_REPORTED));
        let not = |message: &str| json!({ "conditions": [{ "type": "Ready", "status": "False", "message": message }] });
        assert_eq!(condition(&not("no volume")), waiting("Part.example.com x is not Ready: no volume"));
        assert_eq!(condition(&not("")), waiting("Part.example.com x is not Ready"));
    }

    #[test]
    fn a_field_has_values_that_are_ready_and_values_that_need_the_user() {
        let readiness =
            Readiness::Field { pointer: "/status/state", ready: &["Ready", "Done"], failed: &["Error"] };
        let field = |status: &Value| assess(readiness, status);
        assert_eq!(field(&json!({})), waiting(NOT_REPORTED));
        assert_eq!(field(&json!({ "state": "Ready", "observedGeneration": -1 })), waiting(NOT_REPORTED));
        assert_eq!(field(&json!({ "state": "Done", "observedGeneration": 2 })), Progress::Done);
        assert_eq!(field(&json!({ "state": "Pending" })), waiting("Part.example.com x: Pending"));
        let message = "Part.example.com x: Error; see kubectl describe parts.example.com x";
        assert_eq!(field(&json!({ "state": "Error" })), Progress::stalled(message));
    }

    #[test]
    fn an_object_that_reports_nothing_is_ready_when_it_exists() {
        assert_eq!(assess(Readiness::Exists, &json!({})), Progress::Done);
    }

    #[test]
    fn a_missing_kind_names_its_definition_and_its_project() {
        let expected = "the cluster does not serve httproutes.gateway.networking.k8s.io: install the Gateway API, which \
                        has the CustomResourceDefinition";
        assert_eq!(ROUTES.not_served(), expected);
    }
}
