//! Flags of the commands that read objects from files.

use std::path::PathBuf;

use clap::Args;

/// Objects to read.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileArguments {
    /// File with objects of the operator's kinds, as YAML documents; `-` is standard input. May be given several times.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Namespace of objects without one; objects of another namespace are rejected.
    #[arg(short = 'n', long)]
    pub(crate) namespace: Option<String>,
}
