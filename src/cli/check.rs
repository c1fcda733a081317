//! `backstop check`.

use std::process::ExitCode;

use super::ConfigArgs;
use crate::config::load;

/// Print every fault of the config, or nothing.
pub(super) fn run(args: ConfigArgs) -> ExitCode {
    match args.sources().and_then(|sources| load(&sources)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => super::refuse(error),
    }
}
