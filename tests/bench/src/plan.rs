//! The time of planning and lowering a whole cloud.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::core::DynamicObject;
use openstack_operator_model::plan::Child;
use openstack_operator_model::status::Stage;
use serde_json::{Value, json};

use crate::planned::{Surroundings, plan_cloud};
use crate::table::{Table, median, milliseconds};

const ITERATIONS: usize = 2000;
/// Passes before the measurement, to warm up allocator and caches.
const WARM_UP: usize = 100;

pub(crate) fn measure() -> Result<String> {
    let everything = json!({
        "gatewayRef": { "name": "gateway", "namespace": "openstack" },
        "mariadb": { "replicas": 3 },
        "rabbitmq": { "replicas": 3 },
        "memcached": { "replicas": 3 },
        "keystone": {
            "replicas": 3,
            "notifications": { "enabled": true },
            "federation": { "enabled": true, "trustedDashboards": ["https://dashboard.example/auth/websso/"] },
            "policy": { "identity:list_users": "role:admin" },
            "extraConfig": { "keystone.conf": { "token": { "expiration": "7200" } } },
        },
    });
    let mut table = Table::new(&["cloud", "objects made", "median", "99th percentile"]);
    let minimal = cloud(&json!({}))?;
    let large: Vec<DynamicObject> = [minimal.clone()].into_iter().chain(copies(&minimal)?).collect();
    for (name, objects) in [
        ("minimal", vec![minimal]),
        ("with everything set", vec![cloud(&everything)?]),
        ("minimal, and 25 copies of its services in turn", large),
    ] {
        let (mut times, objects) = sample(&objects)?;
        times.sort();
        let late = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
        let figures = [objects.to_string(), milliseconds(median(&times)), milliseconds(late)];
        let [objects, median, late] = figures;
        table.row(&[name.to_owned(), objects, median, late]);
    }
    Ok(table.text())
}

/// A control plane with this spec.
pub(crate) fn cloud(spec: &Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "openstack.k8s.io/v1alpha1",
        "kind": "OpenStackControlPlane",
        "metadata": { "name": "cloud", "namespace": "openstack" },
        "spec": spec,
    }))?)
}

/// Number of services that are still to come.
const FURTHER: usize = 25;

/// Copies of the services of a cloud, which use its infrastructure.
fn copies(cloud: &DynamicObject) -> Result<Vec<DynamicObject>> {
    let site = crate::site("registry.example/openstack");
    let planned = plan_cloud(vec![cloud.clone()], &site, &Surroundings::default())?;
    let children = planned.iter().flat_map(|one| &one.plan.children);
    let services = children.filter(|child| child.stage > Some(Stage::Identity)).cycle();
    let copy = |(number, child): (usize, &Child)| {
        Ok(serde_json::from_value(json!({
            "apiVersion": child.kind.api_version(), "kind": child.kind.kind,
            "metadata": { "name": format!("copy-{number}"), "namespace": "openstack" }, "spec": child.spec,
        }))?)
    };
    services.take(FURTHER).enumerate().map(copy).collect()
}

/// The time of each pass and the number of its objects, including Secrets, which are not lowered.
fn sample(written: &[DynamicObject]) -> Result<(Vec<Duration>, usize)> {
    let site = crate::site("registry.example/openstack");
    let mut times = Vec::with_capacity(ITERATIONS);
    let mut objects = 0;
    for pass in 0..WARM_UP + ITERATIONS {
        let started = Instant::now();
        let planned = black_box(plan_cloud(black_box(written.to_vec()), &site, &Surroundings::default())?);
        let took = started.elapsed();
        if pass >= WARM_UP {
            times.push(took);
        }
        let manifests = planned.iter().flat_map(|one| one.manifests.values()).map(Vec::len).sum::<usize>();
        objects = manifests + planned.iter().map(|one| one.plan.secrets.len()).sum::<usize>();
    }
    Ok((times, objects))
}
