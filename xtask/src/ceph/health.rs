//! The health of Ceph, from the output of `ceph status`.

use serde_json::Value;

use super::layout::Layout;

/// What is still missing until Ceph is healthy, in words.
pub(super) fn problems(status: &Value, layout: &Layout) -> Vec<String> {
    let mut problems = Vec::new();
    let wanted = layout.osds.count();
    let up = status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0);
    if up < wanted {
        problems.push(format!("{up} of {wanted} OSDs are up"));
    }
    if status["mgrmap"]["available"] != true {
        problems.push("no manager is active".to_owned());
    }
    let groups = status["pgmap"]["pgs_by_state"].as_array().map(Vec::as_slice).unwrap_or_default();
    for state in groups.iter().filter(|state| !is_clean(state)) {
        problems.push(format!("{} placement groups are {}", state["count"], text(&state["state_name"])));
    }
    if layout.filesystem && !has_active_server(status) {
        problems.push("no metadata server is active".to_owned());
    }
    let health = text(&status["health"]["status"]);
    if health != "HEALTH_OK" {
        let checks = status["health"]["checks"].as_object().into_iter().flatten();
        let checks: Vec<String> =
            checks.map(|(name, check)| format!("{name}: {}", text(&check["summary"]["message"]))).collect();
        problems.push(format!("{health}: {}", checks.join(", ")));
    }
    problems
}

/// Scrubs change the name of the state, not the data.
fn is_clean(state: &Value) -> bool {
    text(&state["state_name"]).starts_with("active+clean")
}

fn has_active_server(status: &Value) -> bool {
    let ranks = status["fsmap"]["by_rank"].as_array().map(Vec::as_slice).unwrap_or_default();
    ranks.iter().any(|rank| rank["status"] == "up:active")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::layout::Osds;
    use super::*;

    fn healthy() -> Value {
        json!({
            "health": { "status": "HEALTH_OK", "checks": {} },
            "osdmap": { "num_up_osds": 3 },
            "mgrmap": { "available": true },
            "fsmap": { "by_rank": [{ "status": "up:active" }] },
            "pgmap": { "pgs_by_state": [
                { "state_name": "active+clean", "count": 8 },
                { "state_name": "active+clean+scrubbing+deep", "count": 1 },
            ] },
        })
    }

    fn layout() -> Layout {
        Layout { osds: Osds::Three, filesystem: true, object_store: true }
    }

    #[test]
    fn a_healthy_cluster_has_no_problem() {
        assert!(problems(&healthy(), &layout()).is_empty());
    }

    #[test]
    fn every_problem_is_named() {
        let status = json!({
            "health": {
                "status": "HEALTH_WARN",
                "checks": { "OSD_DOWN": { "summary": { "message": "1 osds down" } } },
            },
            "osdmap": { "num_up_osds": 2 },
            "pgmap": { "pgs_by_state": [{ "state_name": "active+undersized", "count": 4 }] },
        });
        let expected = [
            "2 of 3 OSDs are up",
            "no manager is active",
            "4 placement groups are active+undersized",
            "no metadata server is active",
            "HEALTH_WARN: OSD_DOWN: 1 osds down",
        ];
        assert_eq!(problems(&status, &layout()), expected);
    }

    #[test]
    fn a_cluster_without_a_file_system_needs_no_metadata_server() {
        let mut status = healthy();
        status["fsmap"] = json!({});
        assert!(problems(&status, &Layout { filesystem: false, ..layout() }).is_empty());
    }
}
