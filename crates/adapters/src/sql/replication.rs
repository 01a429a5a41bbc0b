//! State of replication of a Galera member, and its way back after the loss of the quorum.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use openstack_operator_engine::ports::SqlServer;
use openstack_operator_model::service::{Replication, SqlView};
use snafu::{OptionExt, ResultExt};
use tokio::time::timeout;

use super::{Failure, ProtocolSnafu, SlowConnectionSnafu, SlowStatementSnafu, disconnect, execute, options};

/// A member that does not respond within this time counts as lost, so that another one receives the writes soon.
const VIEW_TIMEOUT: Duration = Duration::from_secs(3);
/// The driver would otherwise read both from the server with a SELECT, which a member without a quorum rejects.
const MAX_ALLOWED_PACKET: usize = 16 * 1024 * 1024;
const WAIT_TIMEOUT: usize = 28800;
const UNKNOWN_VARIABLE: u16 = 1193;

const STATUS: &str = "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_status', 'wsrep_local_state', \
                      'wsrep_cluster_size', 'wsrep_last_committed', 'wsrep_cluster_state_uuid')";

pub(super) async fn view(server: &SqlServer) -> Result<SqlView, Failure> {
    let mut connection = connect(server).await?;
    let rows = connection.query(STATUS);
    let rows: Vec<Row> = timeout(VIEW_TIMEOUT, rows).await.context(SlowStatementSnafu)??;
    disconnect(connection).await;
    let values: Option<BTreeMap<String, String>> =
        rows.into_iter().map(|mut row| Some((row.take_opt(0)?.ok()?, row.take_opt(1)?.ok()?))).collect();
    read(&values.context(ProtocolSnafu)?).context(ProtocolSnafu)
}

fn read(values: &BTreeMap<String, String>) -> Option<SqlView> {
    Some(SqlView {
        primary: values.get("wsrep_cluster_status")? == "Primary",
        replication: match values.get("wsrep_local_state")?.as_str() {
            "4" => Replication::Synced,
            "2" => Replication::Donor,
            _ => Replication::Joining,
        },
        size: values.get("wsrep_cluster_size")?.parse().ok()?,
        committed: values.get("wsrep_last_committed")?.parse().ok()?,
        history: values.get("wsrep_cluster_state_uuid")?.clone(),
    })
}

/// Newer servers have one variable per option of the provider, and cannot set all of them at once any more.
pub(super) async fn restore_quorum(server: &SqlServer) -> Result<(), Failure> {
    let mut connection = connect(server).await?;
    let statement = "SET GLOBAL wsrep_provider_pc_bootstrap = ON";
    match execute(&mut connection, statement).await {
        Err(Failure::Server { code: UNKNOWN_VARIABLE, .. }) => {
            execute(&mut connection, "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'").await?;
        }
        other => other?,
    }
    disconnect(connection).await;
    Ok(())
}

async fn connect(server: &SqlServer) -> Result<Conn, Failure> {
    let options = options(server, &server.administrator)
        .max_allowed_packet(Some(MAX_ALLOWED_PACKET))
        .wait_timeout(Some(WAIT_TIMEOUT));
    Ok(timeout(VIEW_TIMEOUT, Conn::new(options)).await.context(SlowConnectionSnafu)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_replication_is_read_from_status_variables() {
        let values = |status: &str, state: &str| {
            BTreeMap::from(
                [
                    ("wsrep_cluster_status", status),
                    ("wsrep_local_state", state),
                    ("wsrep_cluster_size", "2"),
                    ("wsrep_last_committed", "57"),
                    ("wsrep_cluster_state_uuid", "12-34"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
            )
        };
        let expected = SqlView {
            primary: true,
            replication: Replication::Donor,
            size: 2,
            committed: 57,
            history: "12-34".to_owned(),
        };
        assert_eq!(read(&values("Primary", "2")), Some(expected));
        let survivor = read(&values("non-Primary", "0")).unwrap();
        assert_eq!((survivor.primary, survivor.replication), (false, Replication::Joining));
        assert_eq!(read(&BTreeMap::new()), None, "the server does not replicate");
    }
}
