//! Chassis in OVN's southbound database, one for each node with ovn-controller.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_engine::ports::{AdminState, Agent};
use serde_json::{Value, json};

use crate::agents::ovsdb::{Failure, transact};

/// How far `nb_cfg` of a chassis may lag behind: the last update may still be on its way.
const MAX_LAG: i64 = 1;

pub(super) struct Southbound<'a> {
    pub(super) members: &'a [String],
    pub(super) database: &'a str,
}

impl Southbound<'_> {
    /// A chassis is up if it has acknowledged the current `nb_cfg`.
    pub(super) async fn list(&self) -> Result<Vec<Agent>, Failure> {
        let operations = [
            select("Chassis", &json!([]), &["_uuid", "hostname"]),
            select("Chassis_Private", &json!([]), &["chassis", "nb_cfg"]),
            select("SB_Global", &json!([]), &["nb_cfg"]),
        ];
        let results = transact(self.members, self.database, &operations).await?;
        let current = rows(&results, 2).next().and_then(|row| row["nb_cfg"].as_i64()).unwrap_or(0);
        let seen: BTreeMap<String, i64> = rows(&results, 1)
            .filter_map(|row| Some((row["chassis"].to_string(), row["nb_cfg"].as_i64()?)))
            .collect();
        Ok(rows(&results, 0)
            .filter_map(|row| {
                let seen = seen.get(&row["_uuid"].to_string()).copied();
                let node = row["hostname"].as_str()?.to_owned();
                Some(Agent {
                    node,
                    up: seen.is_some_and(|seen| seen + MAX_LAG >= current),
                    admin_state: AdminState::Unmanaged,
                })
            })
            .collect())
    }

    /// Ports of instances, without the chassis' own ports.
    pub(super) async fn ports(&self, node: &str) -> Result<Vec<String>, Failure> {
        let by_hostname = select("Chassis", &json!([["hostname", "==", node]]), &["_uuid"]);
        let found = transact(self.members, self.database, &[by_hostname]).await?;
        let mut ports = BTreeSet::new();
        for chassis in rows(&found, 0) {
            let bound = json!([["chassis", "==", chassis["_uuid"]], ["type", "==", ""]]);
            let bindings = select("Port_Binding", &bound, &["logical_port"]);
            let found = transact(self.members, self.database, &[bindings]).await?;
            let names = rows(&found, 0).filter_map(|row| row["logical_port"].as_str());
            ports.extend(names.map(|port| format!("port {port}")));
        }
        Ok(ports.into_iter().collect())
    }

    pub(super) async fn remove(&self, node: &str) -> Result<(), Failure> {
        let delete = |table: &str, column: &str| json!({ "op": "delete", "table": table, "where": [[column, "==", node]] });
        // Both records carry the name of the node.
        transact(
            self.members,
            self.database,
            &[delete("Chassis", "hostname"), delete("Chassis_Private", "name")],
        )
        .await
        .map(drop)
    }
}

fn select(table: &str, conditions: &Value, columns: &[&str]) -> Value {
    json!({ "op": "select", "table": table, "where": conditions, "columns": columns })
}

/// Rows that an operation selected.
fn rows(results: &[Value], operation: usize) -> impl Iterator<Item = &Value> {
    results.get(operation).and_then(|result| result["rows"].as_array()).into_iter().flatten()
}
