//! Power and network of the nodes, and the suspension of the API server.

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use super::settings::{Node, Settings};
use super::{network, node};
use crate::command::Log;
use crate::directories::Directories;
use crate::process;
use crate::progress;

/// The process of the API server.
const API_SERVER: &str = "apiserver";

pub(super) fn off(directories: &Directories, name: &str) -> Result<()> {
    let _lock = directories.lock()?;
    let settings = Settings::require(directories)?;
    let node = settings.node(name)?;
    let log = Log::create(directories, &format!("power-off {name}"))?;
    if !node::is_on(directories, &node)? {
        progress::notify(&format!("{name} is already off"));
    }
    cut(directories, &settings, &[node], &log)
}

pub(super) fn on(directories: &Directories, name: &str) -> Result<()> {
    let _lock = directories.lock()?;
    let settings = Settings::require(directories)?;
    let node = settings.node(name)?;
    let log = Log::create(directories, &format!("power-on {name}"))?;
    if !node::power_on(directories, &settings, &node, &log)? {
        progress::notify(&format!("{name} is already on"));
    }
    network::ensure_routes(&settings, &nodes_on(directories, &settings)?, &log)
}

/// Cuts the power of nodes.
pub(crate) fn cut(directories: &Directories, settings: &Settings, nodes: &[Node], log: &Log) -> Result<()> {
    for node in nodes {
        node::power_off(directories, node, log)?;
    }
    network::ensure_routes(settings, &nodes_on(directories, settings)?, log)
}

/// Disconnects a node from all networks; the host then reaches Services through another node.
pub(crate) fn isolate(directories: &Directories, settings: &Settings, node: &Node, log: &Log) -> Result<()> {
    network::isolate_node(node, log)?;
    let mut others = nodes_on(directories, settings)?;
    others.retain(|other| other != node);
    network::ensure_routes(settings, &others, log)
}

/// Restores the power and the network of every node. Changes nothing where both are in order.
pub(crate) fn restore(directories: &Directories, settings: &Settings, log: &Log) -> Result<()> {
    let nodes = settings.node_list();
    for node in &nodes {
        if node::is_on(directories, node)? {
            network::connect_node(node, log)?;
        } else {
            node::power_on(directories, settings, node, log)?;
        }
    }
    network::ensure_routes(settings, &nodes, log)
}

/// Whether the process of the API server exists, suspended or not.
pub(crate) fn has_api_server(directories: &Directories) -> Result<bool> {
    Ok(process::find(directories, API_SERVER)?.is_some())
}

/// Stops the API server in the middle of its work: its connections stay open and nothing answers.
pub(crate) fn suspend_api_server(directories: &Directories) -> Result<()> {
    if !has_api_server(directories)? {
        bail!("the API server does not run");
    }
    process::signal(directories, API_SERVER, Signal::SIGSTOP)
}

/// Continues the API server, if it is suspended.
pub(crate) fn resume_api_server(directories: &Directories) -> Result<()> {
    process::signal(directories, API_SERVER, Signal::SIGCONT)
}

fn nodes_on(directories: &Directories, settings: &Settings) -> Result<Vec<Node>> {
    let mut on = Vec::new();
    for node in settings.node_list() {
        if node::is_on(directories, &node)? {
            on.push(node);
        }
    }
    Ok(on)
}
