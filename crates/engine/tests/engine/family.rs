//! Image families: another family never opens existing data.

use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::kind::STATEFUL_SET;
use openstack_operator_services::{control_plane, keystone, mariadb, rabbitmq};
use openstack_operator_testkit::World;
use serde_json::json;

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, engine_with_images, get, is_ready, new_cloud, round,
    writes,
};

fn debian() -> ImageDefaults {
    ImageDefaults { family: Family::Debian, registry: None, tags: [].into() }
}

fn database_image(world: &World) -> String {
    let set = get(world, STATEFUL_SET, "cloud-mariadb");
    set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn another_family_as_the_default_of_the_operator_stalls_every_object_with_data() {
    let (world, _) = cloud().await;
    world.script.clear_log();
    converge(&world, &engine_with_images(&world, debian())).await;
    for (kind, name) in [
        (control_plane::KIND, "cloud"),
        (mariadb::KIND, "cloud-mariadb"),
        (rabbitmq::KIND, "cloud-rabbitmq"),
        (keystone::KIND, "cloud-keystone"),
    ] {
        let (status, reason, message) = condition(&world, kind, name, "Stalled");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "InvalidSpec"), "{name}");
        let expected = "spec.images.family: images of family kolla wrote the data of this object";
        assert!(message.starts_with(expected), "{message}");
        for part in ["set it to kolla", "--images-family", "deploy a second cloud with family debian"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let others: Vec<String> = writes(&world)
        .into_iter()
        .filter(|write| !write.contains("status") && !write.contains("publish"))
        .collect();
    assert_eq!(others, [""; 0]);
    converge(&world, &engine(&world)).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn another_family_in_a_cloud_stalls_the_cloud_and_does_not_reach_its_services() {
    let (world, running) = cloud().await;
    let image = database_image(&world);
    let set_family = |family: &str| {
        world.edit_object(control_plane::KIND, NAMESPACE, "cloud", |cloud| {
            cloud["spec"]["images"]["family"] = json!(family);
        });
    };
    set_family("debian");
    converge(&world, &running).await;
    assert_eq!(condition(&world, control_plane::KIND, "cloud", "Stalled").0, "True");
    assert_eq!(condition(&world, mariadb::KIND, "cloud-mariadb", "Stalled").0, "False");
    assert_eq!(database_image(&world), image);
    set_family("kolla");
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn another_registry_of_the_same_family_is_accepted() {
    let (world, _) = cloud().await;
    let mirror = Some("mirror.example.com/kolla".to_owned());
    let images = ImageDefaults { family: Family::Kolla, registry: mirror, tags: [].into() };
    converge(&world, &engine_with_images(&world, images)).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert!(database_image(&world).starts_with("mirror.example.com/kolla/"));
}

#[tokio::test]
async fn the_family_can_change_before_there_is_data() {
    let world = new_cloud();
    round(&world, &engine(&world)).await;
    converge(&world, &engine_with_images(&world, debian())).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(get(&world, mariadb::KIND, "cloud-mariadb")["status"]["family"], "debian");
}
