//! `completion`: completion scripts of shells.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use crate::output;

/// Print the completion script of a shell.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  source <(openstack-operator completion bash)
  openstack-operator completion zsh > \"${fpath[1]}/_openstack-operator\"")]
pub(crate) struct Arguments {
    shell: Shell,
}

pub(crate) fn completion(arguments: &Arguments) -> Result<ExitCode, output::Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::tree(false), super::PROGRAM, &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
