//! At rest the operator writes nothing.

use crate::driver::{cloud, converge, engine, statuses, writes};

#[tokio::test]
async fn a_cloud_at_rest_is_not_written_to() {
    let (world, running) = cloud().await;
    println!("{}", statuses(&world, &running));
    println!("{:#}", world.fingerprint());
    converge(&world, &running).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn an_operator_that_starts_anew_writes_nothing() {
    let (world, _) = cloud().await;
    converge(&world, &engine(&world)).await;
    assert_eq!(writes(&world), [""; 0]);
}
