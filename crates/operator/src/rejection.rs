//! Planned objects that an API server would reject.

use openstack_operator_model::service::Invalid;
use openstack_operator_services::of_kind;

use crate::input::{Problem, Problems};
use crate::live::Live;
use crate::plan_all::Planned;
use crate::schema;

/// Fails if the API server would reject an object, or its change.
pub(crate) fn ensure_accepted(planned: &[Planned], live: &Live) -> Result<(), Problems> {
    // A problem of an object is also one of its parts, and is reported once.
    let (written, parts): (Vec<&Planned>, Vec<&Planned>) =
        planned.iter().partition(|planned| planned.parent.is_none());
    for objects in [written, parts] {
        let problems: Vec<Problem> =
            objects.into_iter().flat_map(|planned| rejections(planned, live)).collect();
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
    }
    Ok(())
}

fn rejections(planned: &Planned, live: &Live) -> Vec<Problem> {
    let Some(service) = of_kind(planned.key.kind.kind) else { return Vec::new() };
    let object = match serde_json::to_value(&planned.object) {
        Ok(object) => object,
        Err(error) => {
            let invalid = Invalid::new("spec", format!("cannot be written as JSON: {error}"));
            return vec![planned.problem(invalid)];
        }
    };
    let found = schema::check(&schema::of(service), &object, live.objects.get(&planned.key));
    found.into_iter().map(|invalid| planned.problem(invalid)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use openstack_operator_engine::engine::Key;
    use openstack_operator_model::image::{Family, ImageDefaults};
    use openstack_operator_model::service::Site;
    use serde_json::{Value, json};

    use super::*;
    use crate::input::{Document, Origin};
    use crate::plan_all::{Known, plan_all};

    fn object(spec: &Value) -> Value {
        let kind = of_kind("OpenStackControlPlane").unwrap().kind();
        json!({ "apiVersion": kind.api_version(), "kind": kind.kind,
                "metadata": { "name": "cloud", "namespace": "n" }, "spec": spec })
    }

    fn planned(spec: &Value) -> Vec<Planned> {
        let images = ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() };
        let site = Site { images, cluster_domain: "cluster.local".to_owned() };
        let kind = of_kind("OpenStackControlPlane").unwrap().kind();
        let document = Document {
            origin: Origin { file: "f.yaml".to_owned(), document: 1 },
            key: Key { kind, namespace: "n".to_owned(), name: "cloud".to_owned() },
            object: serde_json::from_value(object(spec)).unwrap(),
        };
        plan_all(vec![document], &site, &Known::default()).unwrap()
    }

    /// A cluster in which a cloud of this spec and its parts are stored.
    fn stored(spec: &Value) -> Live {
        let objects = planned(spec).into_iter();
        let objects =
            objects.map(|planned| (planned.key, serde_json::to_value(planned.object).unwrap())).collect();
        Live { objects, ..Live::default() }
    }

    #[test]
    fn a_cloud_and_its_parts_are_accepted() {
        let spec = json!({ "mariadb": { "replicas": 3, "storageSize": "10Gi" } });
        assert!(ensure_accepted(&planned(&spec), &Live::default()).is_ok());
        assert!(ensure_accepted(&planned(&spec), &stored(&spec)).is_ok());
    }

    #[test]
    fn a_change_that_the_api_server_rejects_is_reported_once() {
        let (old, new) = (json!({ "networkBackend": "ovn" }), json!({ "networkBackend": "ovs" }));
        let problems = ensure_accepted(&planned(&new), &stored(&old)).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "f.yaml, document 1 (OpenStackControlPlane n/cloud): spec.networkBackend: networkBackend cannot be \
             changed: the ports of instances would have to be recreated (it is \"ovs\")"
        );
    }

    #[test]
    fn a_part_that_the_api_server_rejects_is_reported_with_its_cloud() {
        let mut planned = planned(&json!({}));
        let part = planned.iter_mut().find(|planned| planned.key.kind.kind == "Memcached").unwrap();
        part.object.data["spec"]["replicas"] = json!(0);
        let problems = ensure_accepted(&planned, &Live::default()).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "f.yaml, document 1 (Memcached n/cloud-memcached, part of OpenStackControlPlane n/cloud): \
             spec.replicas: must be at least 1, and 0 is not"
        );
    }
}
