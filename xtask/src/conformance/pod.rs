//! The pod that runs the tests, and what it is told of the cloud.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::settings::{Addresses, overlap};

/// The pod and the ConfigMap with its program.
pub(super) const NAME: &str = "conformance";
/// The tests: those that Tempest itself calls smoke tests, of every service that the sample has.
const TESTS: &str = r"^tempest\.(api\.(identity|image|network|compute)|scenario)\..*\[.*\bsmoke\b";
/// Tests that run side by side; guests on an emulated processor leave no room for more.
const WORKERS: &str = "2";
/// The network outside, as the sample calls it.
const PHYSICAL_NETWORK: &str = "physnet1";
/// Floating addresses: the same part of the range that every other test takes them from.
const FLOATING: (u32, u32) = (100, 200);

/// How the cloud's administrator is known, as Keystone's status says it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    pub(super) public_url: String,
    pub(super) region: String,
    pub(super) username: String,
    pub(super) secret: String,
    pub(super) secret_key: String,
}

pub(super) struct Images {
    pub(super) client: String,
    pub(super) guest: String,
}

/// All that is applied for a run.
pub(super) fn manifest(identity: &Identity, addresses: &Addresses, images: &Images) -> Result<Value> {
    let program = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME },
        "data": {
            "run.py": include_str!("run.py"),
            "tempest.conf": include_str!("tempest.conf"),
            "settings.json": settings(identity, addresses)?.to_string(),
        },
    });
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": [program, pod(identity, images)] }))
}

/// What the program is told. No password is among it.
fn settings(identity: &Identity, addresses: &Addresses) -> Result<Value> {
    let range = addresses.provider_range;
    let numbered = |number: u32| Ipv4Addr::from(u32::from(range.network()) + number);
    Ok(json!({
        "tests": TESTS,
        "workers": WORKERS,
        "identity": {
            "url": identity.public_url,
            "region": identity.region,
            "username": identity.username,
        },
        "provider": {
            "physicalNetwork": PHYSICAL_NETWORK,
            "range": range,
            "gateway": addresses.provider_host_address(),
            "first": numbered(FLOATING.0),
            "last": numbered(FLOATING.1),
        },
        "projectRange": project_range(addresses)?,
    }))
}

/// A range for the projects' networks. Guests could not answer a caller whose address they take for a neighbour's.
fn project_range(addresses: &Addresses) -> Result<Ipv4Net> {
    let mut candidates = (200..=255).map(|number| Ipv4Net::new_assert(Ipv4Addr::new(10, number, 0, 0), 16));
    let is_free =
        |candidate: &Ipv4Net| addresses.ranges().iter().all(|(_, range)| !overlap(*candidate, *range));
    candidates.find(is_free).context("the cluster's ranges leave none for networks of projects")
}

/// Everything that the restricted Pod Security Standard asks for, and a read-only root.
fn pod(identity: &Identity, images: &Images) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": NAME, "labels": { "app.kubernetes.io/name": NAME } },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": { "type": "RuntimeDefault" },
                // Tests ping servers, which then needs no right of its own.
                "sysctls": [{ "name": "net.ipv4.ping_group_range", "value": "0 2147483647" }],
            },
            "containers": [{
                "name": NAME,
                "image": images.client,
                "command": ["python3", "/program/run.py"],
                "env": [
                    { "name": "HOME", "value": "/workspace" },
                    { "name": "PYTHONUNBUFFERED", "value": "1" },
                    {
                        "name": "OS_AUTH__ADMIN_PASSWORD",
                        "valueFrom": {
                            "secretKeyRef": { "name": identity.secret, "key": identity.secret_key },
                        },
                    },
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "readOnlyRootFilesystem": true,
                },
                "volumeMounts": [
                    { "name": "program", "mountPath": "/program" },
                    { "name": "workspace", "mountPath": "/workspace" },
                    { "name": "tmp", "mountPath": "/tmp" },
                    { "name": "guest", "mountPath": "/guest" },
                ],
            }],
            "volumes": [
                { "name": "program", "configMap": { "name": NAME } },
                { "name": "workspace", "emptyDir": {} },
                { "name": "tmp", "emptyDir": {} },
                { "name": "guest", "image": { "reference": images.guest } },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            public_url: "http://keystone.example.org/v3".to_owned(),
            region: "RegionOne".to_owned(),
            username: "admin".to_owned(),
            secret: "cloud-keystone-admin".to_owned(),
            secret_key: "password".to_owned(),
        }
    }

    #[test]
    fn the_program_is_told_of_the_cloud() -> Result<()> {
        let settings = settings(&identity(), &Addresses::usual())?;
        assert_eq!(settings["identity"]["url"], "http://keystone.example.org/v3");
        assert_eq!(settings["provider"]["gateway"], "172.24.4.1");
        assert_eq!(settings["provider"]["first"], "172.24.4.100");
        assert_eq!(settings["projectRange"], "10.200.0.0/16");
        Ok(())
    }

    #[test]
    fn networks_of_projects_avoid_those_of_the_cluster() -> Result<()> {
        let addresses = Addresses {
            node_range: "10.200.0.0/24".parse()?,
            pod_range: "10.201.0.0/16".parse()?,
            ..Addresses::usual()
        };
        assert_eq!(project_range(&addresses)?.to_string(), "10.202.0.0/16");
        Ok(())
    }

    #[test]
    fn the_password_is_named_and_nowhere_written() -> Result<()> {
        let images = Images { client: "r/client:1".to_owned(), guest: "r/guest:1".to_owned() };
        let manifest = manifest(&identity(), &Addresses::usual(), &images)?;
        let variables = manifest.pointer("/items/1/spec/containers/0/env").and_then(Value::as_array);
        let sources: Vec<&Value> =
            variables.into_iter().flatten().filter_map(|variable| variable.get("valueFrom")).collect();
        assert_eq!(
            sources,
            [&json!({ "secretKeyRef": { "name": "cloud-keystone-admin", "key": "password" } })]
        );
        let told = manifest.pointer("/items/0/data/settings.json").map(ToString::to_string);
        assert!(
            told.is_some_and(|told| !told.contains("password") && !told.contains("cloud-keystone-admin"))
        );
        Ok(())
    }
}
