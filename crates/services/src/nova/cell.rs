//! Cells of Nova: template URLs of `cell0` and `cell1`, databases and message buses of others.

use openstack_operator_model::plan::{Charset, Plan, Variable, VariableValue};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::CellServer;

use super::{Cell, Nova};
use crate::program::Program;
use crate::shared::{self, DatabaseClaim, MessageBus, MessagingClaim};

/// A cell besides `cell0` and `cell1`.
pub(super) struct Extra {
    cell: Cell,
    database: Variable,
    bus: MessageBus,
}

impl Extra {
    /// Secrets with the URLs of its cell mapping.
    pub(super) fn secrets(&self) -> Vec<String> {
        [&self.database, &self.bus.variable].into_iter().filter_map(secret).collect()
    }
}

fn secret(variable: &Variable) -> Option<String> {
    match &variable.value {
        VariableValue::Secret(key) => Some(key.secret.clone()),
        VariableValue::Text(_) | VariableValue::Field(_) => None,
    }
}

/// Adds the databases and message buses of additional cells to the plan.
pub(super) fn cells(context: &Context<'_, Nova>, plan: &mut Plan) -> Result<Vec<Extra>, Invalid> {
    let cells = context.object.spec.template.cells.iter().filter(|cell| cell.is_own());
    cells
        .map(|cell| {
            let identifier = cell.name.replace('-', "_");
            let database = cell.database.database.clone().unwrap_or_else(|| format!("nova_{identifier}"));
            let claim = DatabaseClaim {
                settings: &cell.database,
                database: &database,
                suffix: &format!("database-{}", cell.name),
                section: "database",
                charset: Charset::default(),
            };
            let database = shared::database(context, plan, &claim)?;
            let claim = MessagingClaim {
                settings: &cell.messaging,
                virtual_host: &format!("nova_{identifier}"),
                suffix: &format!("messaging-{}", cell.name),
            };
            let bus = shared::messaging(context, plan, &claim)?;
            Ok(Extra { cell: cell.clone(), database, bus })
        })
        .collect()
}

/// Connection details of all cells with compute nodes.
pub(super) fn servers(context: &Context<'_, Nova>, first: &MessageBus, cells: &[Extra]) -> Vec<CellServer> {
    let compute = |cell: &Cell| Some(cell.compute_ref.as_ref()?.name.clone());
    let server = |name: &str, bus: &MessageBus, compute: Option<String>| CellServer {
        name: name.to_owned(),
        messaging_secret: secret(&bus.variable).unwrap_or_default(),
        messaging_port: bus.port,
        compute,
    };
    let described = context.object.spec.template.cells.iter().find(|cell| !cell.is_own());
    let first = server(super::FIRST_CELL, first, described.and_then(compute));
    let further = cells.iter().map(|extra| server(&extra.cell.name, &extra.bus, compute(&extra.cell)));
    [first].into_iter().chain(further).collect()
}

/// Template URLs of `cell0` and `cell1`, which programs fill in from their own settings.
pub(super) fn patterns(cell0: &str, bus_hosts: usize) -> Vec<Variable> {
    let database = "{scheme}://{username}:{password}@{hostname}:{port}";
    let host = |number: usize| match bus_hosts {
        1 => "{username}:{password}@{hostname}:{port}".to_owned(),
        _ => format!("{{username{number}}}:{{password{number}}}@{{hostname{number}}}:{{port{number}}}"),
    };
    let hosts: Vec<String> = (1..=bus_hosts).map(host).collect();
    vec![
        Variable::text("CELL0_PATTERN", format!("{database}/{cell0}?{{query}}")),
        Variable::text("DATABASE_PATTERN", format!("{database}/{{path}}?{{query}}")),
        Variable::text("TRANSPORT_PATTERN", format!("{{scheme}}://{}/{{path}}", hosts.join(","))),
    ]
}

/// Variables of additional cells for the task that maintains the cell mappings.
pub(super) fn variables(cells: &[Extra]) -> Vec<Variable> {
    let names: Vec<&str> = cells.iter().map(|extra| extra.cell.name.as_str()).collect();
    let mut variables = vec![Variable::text("MORE_CELLS", names.join(" "))];
    for extra in cells {
        let identifier = extra.cell.name.replace('-', "_");
        let renamed = |name: String, variable: &Variable| Variable { name, value: variable.value.clone() };
        // Services connect by the mapping, so it has their timeouts.
        variables.push(renamed(format!("CELL_MAPPING_{identifier}"), &extra.database));
        let database = renamed(format!("CELL_DATABASE_{identifier}"), &extra.database);
        variables.push(shared::for_task(database));
        variables.push(renamed(format!("CELL_TRANSPORT_{identifier}"), &extra.bus.variable));
    }
    variables
}

/// Adds the conductor of an additional cell, with the database and message bus of that cell.
pub(super) fn add_conductor(nova: &mut Program<'_, Nova>, extra: &Extra) {
    let own = [&extra.database, &extra.bus.variable];
    let workload = super::add_worker(nova, super::CONDUCTOR, &extra.cell.conductor, extra.bus.port);
    let variables = workload.pod.containers.iter_mut().flat_map(|container| &mut container.environment);
    for variable in variables {
        if let Some(own) = own.into_iter().find(|own| own.name == variable.name) {
            *variable = own.clone();
        }
    }
    workload.component = format!("conductor-{}", extra.cell.name).into();
    // The name of a StatefulSet must leave room for the suffix of its controller.
    workload.suffix = Some(extra.cell.name.clone().into());
}
