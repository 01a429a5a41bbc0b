//! The command line: one file for each subcommand.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use snafu::Snafu;

use crate::{output, run, telemetry};

mod completion;
mod files;
mod generate;
mod login;
mod manifests;
mod plan;
mod render;
mod status;

const PROGRAM: &str = "openstack-operator";
/// The name under which kubectl finds a plugin that is called `kubectl openstack`.
const PLUGIN: &str = "kubectl-openstack";

#[derive(Parser)]
#[command(
    name = PROGRAM,
    about = "Turns one custom resource into a running OpenStack cloud",
    version,
    after_help = "A file of the same program that is called kubectl-openstack is a plugin of kubectl: kubectl openstack ..."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run as the operator of a cluster, until the process is told to stop or loses its leadership.
    Run(run::Arguments),
    Render(render::Arguments),
    Plan(plan::Arguments),
    Status(status::Arguments),
    Login(login::Arguments),
    Crds(manifests::CrdsArguments),
    Rbac(manifests::RbacArguments),
    Manifests(manifests::Arguments),
    Completion(completion::Arguments),
    Generate(generate::Arguments),
}

#[derive(Debug, Snafu)]
enum Error {
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(transparent)]
    Render { source: render::Error },
    #[snafu(transparent)]
    Plan { source: plan::Error },
    #[snafu(transparent)]
    Status { source: status::Error },
    #[snafu(transparent)]
    Login { source: login::Error },
    #[snafu(transparent)]
    Generate { source: generate::Error },
}

/// Does what the command line says.
pub(crate) async fn execute() -> ExitCode {
    let done = match parse().command {
        Command::Run(arguments) => return operate(arguments).await,
        Command::Render(arguments) => render::render(&arguments).map_err(Error::from),
        Command::Plan(arguments) => plan::plan(&arguments).await.map_err(Error::from),
        Command::Status(arguments) => status::status(&arguments).await.map_err(Error::from),
        Command::Login(arguments) => login::login(&arguments).await.map_err(Error::from),
        Command::Crds(_) => manifests::crds().map_err(Error::from),
        Command::Rbac(arguments) => manifests::rbac(&arguments).map_err(Error::from),
        Command::Manifests(arguments) => manifests::manifests(&arguments).map_err(Error::from),
        Command::Completion(arguments) => completion::completion(&arguments).map_err(Error::from),
        Command::Generate(arguments) => generate::generate(&arguments).map_err(Error::from),
    };
    done.unwrap_or_else(|error| {
        output::remark(&format!("error: {}", output::chain(&error)));
        // As with diff and grep: 1 is an answer, 2 is trouble.
        ExitCode::from(2)
    })
}

async fn operate(arguments: run::Arguments) -> ExitCode {
    telemetry::start(&arguments.log);
    match run::run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the operator ends");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Arguments {
    let matches = tree(is_plugin()).get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn is_plugin() -> bool {
    let invoked = std::env::args_os().next().map(std::path::PathBuf::from);
    invoked.is_some_and(|path| path.file_name().is_some_and(|name| name == PLUGIN))
}

/// All subcommands, with the name under which the program was called.
fn tree(is_plugin: bool) -> clap::Command {
    let tree = Arguments::command();
    if !is_plugin {
        return tree.bin_name(PROGRAM);
    }
    let name = PLUGIN.replace('-', " ");
    tree.bin_name(name.clone()).mut_subcommands(|command| {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        command.after_help(examples.replace(PROGRAM, &name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        tree(false).debug_assert();
    }

    #[test]
    fn every_command_that_is_shown_has_an_example() {
        for command in tree(false).get_subcommands().filter(|command| !command.is_hide_set()) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                command.get_name() == "run"
                    || examples.contains(&format!("{PROGRAM} {}", command.get_name())),
                "{}",
                command.get_name()
            );
        }
    }

    #[test]
    fn a_plugin_is_called_as_kubectl_calls_it() {
        let mut tree = tree(true);
        let render = tree.find_subcommand_mut("render").unwrap().render_help().to_string();
        assert!(render.contains("kubectl openstack render -f cloud.yaml"), "{render}");
        assert!(!render.contains("openstack-operator render"), "{render}");
    }
}
