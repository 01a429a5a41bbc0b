//! At rest the operator writes nothing.

use crate::driver::{cloud, converge, engine, new_cloud, writes};

#[tokio::test]
async fn a_cloud_at_rest_is_not_written_to() {
    let world = new_cloud();
    let running = engine(&world);
    converge(&world, &running).await;
    assert!(!writes(&world).is_empty());
    world.script.clear_log();
    converge(&world, &running).await;
    assert_eq!(writes(&world), [""; 0]);
    assert!(!world.script.log().is_empty(), "but it is looked at");
}

#[tokio::test]
async fn an_operator_that_starts_anew_writes_nothing() {
    let (world, restarted) = cloud().await;
    converge(&world, &restarted).await;
    assert_eq!(writes(&world), [""; 0]);
    assert!(!world.script.log().is_empty());
}
