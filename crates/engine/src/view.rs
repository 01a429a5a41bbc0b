//! Views of members: asks each member of a cluster on its own address, and sends it commands.

use futures::future::join_all;
use kube::core::DynamicObject;
use openstack_operator_model::plan::{Endpoint, MemberProtocol};
use openstack_operator_model::service::{Command, MemberView};
use serde_json::Value;

use crate::engine::{Engine, Key};
use crate::ports::{BusServer, PortResult, SqlServer};

/// The server in a pod.
enum MemberServer {
    Sql(SqlServer),
    Bus(BusServer),
}

impl Engine {
    /// Views of all pods in their order; none of a pod that does not respond.
    pub(crate) async fn views(
        &self,
        namespace: &str,
        protocol: Option<&MemberProtocol>,
        pods: &[DynamicObject],
    ) -> PortResult<Vec<Option<MemberView>>> {
        let Some(protocol) = protocol else { return Ok(vec![None; pods.len()]) };
        let mut servers = Vec::new();
        for pod in pods {
            servers.push(self.member_server(namespace, protocol, pod).await?);
        }
        let views = servers.iter().map(async |server| {
            let view = match server.as_ref()? {
                MemberServer::Sql(server) => self.ports.sql.view(server).await.map(MemberView::Sql),
                MemberServer::Bus(server) => self.ports.bus.view(server).await.map(MemberView::Bus),
            };
            let failed = |error: &_| {
                tracing::debug!(error = error as &dyn std::error::Error, "a member does not respond");
            };
            view.inspect_err(failed).ok()
        });
        Ok(join_all(views).await)
    }

    pub(crate) async fn command(
        &self,
        key: &Key,
        protocol: Option<&MemberProtocol>,
        pods: &[DynamicObject],
        command: &Command,
    ) -> PortResult<()> {
        match command {
            Command::RestoreQuorum { pod } => {
                let pod = pods.iter().find(|found| found.metadata.name.as_ref() == Some(pod));
                let Some((protocol, pod)) = protocol.zip(pod) else { return Ok(()) };
                let server = self.member_server(&key.namespace, protocol, pod).await?;
                let Some(MemberServer::Sql(server)) = server else { return Ok(()) };
                tracing::warn!(pod = pod.metadata.name, "restoring the quorum on a surviving member");
                self.ports.sql.restore_quorum(&server).await
            }
            Command::Restart { pod, uid } => {
                tracing::warn!(pod, "restarting a member so that it reports its position");
                self.ports.cluster.delete(openstack_operator_model::kind::POD, &key.namespace, pod, uid).await
            }
        }
    }

    /// The server in a pod; none without an address or the administrator's Secret.
    async fn member_server(
        &self,
        namespace: &str,
        protocol: &MemberProtocol,
        pod: &DynamicObject,
    ) -> PortResult<Option<MemberServer>> {
        let (MemberProtocol::Sql { port, secret } | MemberProtocol::Bus { port, secret, .. }) = protocol;
        let address = pod.data.pointer("/status/podIP").and_then(Value::as_str);
        let login = self.login(namespace, secret).await?;
        Ok(address.zip(login).map(|(host, administrator)| match protocol {
            MemberProtocol::Sql { .. } => {
                MemberServer::Sql(SqlServer { host: host.to_owned(), port: *port, administrator })
            }
            MemberProtocol::Bus { scheme, .. } => {
                let endpoint = Endpoint { scheme: *scheme, host: host.to_owned(), port: *port };
                MemberServer::Bus(BusServer { management_url: endpoint.url(), administrator })
            }
        }))
    }
}
