//! Commands that are reserved: a script that uses one is told so, rather than "no such command".

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

/// Whatever their arguments will be.
#[derive(Debug, Args)]
pub(super) struct Anything {
    /// Arguments of the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Refuse.
pub(super) fn run(command: &str) -> ExitCode {
    super::refuse(format_args!("backstop {command}: not available yet"))
}
