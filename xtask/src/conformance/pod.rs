//! The pod that runs the tests, and its settings.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::settings::{Addresses, overlap};

/// The pod and the ConfigMap with its program.
pub(super) const NAME: &str = "conformance";
/// Tests that run in parallel; instances on emulated processors leave no room for more.
const WORKERS: &str = "2";
/// The sample's name of the provider network.
const PHYSICAL_NETWORK: &str = "physnet1";
/// Floating IPs: the part of the range that all tests use.
const FLOATING: (u32, u32) = (100, 200);

/// The login of the cloud's administrator, from Keystone's status.
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

/// The objects of a run of the tests that match a regular expression.
pub(super) fn manifest(
    identity: &Identity,
    addresses: &Addresses,
    images: &Images,
    tests: &str,
) -> Result<Value> {
    let program = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME },
        "data": {
            "run.py": include_str!("run.py"),
            "tempest.conf": include_str!("tempest.conf"),
            "settings.json": settings(identity, addresses, tests)?.to_string(),
        },
    });
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": [program, pod(identity, images)] }))
}

/// Settings of the program. They contain no password.
fn settings(identity: &Identity, addresses: &Addresses, tests: &str) -> Result<Value> {
    let range = addresses.provider_range;
    let numbered = |number: u32| Ipv4Addr::from(u32::from(range.network()) + number);
    Ok(json!({
        "tests": tests,
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

/// A range for the networks of projects that overlaps no range of the cluster: instances could not reach clients there.
fn project_range(addresses: &Addresses) -> Result<Ipv4Net> {
    let mut candidates = (200..=255).map(|number| Ipv4Net::new_assert(Ipv4Addr::new(10, number, 0, 0), 16));
    let is_free =
        |candidate: &Ipv4Net| addresses.ranges().iter().all(|(_, range)| !overlap(*candidate, *range));
    candidates.find(is_free).context("the cluster's ranges leave no range for networks of projects")
}

/// A pod that meets the restricted Pod Security Standard and has a read-only root.
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
                // Lets tests ping instances without a capability.
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
    fn the_program_knows_the_cloud() -> Result<()> {
        let settings = settings(&identity(), &Addresses::usual(), "^tempest")?;
        assert_eq!(settings["tests"], "^tempest");
        assert_eq!(settings["identity"]["url"], "http://keystone.example.org/v3");
        assert_eq!(settings["provider"]["gateway"], "172.24.4.1");
        assert_eq!(settings["provider"]["first"], "172.24.4.100");
        assert_eq!(settings["projectRange"], "10.200.0.0/16");
        Ok(())
    }

    #[test]
    fn networks_of_projects_do_not_overlap_those_of_the_cluster() -> Result<()> {
        let addresses = Addresses {
            node_range: "10.200.0.0/24".parse()?,
            pod_range: "10.201.0.0/16".parse()?,
            ..Addresses::usual()
        };
        assert_eq!(project_range(&addresses)?.to_string(), "10.202.0.0/16");
        Ok(())
    }

    #[test]
    fn the_pod_gets_the_password_from_its_secret_only() -> Result<()> {
        let images = Images { client: "r/client:1".to_owned(), guest: "r/guest:1".to_owned() };
        let manifest = manifest(&identity(), &Addresses::usual(), &images, "^tempest")?;
        let variables = manifest.pointer("/items/1/spec/containers/0/env").and_then(Value::as_array);
        let sources: Vec<&Value> =
            variables.into_iter().flatten().filter_map(|variable| variable.get("valueFrom")).collect();
        assert_eq!(
            sources,
            [&json!({ "secretKeyRef": { "name": "cloud-keystone-admin", "key": "password" } })]
        );
        let settings = manifest.pointer("/items/0/data/settings.json").map(ToString::to_string);
        let settings = settings.unwrap_or_default();
        assert!(settings.contains("RegionOne") && !settings.contains("password"), "{settings}");
        assert!(!settings.contains("cloud-keystone-admin"), "{settings}");
        Ok(())
    }
}
