//! Nova's compute nodes: libvirt and nova-compute on every node of some kind.

use kube::CustomResource;
use openstack_operator_model::common::{Common, IdentitySettings, Origin, Resources, Scheduling, is_default};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Check, Container, Host, HostPath, Mount, Plan, Pod, Privilege, Probes, Registry, Roster, Variable,
    Workload,
};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::{ComputeServer, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::{self, Account};
use crate::template::{self, ServiceReference};
use crate::{nova, placement, switch};

pub const KIND: Kind = Kind::own("NovaCompute", "novacomputes");

/// Nodes that run servers.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "NovaCompute",
    plural = "novacomputes",
    namespaced,
    status = "Status",
    shortname = "ncp",
    category = "openstack",
    validation = template::identity_rule(),
    validation = Rule::new("has(self.spec.nova) && has(self.spec.nova.clusterRef)")
        .message("spec.nova.clusterRef is missing: name a Nova")
)]
pub struct NovaComputeSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: NovaComputeTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaComputeTemplate {
    #[serde(default)]
    pub keystone: IdentitySettings,
    #[serde(default)]
    pub nova: ServiceReference,
    /// Who is told what the nodes have. Nodes are not started before it is Ready.
    #[serde(default)]
    pub placement: ServiceReference,
    /// Cell that the nodes belong to.
    #[serde(default = "cell")]
    #[schemars(length(min = 1, max = 10), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub cell: String,
    /// What guests run on. `auto` runs a guest to find out.
    #[serde(default)]
    pub virt_type: VirtType,
    /// CPU and memory of libvirt, which those of guests are not part of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub libvirt_resources: Resources,
    #[serde(flatten)]
    pub common: Common,
}

fn cell() -> String {
    "cell1".to_owned()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VirtType {
    #[default]
    Auto,
    Kvm,
    Qemu,
}

impl VirtType {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        }
    }
}

pub struct Service;

impl service::Service for Service {
    type Object = NovaCompute;
    const KIND: Kind = KIND;
    const NAME: &'static str = "nova-compute";

    fn needs(object: &NovaCompute) -> Needs {
        let template = &object.spec.template;
        let needs = Needs::default().after(&template.common.depends_on);
        shared::identity_needs(needs, &template.keystone)
            .object("spec.nova.clusterRef", nova::KIND, template.nova.name())
            .later(nova::KIND, template.nova.name())
            .later(placement::KIND, template.placement.name())
            .nodes(&scheduling(template))
    }

    fn plan(context: &Context<'_, NovaCompute>) -> Result<Plan, Invalid> {
        let NovaComputeSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &[nova::CONFIGURATION])?;
        let Some(name) = template.nova.name() else {
            return Err(Invalid::new("spec.nova.clusterRef", "is missing: name a Nova"));
        };
        let compute = context.inputs.compute(nova::KIND, name, "spec.nova.clusterRef.name")?;
        let (_, server) = shared::identity(context, &template.keystone)?;
        let account =
            Account { server, username: nova::USERNAME.to_owned(), secret: compute.identity_secret.clone() };
        let Some(cell) = compute.cells.iter().find(|cell| cell.name == template.cell) else {
            let cells: Vec<&str> = compute.cells.iter().map(|cell| cell.name.as_str()).collect();
            let reason =
                format!("Nova {name:?} has no cell {:?}: it has {}", template.cell, cells.join(", "));
            return Err(Invalid::new("spec.cell", reason));
        };
        let files = [
            ("libvirt.sh", include_str!("compute/libvirt.sh").to_owned()),
            ("detect.sh", include_str!("compute/detect.sh").to_owned()),
            ("prepare.sh", include_str!("compute/prepare.sh").to_owned()),
            ("compute.sh", include_str!("compute/compute.sh").to_owned()),
            ("compute.py", include_str!("compute/compute.py").to_owned()),
            ("libvirtd.conf", include_str!("compute/libvirtd.conf").to_owned()),
            ("qemu.conf", include_str!("compute/qemu.conf").to_owned()),
            ("virtlogd.conf", include_str!("compute/virtlogd.conf").to_owned()),
            (nova::CONFIGURATION, configuration(template, &account, compute)),
        ];
        let bus = Variable::secret("OS_DEFAULT__TRANSPORT_URL", &cell.messaging_secret, "transport_url");
        let mut agent =
            compute_agent(context, [bus].into_iter().chain(account.passwords(&nova::PEERS)).collect());
        agent.after = [(nova::KIND, template.nova.name()), (placement::KIND, template.placement.name())]
            .into_iter()
            .filter_map(|(kind, name)| Some(shared::reference(kind, name?)))
            .collect();
        let roster = Roster {
            provider: shared::reference(nova::KIND, name),
            registry: Registry::Hypervisors { url: compute.url.clone(), identity: server.clone() },
            nodes: context.inputs.chosen_nodes(),
        };
        Ok(Plan {
            files: files.map(|(file, text)| (file.to_owned(), text)).into(),
            workloads: shared::with_leaving(vec![libvirt(context), agent], &context.inputs.leaving_nodes()),
            roster: Some(roster),
            pull_secrets: origin.images.pull_secrets.clone(),
            ..Plan::default()
        })
    }
}

/// Where the pods of nodes run.
fn scheduling(template: &NovaComputeTemplate) -> Scheduling {
    shared::on_hypervisors(&template.common.scheduling)
}

fn configuration(template: &NovaComputeTemplate, account: &Account<'_>, compute: &ComputeServer) -> String {
    nova::common_options(Document::new(), account, &[])
        .set("DEFAULT", "compute_driver", "libvirt.LibvirtDriver")
        .set("libvirt", "connection_uri", "qemu:///system")
        .set("os_vif_ovs", "ovsdb_connection", switch::DATABASE)
        .set("vnc", "novncproxy_base_url", &compute.console_url)
        .set("oslo_concurrency", "lock_path", "/var/lib/nova/tmp")
        .merge(template.common.extra_config.get(nova::CONFIGURATION))
        .render()
}

fn on_nodes(
    context: &Context<'_, NovaCompute>,
    component: &'static str,
    host: Host,
    setup: Vec<Container>,
    container: Container,
) -> Workload {
    let scheduling = scheduling(&context.object.spec.template);
    let pod = Pod { setup, host, ..Pod::new(nova::USER, &scheduling, vec![container]) };
    Workload::on_nodes(component, pod)
}

fn libvirt(context: &Context<'_, NovaCompute>) -> Workload {
    let NovaComputeSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "nova-libvirt", debian: "libvirt" };
    let image = shared::image(context, names, &template.common, origin);
    let resources = shared::resources(&template.libvirt_resources, ("20m", "256Mi"), "2Gi");
    let run = || shared::host_directory("run-libvirt", "/run/libvirt");
    let dev = || shared::host("dev", "/dev", HostPath::Existing);
    let detect = Container {
        name: "detect",
        image: image.clone(),
        command: shared::script("/etc/openstack/detect.sh"),
        environment: vec![Variable::text("VIRT_TYPE", template.virt_type.name())],
        mounts: vec![
            shared::file("detect.sh", "/etc/openstack/detect.sh"),
            run(),
            dev(),
            shared::scratch("tmp", "/tmp"),
        ],
        resources: resources.clone(),
        privilege: Privilege::NodeRoot,
        ..Container::default()
    };
    let answers =
        || Check::Command(shared::command(["virsh", "-c", "qemu:///system", "version", "--daemon"]));
    let libvirt = Container {
        name: "libvirtd",
        image,
        // Without a first process in between: libvirtd itself must be the one that moves out of the pod's groups.
        command: shared::command(["bash", "/etc/openstack/libvirt.sh"]),
        mounts: vec![
            shared::file("libvirt.sh", "/etc/openstack/libvirt.sh"),
            shared::file("libvirtd.conf", "/etc/libvirt/libvirtd.conf"),
            shared::file("qemu.conf", "/etc/libvirt/qemu.conf"),
            shared::file("virtlogd.conf", "/etc/libvirt/virtlogd.conf"),
            run(),
            dev(),
            shared::host_directory("lib-libvirt", "/var/lib/libvirt"),
            shared::host_directory("log-libvirt", "/var/log/libvirt"),
            switch::run_directory(),
            Mount::Host {
                name: "domains",
                path: "/etc/libvirt/qemu",
                on_host: "/var/lib/openstack/libvirt-qemu".to_owned(),
                kind: HostPath::Directory,
            },
            shared::host("lib-nova", "/var/lib/nova", HostPath::Seen),
            shared::host("cgroup", "/sys/fs/cgroup", HostPath::Existing),
        ],
        probes: Probes {
            startup: Some(shared::probe(answers(), 3, 10, 200)),
            readiness: Some(shared::probe(answers(), 30, 10, 3)),
            liveness: None,
        },
        resources,
        privilege: Privilege::NodeRoot,
        ..Container::default()
    };
    on_nodes(context, "libvirt", Host::NetworkAndProcesses, vec![detect], libvirt)
}

fn compute_agent(context: &Context<'_, NovaCompute>, secrets: Vec<Variable>) -> Workload {
    let NovaComputeSpec { origin, template } = &context.object.spec;
    let image = shared::image(context, ImageNames::same("nova-compute"), &template.common, origin);
    let resources = shared::resources(&template.common.resources, ("20m", "256Mi"), "1Gi");
    let run = || shared::host_directory("run-libvirt", "/run/libvirt");
    let prepare = Container {
        name: "prepare",
        image: image.clone(),
        command: shared::script("/etc/openstack/prepare.sh"),
        environment: vec![Variable::text("USER_NUMBER", nova::USER.to_string())],
        mounts: vec![
            shared::file("prepare.sh", "/etc/openstack/prepare.sh"),
            run(),
            shared::host_directory("state", "/var/lib/nova"),
        ],
        resources: resources.clone(),
        privilege: Privilege::Root(&["CHOWN", "DAC_OVERRIDE", "FOWNER"]),
        ..Container::default()
    };
    let mut environment = vec![
        Variable::field("NODE_NAME", "spec.nodeName"),
        Variable::field("HOST_IP", "status.hostIP"),
        Variable::text("OS_DEFAULT__HOST", "$(NODE_NAME)"),
        Variable::text("OS_DEFAULT__MY_IP", "$(HOST_IP)"),
        Variable::text("OS_VNC__SERVER_LISTEN", "$(HOST_IP)"),
        Variable::text("OS_VNC__SERVER_PROXYCLIENT_ADDRESS", "$(HOST_IP)"),
    ];
    environment.extend(secrets);
    let agent = Container {
        name: "nova-compute",
        image,
        command: shared::script("/etc/openstack/compute.sh"),
        environment,
        mounts: vec![
            shared::file("compute.sh", "/etc/openstack/compute.sh"),
            shared::file("compute.py", "/etc/openstack/compute.py"),
            shared::file(nova::CONFIGURATION, "/etc/nova/nova.conf"),
            run(),
            shared::host("dev", "/dev", HostPath::Existing),
            shared::host("lib-nova", "/var/lib/nova", HostPath::Shared),
            switch::run_directory(),
            shared::scratch("tmp", "/tmp"),
        ],
        probes: shared::speaking(shared::BUS_PORT, nova::USER),
        resources,
        privilege: Privilege::Node,
        ..Container::default()
    };
    let mut workload = on_nodes(context, "nova-compute", Host::Network, vec![prepare], agent);
    workload.pod.grace_seconds = 180;
    workload
}
