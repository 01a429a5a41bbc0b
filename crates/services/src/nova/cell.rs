//! Nova's cells: the patterns that lead to the first two, and the databases and buses of others.

use openstack_operator_model::plan::{Plan, Variable, VariableValue, Workload};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::CellServer;

use super::{Cell, Nova};
use crate::shared;

/// A cell besides those that every cloud has.
pub(super) struct Extra {
    cell: Cell,
    database: Variable,
    bus: Variable,
}

impl Extra {
    /// Secrets that its place in the list of cells is made of.
    pub(super) fn secrets(&self) -> Vec<String> {
        [&self.database, &self.bus].into_iter().filter_map(secret).collect()
    }
}

fn secret(variable: &Variable) -> Option<String> {
    match &variable.value {
        VariableValue::Secret(key) => Some(key.secret.clone()),
        VariableValue::Text(_) | VariableValue::Field(_) => None,
    }
}

/// Adds the databases and buses of further cells to the plan.
pub(super) fn cells(context: &Context<'_, Nova>, plan: &mut Plan) -> Result<Vec<Extra>, Invalid> {
    let cells = context.object.spec.template.cells.iter();
    cells
        .map(|cell| {
            let word = cell.name.replace('-', "_");
            let database = cell.database.database.clone().unwrap_or_else(|| format!("nova_{word}"));
            let part = format!("database-{}", cell.name);
            let place = (part.as_str(), "database");
            let database = shared::one_database(context, plan, &cell.database, &database, place)?;
            let part = format!("messaging-{}", cell.name);
            let bus = shared::one_bus(context, plan, &cell.messaging, &format!("nova_{word}"), &part)?;
            Ok(Extra { cell: cell.clone(), database, bus })
        })
        .collect()
}

pub(super) fn server(extra: &Extra) -> CellServer {
    CellServer { name: extra.cell.name.clone(), messaging_secret: secret(&extra.bus).unwrap_or_default() }
}

/// How programs find the first two cells: by their own settings, with the parts that Nova knows by these names.
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

/// What the task that keeps the list of cells must know of further ones.
pub(super) fn variables(cells: &[Extra]) -> Vec<Variable> {
    let names: Vec<&str> = cells.iter().map(|extra| extra.cell.name.as_str()).collect();
    let mut variables = vec![Variable::text("MORE_CELLS", names.join(" "))];
    for extra in cells {
        let word = extra.cell.name.replace('-', "_");
        let renamed = |name: String, variable: &Variable| Variable { name, value: variable.value.clone() };
        variables.push(renamed(format!("CELL_DATABASE_{word}"), &extra.database));
        variables.push(renamed(format!("CELL_TRANSPORT_{word}"), &extra.bus));
    }
    variables
}

/// The conductor of a further cell: with the cell's own database and bus in the place of the first cell's.
pub(super) fn conductor(context: &Context<'_, Nova>, extra: &Extra, environment: &[Variable]) -> Workload {
    let own = [&extra.database, &extra.bus];
    let environment = environment
        .iter()
        .map(|variable| own.into_iter().find(|own| own.name == variable.name).unwrap_or(variable).clone())
        .collect();
    let mut workload = super::worker(context, super::CONDUCTOR, extra.cell.conductor.replicas, environment);
    workload.component = format!("conductor-{}", extra.cell.name).into();
    // A set's name must leave room for what its controller adds to it.
    workload.suffix = Some(extra.cell.name.clone().into());
    workload
}
