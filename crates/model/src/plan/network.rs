//! Services of Kubernetes, their ports, and routes to them.

use std::collections::BTreeMap;

use super::NamePart;
use crate::common::Scheme;

/// A Service of the pods of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkService {
    /// Suffix of the name of the Service. The main Service of the instance has none.
    pub suffix: Option<NamePart>,
    pub ports: Vec<Port>,
    pub reach: Reach,
}

/// Where a Service can be reached, and which pods get its traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At one cluster IP, for all pods.
    Cluster,
    /// At the DNS name of each pod, even before it is ready.
    EachPod,
    /// At one cluster IP, for the pod of this name.
    OnePod(String),
    /// Also at an address outside the cluster. Pods see the addresses of clients.
    LoadBalancer {
        /// Settings for the load balancer, e.g. an address.
        annotations: BTreeMap<String, String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: &'static str,
    pub number: u16,
    pub protocol: Protocol,
}

impl Port {
    pub const fn tcp(name: &'static str, number: u16) -> Self {
        Self { name, number, protocol: Protocol::Tcp }
    }

    pub const fn udp(name: &'static str, number: u16) -> Self {
        Self { name, number, protocol: Protocol::Udp }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// An HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub scheme: Scheme,
    /// Name or address.
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    /// URL without a path.
    pub fn url(&self) -> String {
        let Self { scheme, host, port } = self;
        let scheme = scheme.name();
        // An IPv6 address needs brackets.
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    }
}

/// Public access to a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub hostname: String,
    pub gateway: crate::common::GatewayReference,
    /// Suffix of the names of the route and its Service. The main Service of the instance has none.
    pub suffix: Option<NamePart>,
    pub port: u16,
    /// Scheme of public URLs. Some gateways would pass another one to servers, e.g. for consoles or behind a proxy.
    pub scheme: Scheme,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_the_scheme_of_its_endpoint_and_brackets_around_an_ipv6_address() {
        let url = |scheme, host: &str| Endpoint { scheme, host: host.to_owned(), port: 80 }.url();
        assert_eq!(url(Scheme::Http, "a.svc"), "http://a.svc:80");
        assert_eq!(url(Scheme::Https, "fd00::1"), "https://[fd00::1]:80");
    }
}
