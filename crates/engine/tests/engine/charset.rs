//! Character sets of databases.

use serde_json::json;

use crate::driver::{NAMESPACE, cloud, condition, converge, is_ready, object};
use crate::test_services::WIDGET;

const SQL: &str = "cloud-mariadb.openstack.svc";

#[tokio::test]
async fn a_database_keeps_the_character_set_of_its_creation_and_the_user_learns_of_it() {
    let (world, engine) = cloud().await;
    world.apply_object(&object(WIDGET, "widget", &json!({ "charset": "utf8mb4" })));
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    assert_eq!(world.sql.state(SQL).charsets["widget"], "utf8mb4");
    let (_, _, remarks) = condition(&world, WIDGET, "widget", "Ready");
    assert!(!remarks.contains("character set"), "{remarks}");
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    converge(&world, &engine).await;
    assert_eq!(world.sql.state(SQL).charsets["widget"], "utf8mb4");
    let (status, _, remarks) = condition(&world, WIDGET, "widget", "Ready");
    let expected = "database widget has character set utf8mb4; the operator does not convert it to utf8mb3";
    assert!(status == "True" && remarks.contains(expected), "{remarks}");
    world.delete_object(WIDGET, NAMESPACE, "widget");
    converge(&world, &engine).await;
    assert!(world.sql.state(SQL).charsets.is_empty());
}
