//! Compute nodes: libvirt and nova-compute on selected nodes.

use kube::CustomResource;
use openstack_operator_model::common::{
    Common, ContainerSettings, Origin, Reference, Scheduling, is_default,
};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::{Document, SecretDocument};
use openstack_operator_model::plan::{
    Check, Container, File, Host, HostPath, Mount, NodeAgents, Plan, Pod, Privilege, Probes, Registry,
    Variable, Workload,
};
use openstack_operator_model::release::{Families, Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{CellServer, ComputeServer, Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence, Wave};
use crate::concern::IdentitySettings;
use crate::inputs::{self, Input, Inputs, Link, Needed, Role};
use crate::program::Amounts;
use crate::shared::{self, Account, Identity};
use crate::template::ServiceReference;
use crate::{nova, placement, switch};

pub const KIND: Kind = Kind::own("NovaCompute", "novacomputes");

const AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "256Mi", memory_limit: "1Gi" };
const LIBVIRT_AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "256Mi", memory_limit: "2Gi" };
const FILES: [(&str, &str); 9] = [
    ("claim.sh", include_str!("compute/claim.sh")),
    ("libvirt.sh", include_str!("compute/libvirt.sh")),
    ("detect.sh", include_str!("compute/detect.sh")),
    ("prepare.sh", include_str!("compute/prepare.sh")),
    ("compute.sh", include_str!("compute/compute.sh")),
    ("compute.py", include_str!("compute/compute.py")),
    ("libvirtd.conf", include_str!("compute/libvirtd.conf")),
    ("qemu.conf", include_str!("compute/qemu.conf")),
    ("virtlogd.conf", include_str!("compute/virtlogd.conf")),
];

/// Compute nodes: libvirt and nova-compute on every selected node, by default on nodes with label
/// `node-role.kubernetes.io/hypervisor`.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "NovaCompute",
    plural = "novacomputes",
    namespaced,
    status = "Status",
    shortname = "ncp",
    category = "openstack"
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
    /// Nova of the compute nodes.
    #[serde(default)]
    pub nova: ServiceReference,
    /// Placement, which must be Ready before nova-compute starts.
    #[serde(default)]
    pub placement: ServiceReference,
    /// Cell of the compute nodes. Defaults to the cell whose `computeRef` names this object, else to `cell1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub cell: Option<String>,
    /// Virtualization type: `kvm`, `qemu` (emulation), or `auto` to detect it by booting a test VM.
    #[serde(default)]
    pub virt_type: VirtType,
    /// libvirt. Resources of its pod do not include those of instances.
    #[serde(default, skip_serializing_if = "is_default")]
    pub libvirt: ContainerSettings,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for NovaComputeTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::Identity(&mut self.keystone),
            Input::Service {
                field: "nova",
                kind: nova::KIND,
                link: Link::Uses(Needed::Always),
                reference: &mut self.nova.cluster_ref,
            },
            Input::Service {
                field: "placement",
                kind: placement::KIND,
                link: Link::WaitsFor,
                reference: &mut self.placement.cluster_ref,
            },
            Input::Component { field: "libvirt", settings: &mut self.libvirt },
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Compute));
        inputs
    }
}

/// Virtualization type.
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

/// Time for nova-compute to stop, with running operations on instances.
const GRACE_SECONDS: Varying<i64> =
    Varying { usual: 240, exceptions: &[(Releases::until(Release::Epoxy), Families::All, 180)] };

pub struct Service;

impl Part for Service {
    type Object = NovaCompute;
    type Template = NovaComputeTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "nova-compute";
    const FIELD: &'static str = "compute";
    const STAGE: Stage = Stage::Compute;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::ComputeNodes;
    const NODE_CLAIM: Option<&'static str> = Some("libvirt");

    fn template(object: &NovaCompute) -> &NovaComputeTemplate {
        &object.spec.template
    }

    fn needs(object: &NovaCompute) -> Needs {
        Needs::default().nodes(&scheduling(&object.spec.template))
    }

    fn plan(context: &Context<'_, NovaCompute>) -> Result<Plan, Invalid> {
        let NovaComputeSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &[nova::CONFIGURATION])?;
        let Some(name) = template.nova.name() else {
            return Err(Invalid::new("spec.nova.clusterRef", "is missing: name a Nova"));
        };
        let compute = context.inputs.compute(nova::KIND, name, "spec.nova.clusterRef.name")?;
        let Identity { server, own_region, .. } = shared::identity(context, &template.keystone)?;
        let account = Account {
            server,
            own_region,
            username: compute.identity_username.clone(),
            method: compute.identity_method,
            secret: compute.identity_secret.clone(),
        };
        let cell = cell(context, name, compute)?;
        let mut files = FILES.map(|(file, text)| (file.to_owned(), File::from(text))).to_vec();
        files.push((nova::CONFIGURATION.to_owned(), configuration(template, &account, compute).into()));
        let bus = Variable::secret("OS_DEFAULT__TRANSPORT_URL", &cell.messaging_secret, "transport_url");
        let secrets = [bus].into_iter().chain(account.credentials(&nova::PEERS)).collect();
        let mut agent = compute_agent(context, secrets, cell.messaging_port);
        agent.after = inputs::waits(template);
        // Without an administrator the operator cannot query the hypervisors.
        let agents = account.server.secret.is_some().then(|| NodeAgents {
            provider: Reference::new(nova::KIND, name),
            registry: Registry::Hypervisors { url: compute.url.clone(), identity: account.server.clone() },
            nodes: context.inputs.chosen_nodes(),
        });
        let plan = Plan {
            files: files.into_iter().collect(),
            live_files: [(shared::CLAIMED_NODES.to_owned(), shared::claimed_nodes(context))].into(),
            workloads: shared::with_leaving(vec![libvirt(context), agent], &context.inputs.leaving_nodes()),
            agents,
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.pods.additions.clone(),
            ..Plan::default()
        };
        shared::check_overrides(&template.common, &plan, &SecretDocument::default())?;
        Ok(plan)
    }
}

/// Cell of the nodes.
fn cell<'a>(
    context: &Context<'a, NovaCompute>,
    nova: &str,
    compute: &'a ComputeServer,
) -> Result<&'a CellServer, Invalid> {
    let wanted = context.object.spec.template.cell.as_deref();
    let named = || compute.cells.iter().find(|cell| cell.compute.as_deref() == Some(context.name));
    let found = match wanted {
        Some(wanted) => compute.cells.iter().find(|cell| cell.name == wanted),
        None => named().or(compute.cells.first()),
    };
    found.ok_or_else(|| {
        let cells: Vec<&str> = compute.cells.iter().map(|cell| cell.name.as_str()).collect();
        let wanted = wanted.unwrap_or_default();
        let reason = format!("Nova {nova:?} has no cell {wanted:?}: it has {}", cells.join(", "));
        Invalid::new("spec.cell", reason)
    })
}

/// Scheduling of the pods on nodes.
fn scheduling(template: &NovaComputeTemplate) -> Scheduling {
    shared::on_hypervisors(&template.common.pods.scheduling)
}

fn configuration(template: &NovaComputeTemplate, account: &Account, compute: &ComputeServer) -> String {
    let document = account.authtoken(Document::new().set("DEFAULT", "use_stderr", true), &[]);
    nova::common_options(shared::messaging_options(document), account)
        .set("DEFAULT", "compute_driver", "libvirt.LibvirtDriver")
        .set("libvirt", "connection_uri", "qemu:///system")
        .set("os_vif_ovs", "ovsdb_connection", switch::DATABASE)
        .set("vnc", "novncproxy_base_url", &compute.console_url)
        .set("oslo_concurrency", "lock_path", "/var/lib/nova/tmp")
        .merge(template.common.extra_config.get(nova::CONFIGURATION))
        .render()
}

/// Variables of `claim.sh`.
fn owner(context: &Context<'_, NovaCompute>) -> Vec<Variable> {
    vec![shared::owner(context, KIND), Variable::field("NODE_NAME", "spec.nodeName")]
}

fn live_files() -> Mount {
    Mount::LiveFiles { path: "/etc/openstack/live".to_owned() }
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
    let image =
        shared::component_image(context, names, &template.libvirt.image, &template.common.pods, origin);
    let resources = shared::resources(&template.libvirt.resources, LIBVIRT_AMOUNTS);
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
        // Without dumb-init: libvirtd itself must leave the cgroups of the pod.
        command: shared::command(["bash", "/etc/openstack/libvirt.sh"]),
        environment: owner(context),
        mounts: vec![
            shared::file("libvirt.sh", "/etc/openstack/libvirt.sh"),
            shared::file("claim.sh", "/etc/openstack/claim.sh"),
            live_files(),
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
            shared::host("lib-nova", "/var/lib/nova", HostPath::HostToContainer),
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

fn compute_agent(context: &Context<'_, NovaCompute>, secrets: Vec<Variable>, bus_port: u16) -> Workload {
    let NovaComputeSpec { origin, template } = &context.object.spec;
    let names = ImageNames::same("nova-compute");
    let image = shared::component_image(context, names, &Image::default(), &template.common.pods, origin);
    let resources = shared::resources(&template.common.pods.container.resources, AMOUNTS);
    let run = || shared::host_directory("run-libvirt", "/run/libvirt");
    let prepare = Container {
        name: "prepare",
        image: image.clone(),
        command: shared::script("/etc/openstack/prepare.sh"),
        environment: [owner(context), vec![Variable::text("USER_NUMBER", nova::USER.to_string())]].concat(),
        mounts: vec![
            shared::file("prepare.sh", "/etc/openstack/prepare.sh"),
            shared::file("claim.sh", "/etc/openstack/claim.sh"),
            live_files(),
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
            shared::host("lib-nova", "/var/lib/nova", HostPath::Bidirectional),
            switch::run_directory(),
            shared::scratch("tmp", "/tmp"),
        ],
        probes: shared::connected_to(bus_port, nova::USER),
        resources,
        privilege: Privilege::Node,
        ..Container::default()
    };
    let mut workload = on_nodes(context, "nova-compute", Host::Network, vec![prepare], agent);
    workload.pod.grace_seconds = GRACE_SECONDS.of(context.runtime);
    workload
}
