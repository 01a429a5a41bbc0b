//! The waves of a change of release: which objects change when.

use openstack_operator_model::common::Reference;
use openstack_operator_model::plan::Upgrade;
use serde_json::{Value, json};

use crate::plan_all::Planned;

/// All upgrades as lines, which are also valid Markdown.
pub(super) fn text(planned: &[Planned]) -> String {
    upgrades(planned).map(|(planned, upgrade)| lines(planned, upgrade)).collect()
}

/// All upgrades for programs.
pub(super) fn json(planned: &[Planned]) -> Vec<Value> {
    let object = |(planned, upgrade): (&Planned, &Upgrade)| {
        json!({
            "kind": planned.key.kind.kind,
            "namespace": planned.key.namespace,
            "name": planned.key.name,
            "from": upgrade.from,
            "to": upgrade.to,
            "waves": upgrade.waves,
        })
    };
    upgrades(planned).map(object).collect()
}

fn upgrades(planned: &[Planned]) -> impl Iterator<Item = (&Planned, &Upgrade)> {
    planned.iter().filter_map(|planned| Some((planned, planned.plan.upgrade.as_ref()?)))
}

fn lines(planned: &Planned, upgrade: &Upgrade) -> String {
    let Upgrade { from, to, waves } = upgrade;
    let name = |reference: &Reference| format!("{} {}", reference.kind, reference.name);
    let wave = |(index, wave): (usize, &Vec<Reference>)| {
        let names: Vec<String> = wave.iter().map(name).collect();
        format!("{}. {}\n", index + 1, names.join(", "))
    };
    let waves: String = waves.iter().enumerate().map(wave).collect();
    format!(
        "\nUpgrade of {} from {} to {}. A wave starts when all objects of the earlier ones are Ready with the new \
         release; the changes above are those of the first wave:\n\n{waves}",
        planned.key,
        from.number(),
        to.number()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use openstack_operator_engine::engine::Key;
    use openstack_operator_model::image::{Family, ImageDefaults};
    use openstack_operator_model::release::Release;
    use openstack_operator_model::service::Site;
    use openstack_operator_model::status::Status;
    use openstack_operator_services::of_kind;

    use super::*;
    use crate::input::{Document, Origin};
    use crate::plan_all::{Known, KnownObject, plan_all};

    fn plan(release: &str, known: &Known) -> Vec<Planned> {
        let images = ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() };
        let site = Site { images, cluster_domain: "cluster.local".to_owned() };
        let kind = of_kind("OpenStackControlPlane").unwrap().kind();
        let spec = json!({ "release": release, "glance": { "enabled": false } });
        let object = json!({ "apiVersion": kind.api_version(), "kind": kind.kind,
                             "metadata": { "name": "cloud", "namespace": "n" }, "spec": spec });
        let document = Document {
            origin: Origin { file: "f.yaml".to_owned(), document: 1 },
            key: Key { kind, namespace: "n".to_owned(), name: "cloud".to_owned() },
            object: serde_json::from_value(object).unwrap(),
        };
        plan_all(vec![document], &site, known).unwrap()
    }

    /// A running cloud of the old release.
    fn running() -> Known {
        let status = Status { served: true, release: Some(Release::Epoxy), ..Status::default() };
        let known = |planned: Planned| {
            let spec = planned.object.data["spec"].clone();
            (planned.key, KnownObject { spec, status: status.clone(), ..KnownObject::default() })
        };
        let objects = plan("2025.1", &Known::default()).into_iter().map(known).collect();
        Known { objects, ..Known::default() }
    }

    #[test]
    fn a_change_of_release_shows_which_objects_change_in_which_wave() {
        let planned = plan("2026.1", &running());
        assert_eq!(
            text(&planned),
            "\nUpgrade of OpenStackControlPlane n/cloud from 2025.1 to 2026.1. A wave starts when all objects of the \
             earlier ones are Ready with the new release; the changes above are those of the first wave:\n\n\
             1. MariaDB cloud-mariadb, RabbitMQ cloud-rabbitmq, OVNNetwork cloud-ovn\n\
             2. Keystone cloud-keystone\n\
             3. Placement cloud-placement, Neutron cloud-neutron\n\
             4. Nova cloud-nova\n\
             5. NovaCompute cloud-compute\n\
             6. Memcached cloud-memcached\n"
        );
        let report = json(&planned);
        assert_eq!((&report[0]["from"], &report[0]["to"]), (&json!("2025.1"), &json!("2026.1")));
        assert_eq!(report[0]["waves"][1], json!([{ "kind": "Keystone", "name": "cloud-keystone" }]));
    }

    #[test]
    fn the_first_wave_changes_now_and_the_others_later() {
        let planned = plan("2026.1", &running());
        let release = |name: &str| {
            let found = planned.iter().find(|planned| planned.key.name == name).unwrap();
            found.object.data["spec"]["release"].clone()
        };
        assert_eq!(release("cloud-mariadb"), "2026.1");
        assert_eq!(release("cloud-keystone"), "2025.1");
    }

    #[test]
    fn a_cloud_that_keeps_its_release_has_no_waves() {
        assert_eq!(text(&plan("2025.1", &running())), "");
        assert_eq!(text(&plan("2026.1", &Known::default())), "", "a new cloud starts with its release");
    }
}
