//! The operator writes nothing while nothing changes.

use crate::driver::{cloud, converge, engine, new_cloud, writes};

#[tokio::test]
async fn a_converged_cloud_causes_no_writes() {
    let world = new_cloud();
    let running = engine(&world);
    converge(&world, &running).await;
    assert!(!writes(&world).is_empty());
    world.script.clear_log();
    converge(&world, &running).await;
    assert_eq!(writes(&world), [""; 0]);
    assert!(!world.script.log().is_empty(), "it is still read");
}

#[tokio::test]
async fn a_restarted_operator_writes_nothing() {
    let (world, restarted) = cloud().await;
    converge(&world, &restarted).await;
    assert_eq!(writes(&world), [""; 0]);
    assert!(!world.script.log().is_empty());
}
