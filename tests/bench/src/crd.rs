//! Sizes of the CRDs.

use anyhow::Result;
use openstack_operator_services::ALL;

use crate::table::Table;

pub(crate) fn measure() -> Result<String> {
    let mut table = Table::new(&["kind", "definition as JSON"]);
    for service in ALL.iter() {
        let size = serde_json::to_vec(&service.crd())?.len();
        table.row(&[service.kind().kind.to_owned(), format!("{size} bytes")]);
    }
    Ok(table.text())
}
