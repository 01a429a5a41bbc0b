//! Builder of the plan of an OpenStack service: configuration, Secrets, APIs, workers and tasks.

use openstack_operator_model::common::{Common, Component, ContainerSettings, Exposure, Origin};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::name;
use openstack_operator_model::oslo::{Document, SecretDocument};
use openstack_operator_model::plan::{
    Container, Controller, Cron, Entry, Mount, NetworkService, Plan, Pod, Port, Probes, Reach, Schedule,
    SecretPlan, Task, TaskStage, Variable, Workload,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::NotificationServer;

use crate::concern::MessagingSettings;
use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, DatabaseClaim, MessageBus, MessagingClaim};
use crate::template::{ApiTemplate, Notifications};

mod registration;

pub(crate) use registration::Urls;

/// Settings that all programs of a service share.
pub(crate) struct Project {
    /// Name of the service, its user and its directory in `/etc`.
    pub(crate) name: &'static str,
    /// User ID of its processes.
    pub(crate) user: i64,
    pub(crate) configuration: &'static str,
    /// Program that manages its database. It names the containers of tasks.
    pub(crate) manage: &'static str,
    /// Image of its tasks, and of components without their own.
    pub(crate) image: ImageNames,
    /// Writable directories by volume name.
    pub(crate) scratch: &'static [(&'static str, &'static str)],
    pub(crate) amounts: Amounts,
}

/// Services wait for their tasks, so these get more of a busy node than services that start meanwhile.
const TASK_CPU: &str = "200m";

/// Maximum duration of a run on a schedule.
const RUN_DEADLINE_SECONDS: i64 = 3600;

/// File with the options whose values come from Secrets.
const SECRET_OPTIONS: &str = "secrets.conf";

/// Default resource requests and memory limit of a component.
#[derive(Clone, Copy)]
pub(crate) struct Amounts {
    pub(crate) cpu: &'static str,
    pub(crate) memory: &'static str,
    pub(crate) memory_limit: &'static str,
}

/// Settings of an object for all its components.
pub(crate) struct Settings<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) common: &'a Common,
    pub(crate) replicas: Option<i32>,
    pub(crate) exposure: &'a Exposure,
}

impl<'a> Settings<'a> {
    /// Settings of a service with one API.
    pub(crate) fn from_template(origin: &'a Origin, template: &'a ApiTemplate) -> Self {
        let ApiTemplate { common, replicas, exposure, .. } = template;
        Self { origin, common, replicas: *replicas, exposure }
    }
}

/// An HTTP API that uWSGI serves.
pub(crate) struct Api<'a> {
    /// Name of the component. `api` is served by the main Service of the object.
    pub(crate) component: &'static str,
    pub(crate) image: ImageNames,
    pub(crate) settings: &'a Component,
    pub(crate) amounts: Amounts,
    pub(crate) port: Port,
    /// Path of the health check.
    pub(crate) health: &'static str,
    pub(crate) uwsgi: Uwsgi,
}

/// A process without clients.
pub(crate) struct Worker<'a> {
    pub(crate) component: &'static str,
    pub(crate) image: ImageNames,
    pub(crate) settings: &'a Component,
    pub(crate) command: Vec<String>,
    pub(crate) controller: Controller,
    pub(crate) probes: Probes,
}

/// Builder of a plan.
pub(crate) struct Program<'a, K> {
    pub(crate) context: &'a Context<'a, K>,
    project: &'static Project,
    settings: Settings<'a>,
    pub(crate) plan: Plan,
    /// The service's configuration file.
    pub(crate) document: Document,
    /// Options whose values come from Secrets, and which the environment cannot set because they have several values. They
    /// are in a file of their own, which oslo.config reads last. Containers that are added later mount it.
    pub(crate) secret_options: SecretDocument,
    /// Environment of containers that are added later.
    pub(crate) environment: Vec<Variable>,
    /// Mounts of containers that are added later, besides the configuration file.
    pub(crate) mounts: Vec<Mount>,
    /// Internal URL of the API.
    pub(crate) internal_url: String,
    /// Public URL of the API.
    pub(crate) public_url: String,
}

impl<'a, K> Program<'a, K> {
    /// Starts the plan of an object whose API has this port. `files` can be set in `extraConfig` besides the
    /// configuration file and `uwsgi.ini`.
    pub(crate) fn new(
        context: &'a Context<'a, K>,
        project: &'static Project,
        settings: Settings<'a>,
        port: &Port,
        files: &[&str],
    ) -> Result<Self, Invalid> {
        let known = [&[project.configuration, "uwsgi.ini"], files].concat();
        shared::check_extra_config(settings.common, &known)?;
        let internal_url = shared::internal_endpoint(shared::service_host(context, context.name), port).url();
        let public_url = api::public_url(settings.exposure).unwrap_or_else(|| internal_url.clone());
        let mut plan = Plan {
            endpoint: Some(public_url.clone()),
            routes: api::routes(settings.exposure, port.number)?,
            pull_secrets: settings.origin.images.pull_secrets.clone(),
            additions: settings.common.pods.additions.clone(),
            ..Plan::default()
        };
        let document = Document::new().set("DEFAULT", "use_stderr", true).set(
            "oslo_middleware",
            "enable_proxy_headers_parsing",
            true,
        );
        let document = api::policy(document, &mut plan.files, settings.exposure);
        Ok(Self {
            context,
            project,
            settings,
            plan,
            document,
            secret_options: SecretDocument::default(),
            environment: Vec::new(),
            mounts: Vec::new(),
            internal_url,
            public_url,
        })
    }

    pub(crate) fn set(&mut self, section: &str, option: &str, value: impl std::fmt::Display) {
        self.change(|document| document.set(section, option, value));
    }

    /// Changes the configuration.
    pub(crate) fn change(&mut self, change: impl FnOnce(Document) -> Document) {
        self.document = change(std::mem::take(&mut self.document));
    }

    /// Adds a database, and its connection to the environment.
    pub(crate) fn database(&mut self, claim: &DatabaseClaim<'_>) -> Result<(), Invalid> {
        let connection = shared::database(self.context, &mut self.plan, claim)?;
        self.environment.push(connection);
        self.change(|document| shared::database_options(document, claim.section));
        Ok(())
    }

    /// Adds the virtual host of the service, and its URL to the environment.
    pub(crate) fn messaging(&mut self, settings: &MessagingSettings) -> Result<MessageBus, Invalid> {
        let claim = MessagingClaim { settings, virtual_host: self.project.name, suffix: "messaging" };
        let bus = shared::messaging(self.context, &mut self.plan, &claim)?;
        self.environment.push(bus.variable.clone());
        self.change(shared::messaging_options);
        Ok(bus)
    }

    /// Sends notifications over the bus, and provides it to their consumers.
    pub(crate) fn notify(&mut self, notifications: &Notifications, bus: &MessageBus) {
        self.change(|document| notifications.options(document));
        let server = NotificationServer { secret: bus.secret.clone(), port: bus.port };
        self.plan.provides.notifications = Some(server);
    }

    /// A container with the configuration and the current environment of the service.
    pub(crate) fn container(
        &self,
        name: &'static str,
        image: ImageNames,
        settings: &ContainerSettings,
        amounts: Amounts,
        command: Vec<String>,
    ) -> Container {
        let Project { name: directory, configuration, scratch, .. } = self.project;
        let Settings { origin, common, exposure, .. } = &self.settings;
        let mut mounts = vec![shared::file(configuration, &format!("/etc/{directory}/{configuration}"))];
        mounts.extend((!self.secret_options.is_empty()).then(|| Mount::SecretFile {
            secret: self.secret_options_name(),
            key: SECRET_OPTIONS.to_owned(),
            path: format!("/etc/{directory}/{configuration}.d/{SECRET_OPTIONS}"),
        }));
        mounts.extend(self.mounts.iter().cloned());
        mounts.extend(scratch.iter().map(|(name, path)| shared::scratch(name, path)));
        mounts.push(shared::scratch("tmp", "/tmp"));
        mounts.extend(api::policy_mount(exposure, directory));
        Container {
            name,
            image: shared::component_image(self.context, image, &settings.image, &common.pods, origin),
            command,
            environment: self.environment.clone(),
            mounts,
            resources: shared::component_resources(settings, &common.pods, amounts),
            ..Container::default()
        }
    }

    /// Name of the Secret with the options whose values come from Secrets.
    fn secret_options_name(&self) -> String {
        name::part(self.context.name, "options")
    }

    /// Adds a task that runs a command of the service.
    pub(crate) fn task(&mut self, name: &'static str, stage: TaskStage, command: Vec<String>) -> &mut Task {
        let container = self.command(command);
        let user = self.project.user;
        let task = Task { name, stage, user, container, repeat_on: Vec::new(), after: Vec::new() };
        push(&mut self.plan.tasks, task)
    }

    /// Adds a command of the service that runs on a schedule.
    pub(crate) fn schedule(&mut self, name: &'static str, cron: Cron, command: Vec<String>) -> &mut Schedule {
        let container = self.command(command);
        let (user, deadline_seconds) = (self.project.user, RUN_DEADLINE_SECONDS);
        push(&mut self.plan.schedules, Schedule { name, cron, user, container, deadline_seconds })
    }

    /// A container that runs a command of the service to completion.
    fn command(&self, command: Vec<String>) -> Container {
        let Project { image, amounts, manage, .. } = self.project;
        let amounts = Amounts { cpu: TASK_CPU, ..*amounts };
        let mut container = self.container(manage, *image, &ContainerSettings::default(), amounts, command);
        container.environment = container.environment.into_iter().map(shared::for_task).collect();
        container
    }

    /// Adds an API.
    pub(crate) fn api(&mut self, api: Api<'_>) -> &mut Workload {
        let main = api.component == "api";
        let file = if main { "uwsgi.ini".to_owned() } else { format!("uwsgi-{}.ini", api.component) };
        let uwsgi = api::uwsgi(&api.uwsgi, self.context.runtime, &api.port, self.settings.common);
        self.plan.files.insert(file.clone(), uwsgi.into());
        let Project { name, .. } = self.project;
        let command = shared::uwsgi_command(name);
        let mut container =
            self.container(api.component, api.image, &api.settings.container, api.amounts, command);
        container.mounts.push(shared::file(&file, &format!("/etc/{name}/uwsgi.ini")));
        self.serve(api.component, api.settings, api::serving(container, api.port, api.health))
    }

    /// Adds the API of a service without other components. It uses the settings of the service.
    pub(crate) fn only_api(&mut self, port: Port, health: &'static str, uwsgi: Uwsgi) -> &mut Workload {
        let Project { image, amounts, .. } = self.project;
        let settings = &Component::default();
        let (image, amounts) = (*image, *amounts);
        self.api(Api { component: "api", image, settings, amounts, port, health, uwsgi })
    }

    /// Adds a workload with a Service: the main one of the object, or one with the name of the component as suffix.
    pub(crate) fn serve(
        &mut self,
        component: &'static str,
        settings: &Component,
        container: Container,
    ) -> &mut Workload {
        let suffix = (component != "api").then(|| component.into());
        let service =
            NetworkService { suffix: suffix.clone(), ports: container.ports.clone(), reach: Reach::Cluster };
        let pod = Pod::new(self.project.user, &self.settings.common.pods.scheduling, vec![container]);
        let workload = Workload {
            component: component.into(),
            suffix,
            controller: Controller::Deployment,
            replicas: self.replicas(settings),
            pod: Pod { grace_seconds: api::GRACE_SECONDS, ..pod },
            services: vec![service],
            after: Vec::new(),
        };
        push(&mut self.plan.workloads, workload)
    }

    /// Adds a worker.
    pub(crate) fn worker(&mut self, worker: Worker<'_>) -> &mut Workload {
        let Worker { component, image, settings, command, controller, probes } = worker;
        let Project { user, amounts, .. } = self.project;
        let mut container = self.container(component, image, &settings.container, *amounts, command);
        container.probes = probes;
        let pod = Pod::new(*user, &self.settings.common.pods.scheduling, vec![container]);
        let pod = Pod { grace_seconds: 90, ..pod };
        let workload = Workload::part(component, controller, self.replicas(settings), pod);
        push(&mut self.plan.workloads, workload)
    }

    /// Replicas of a component, of the service, or 1.
    fn replicas(&self, settings: &Component) -> i32 {
        settings.replicas.or(self.settings.replicas).unwrap_or(1)
    }

    /// Completes the plan with the configuration file, including the overrides of the user.
    pub(crate) fn finish(mut self) -> Result<Plan, Invalid> {
        shared::check_overrides(self.settings.common, &self.plan, &self.secret_options)?;
        if !self.secret_options.is_empty() {
            let template = Entry::Template(self.secret_options.template());
            let secret = SecretPlan::with_entries(&self.secret_options_name(), [(SECRET_OPTIONS, template)]);
            self.plan.secrets.push(secret);
        }
        let file = self.project.configuration;
        let document = self.document.merge(self.settings.common.extra_config.get(file));
        self.plan.files.insert(file.to_owned(), document.render().into());
        Ok(self.plan)
    }
}

/// Appends an item to a list and returns it.
fn push<T>(list: &mut Vec<T>, item: T) -> &mut T {
    let index = list.len();
    list.push(item);
    &mut list[index]
}

/// Mounts a script of the plan into a container.
pub(crate) fn mount_script(container: &mut Container, file: &str) {
    container.mounts.push(shared::file(file, &shared::script_path(file)));
}

#[cfg(test)]
mod tests;
