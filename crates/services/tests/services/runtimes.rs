//! Releases and image families: every case renders in each of them, and one golden file shows what differs.

use std::collections::BTreeMap;
use std::fmt::Write;

use openstack_operator_model::common::Reference;
use openstack_operator_model::image::Family;
use openstack_operator_model::kind::CONFIG_MAP;
use openstack_operator_model::lower::{Observed, TASK_ANNOTATION};
use openstack_operator_model::need::{PartState, Resolved};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::release::{Release, Runtime};
use openstack_operator_model::service::Invalid;
use openstack_operator_services::{control_plane, of_kind};
use openstack_operator_testkit::yaml;
use serde_json::{Value, json};

use crate::fixture::{Case, Rendered, cases, object, site, walk};

/// The case with this release and family.
fn render(case: &Case, runtime: Runtime) -> Rendered {
    let definition = serde_json::to_value(case.service.crd()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut spec = case.spec.clone();
    if schema["properties"].get("release").is_some() {
        spec["release"] = json!(runtime.release);
        spec["images"]["family"] = json!(runtime.family);
    }
    let title = case.title.clone();
    let case = Case { service: case.service, title: title.clone(), name: case.name.clone(), spec };
    case.render(&Observed::default()).unwrap_or_else(|invalid| panic!("{title} {runtime:?}: {invalid}"))
}

/// Images of all containers.
fn images(rendered: &Rendered) -> Vec<String> {
    let mut images = Vec::new();
    for manifest in &rendered.manifests {
        walk("", &manifest.body, &mut |path, value| {
            images.extend(
                value.as_str().filter(|_| path.rsplit('.').next() == Some("image")).map(str::to_owned),
            );
        });
    }
    images
}

fn default_tag(runtime: Runtime) -> String {
    let number = runtime.release.number();
    match runtime.family {
        Family::Kolla => format!(":{number}-ubuntu-noble"),
        Family::Debian => format!(":{number}"),
    }
}

#[test]
fn every_case_renders_with_the_images_of_every_release_and_family() {
    let mut checked = 0;
    for case in cases() {
        let tagged = |runtime| {
            let found = images(&render(&case, runtime));
            let tag = default_tag(runtime);
            let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|image| image.ends_with(&tag));
            let foreign = |image: &&String| Runtime::all().any(|other| image.ends_with(&default_tag(other)));
            assert_eq!(others.iter().find(foreign), None, "{} {runtime:?}", case.title);
            own.len()
        };
        let counts: Vec<usize> = Runtime::all().map(tagged).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{}: {counts:?}", case.title);
        checked += counts[0];
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn all_services_of_a_cloud_get_its_release() {
    for case in cases().iter().filter(|case| case.service.kind() == control_plane::KIND) {
        for runtime in Runtime::all() {
            for child in render(case, runtime).plan.children {
                assert_eq!(child.spec["release"], json!(runtime.release), "{}: {}", case.title, child.name);
            }
        }
    }
}

/// Lines of all manifests without images, in which a file has its own name instead of the hash of its content.
fn lines(rendered: &Rendered) -> BTreeMap<String, Vec<String>> {
    let files = rendered.manifests.iter().filter(|manifest| manifest.kind == CONFIG_MAP);
    let named: Vec<(String, String)> = files
        .filter_map(|map| {
            let (file, _) = map.body["data"].as_object()?.iter().next()?;
            Some((map.name.clone(), file.clone()))
        })
        .collect();
    let stable = |text: String| named.iter().fold(text, |text, (map, file)| text.replace(map, file));
    let shown = |line: &&str| !line.contains("image: ") && !line.contains(TASK_ANNOTATION);
    let manifest =
        |body: &Value| stable(yaml(body)).lines().filter(shown).map(|line| line.trim().to_owned()).collect();
    rendered
        .manifests
        .iter()
        .map(|one| (stable(format!("{} {}", one.kind.kind, one.name)), manifest(&one.body)))
        .collect()
}

/// Lines that only one of both has.
fn difference(one: &Rendered, other: &Rendered) -> String {
    let (one, other) = (lines(one), lines(other));
    let mut text = String::new();
    let objects: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for object in objects {
        let of = |all: &BTreeMap<String, Vec<String>>| all.get(object).cloned().unwrap_or_default();
        let (before, after) = (of(&one), of(&other));
        let missing = |these: &[String], those: &[String], mark: char| -> String {
            let lines = these.iter().filter(|line| !those.contains(line));
            lines.fold(String::new(), |text, line| text + &format!("{mark} {line}\n"))
        };
        let changed = missing(&before, &after, '-') + &missing(&after, &before, '+');
        if !changed.is_empty() {
            write!(text, "{object}\n{changed}").unwrap();
        }
    }
    text
}

#[test]
fn what_differs_between_releases_and_families_is_in_its_golden() {
    let mut text = String::new();
    let services =
        |case: &&Case| case.title.ends_with("-minimal") && case.service.kind() != control_plane::KIND;
    for case in cases().iter().filter(services) {
        let mut add = |title: String, one, other| {
            let changed = difference(&render(case, one), &render(case, other));
            if !changed.is_empty() {
                writeln!(text, "# {}: {title}\n{changed}", case.title).unwrap();
            }
        };
        for family in Family::ALL {
            let mut releases = Release::ALL.iter().map(|release| Runtime { release: *release, family });
            let mut one = releases.next().unwrap();
            for other in releases {
                let (from, to) = (one.release.number(), other.release.number());
                add(format!("{from} to {to} ({})", family.name()), one, other);
                one = other;
            }
        }
        for release in Release::ALL {
            let [one, other] = Family::ALL.map(|family| Runtime { release: *release, family });
            let (from, to) = (one.family.name(), other.family.name());
            add(format!("{from} to {to} ({})", release.number()), one, other);
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("runtimes", text));
}

/// A cloud whose parts have these states.
fn plan_cloud(spec: &Value, parts: BTreeMap<Reference, PartState>) -> Result<Plan, Invalid> {
    let service = of_kind(control_plane::KIND.kind).unwrap();
    let decoded = service.decode(&object(service, "cloud", spec))?;
    let inputs = Resolved { parts, ..Resolved::default() };
    decoded.plan(&inputs, &site(), &BTreeMap::new())
}

/// The parts of a cloud that runs on the old release; those of these names have changed to the new one.
fn running(spec: &Value, changed: &[&str]) -> BTreeMap<Reference, PartState> {
    let children = plan_cloud(spec, BTreeMap::new()).unwrap().children.into_iter();
    children
        .map(|child| {
            let is_new = changed.contains(&child.name.as_str());
            let release = if is_new { Release::Gazpacho } else { Release::Epoxy };
            let mut spec = child.spec;
            spec["release"] = json!(release);
            let state = PartState { spec, release: Some(release), ready: true };
            (Reference::new(child.kind, child.name), state)
        })
        .collect()
}

fn with_tags(release: &str, all: &str, identity: &str) -> Value {
    let image = json!({ "service": "keystone", "component": "all", "image": { "tag": identity } });
    json!({ "release": release, "images": { "tag": all }, "components": [image] })
}

#[test]
fn a_service_with_its_own_image_keeps_it_until_its_wave() {
    let (old, new) = (with_tags("2025.1", "1", "k1"), with_tags("2026.1", "2", "k2"));
    let tags = |changed: &[&str]| {
        let plan = plan_cloud(&new, running(&old, changed)).unwrap();
        ["cloud-mariadb", "cloud-keystone"].map(|name| {
            let spec = &plan.children.iter().find(|child| child.name == name).unwrap().spec;
            let text =
                |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
            [text("/release"), text("/images/tag"), text("/image/tag")].join(" ")
        })
    };
    assert_eq!(tags(&[]), ["2026.1 2 -", "2025.1 1 k1"]);
    assert_eq!(tags(&["cloud-mariadb", "cloud-rabbitmq", "cloud-ovn"]), ["2026.1 2 -", "2026.1 2 k2"]);
}

#[test]
fn a_tag_that_does_not_follow_the_release_is_refused() {
    let old = with_tags("2025.1", "1", "k1");
    let refusal = |all: &str, identity: &str| {
        let invalid = plan_cloud(&with_tags("2026.1", all, identity), running(&old, &[])).unwrap_err();
        invalid.to_string()
    };
    let found = refusal("1", "k2");
    assert!(found.starts_with("spec.images.tag: \"1\" is the tag of images of release 2025.1"), "{found}");
    let found = refusal("2", "k1");
    assert!(found.starts_with("spec.components: keystone/all: \"k1\" is the tag"), "{found}");
    assert!(plan_cloud(&with_tags("2026.1", "2", "k2"), running(&old, &[])).is_ok());
    assert!(plan_cloud(&old, running(&old, &[])).is_ok());
}

#[test]
fn an_unfinished_upgrade_is_planned_with_its_waves() {
    let upgrade = |changed: &[&str]| {
        let parts = running(&json!({}), changed);
        plan_cloud(&json!({ "release": "2026.1" }), parts).unwrap().upgrade
    };
    let before = upgrade(&[]).unwrap();
    assert_eq!((before.from, before.to, before.waves.len()), (Release::Epoxy, Release::Gazpacho, 6));
    let all: Vec<String> = running(&json!({}), &[]).into_keys().map(|part| part.name).collect();
    assert_eq!(upgrade(&all.iter().map(String::as_str).collect::<Vec<_>>()), None);
}
