//! `backstop config`.

use std::process::ExitCode;

use clap::Args;

use super::ConfigArgs;
use crate::config::{DEFAULTS, load};

/// Arguments of `backstop config`.
#[derive(Debug, Args)]
pub(super) struct ConfigCommand {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the commented default file
    #[arg(long)]
    default: bool,
}

/// Print the config. One that only asks for what is not built yet is shown too, with a word on that: `check` refuses it.
pub(super) fn run(before: ConfigArgs, own: ConfigCommand) -> ExitCode {
    if own.default {
        return super::print(DEFAULTS);
    }
    match before.with(own.config).sources().and_then(|sources| load(&sources)) {
        Ok(loaded) => super::print(&loaded.document.to_string()),
        Err(error) => match error.document() {
            Some(document) => {
                super::refuse(&error);
                super::print(&document.to_string())
            }
            None => super::refuse(error),
        },
    }
}
