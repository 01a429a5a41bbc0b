//! The command line: one file for each subcommand.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use snafu::Snafu;

use crate::{output, run, telemetry};

mod annotate;
mod bundle;
mod check;
mod completion;
mod files;
mod generate;
mod login;
mod manifests;
mod plan;
mod render;
mod status;

const PROGRAM: &str = "openstack-operator";
/// The file name by which kubectl finds the plugin `kubectl openstack`.
const PLUGIN: &str = "kubectl-openstack";

#[derive(Parser)]
#[command(
    name = PROGRAM,
    about = "Turns one custom resource into a running OpenStack cloud",
    version,
    after_help = "A link to this program named kubectl-openstack is a kubectl plugin: kubectl openstack ..."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// In the order of use: a cloud first, then the installation of the operator.
#[derive(Subcommand)]
enum Command {
    Check(check::Arguments),
    Render(render::Arguments),
    Plan(plan::Arguments),
    Status(status::Arguments),
    Login(login::Arguments),
    Pause(annotate::PauseArguments),
    Resume(annotate::ResumeArguments),
    Reconcile(annotate::ReconcileArguments),
    Bundle(bundle::Arguments),
    Manifests(manifests::Arguments),
    Crds(manifests::CrdsArguments),
    Rbac(manifests::RbacArguments),
    Run(run::Arguments),
    Completion(completion::Arguments),
    Generate(generate::Arguments),
}

#[derive(Debug, Snafu)]
enum Error {
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(transparent)]
    Check { source: check::Error },
    #[snafu(transparent)]
    Render { source: render::Error },
    #[snafu(transparent)]
    Plan { source: plan::Error },
    #[snafu(transparent)]
    Status { source: status::Error },
    #[snafu(transparent)]
    Login { source: login::Error },
    #[snafu(transparent)]
    Annotate { source: annotate::Error },
    #[snafu(transparent)]
    Bundle { source: bundle::Error },
    #[snafu(transparent)]
    Generate { source: generate::Error },
}

/// Runs the command of the command line.
pub(crate) async fn execute() -> ExitCode {
    let done = match parse().command {
        Command::Check(arguments) => check::check(&arguments).await.map_err(Error::from),
        Command::Render(arguments) => render::render(&arguments).map_err(Error::from),
        Command::Plan(arguments) => plan::plan(&arguments).await.map_err(Error::from),
        Command::Status(arguments) => status::status(&arguments).await.map_err(Error::from),
        Command::Login(arguments) => login::login(&arguments).await.map_err(Error::from),
        Command::Pause(arguments) => annotate::pause(&arguments).await.map_err(Error::from),
        Command::Resume(arguments) => annotate::resume(&arguments).await.map_err(Error::from),
        Command::Reconcile(arguments) => annotate::reconcile(&arguments).await.map_err(Error::from),
        Command::Bundle(arguments) => bundle::bundle(&arguments).await.map_err(Error::from),
        Command::Manifests(arguments) => manifests::manifests(&arguments).map_err(Error::from),
        Command::Crds(_) => manifests::crds().map_err(Error::from),
        Command::Rbac(arguments) => manifests::rbac(&arguments).map_err(Error::from),
        Command::Run(arguments) => return operate(arguments).await,
        Command::Completion(arguments) => completion::completion(&arguments).map_err(Error::from),
        Command::Generate(arguments) => generate::generate(&arguments).map_err(Error::from),
    };
    done.unwrap_or_else(|error| {
        output::remark(&format!("error: {}", output::chain(&error)));
        // As with diff and grep: 1 is an answer, 2 is an error.
        ExitCode::from(2)
    })
}

async fn operate(arguments: run::Arguments) -> ExitCode {
    telemetry::start(&arguments.log);
    match run::run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the operator stops");
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

/// All subcommands, under the name that the user called.
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
    fn the_command_line_is_consistent() {
        tree(false).debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in tree(false).get_subcommands() {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("{PROGRAM} {}", command.get_name());
            assert!(examples.starts_with("EXAMPLES:\n") && examples.contains(&example), "{example}");
        }
    }

    #[test]
    fn help_lists_commands_in_the_order_of_use() {
        let tree = tree(false);
        let commands = tree.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<&str> = commands.map(clap::Command::get_name).collect();
        assert_eq!(
            names,
            [
                "check",
                "render",
                "plan",
                "status",
                "login",
                "pause",
                "resume",
                "reconcile",
                "bundle",
                "manifests",
                "crds",
                "rbac",
                "run",
                "completion"
            ]
        );
    }

    #[test]
    fn examples_of_the_plugin_call_kubectl() {
        let mut tree = tree(true);
        let render = tree.find_subcommand_mut("render").unwrap().render_help().to_string();
        assert!(render.contains("kubectl openstack render -f cloud.yaml"), "{render}");
        assert!(!render.contains("openstack-operator render"), "{render}");
    }
}
