//! temp
fn main() {
    for s in openstack_operator_services::ALL {
        println!("---\n{}", serde_json::to_string(&s.crd()).unwrap());
    }
}
