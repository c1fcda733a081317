//! `backstop serve`.

use std::process::ExitCode;

use super::ConfigArgs;
use crate::config::{Loaded, Sources, load};

/// Load the config and serve until told to stop.
pub(super) fn run(args: ConfigArgs) -> ExitCode {
    let loaded = args
        .sources()
        .and_then(|sources| Ok((load(&sources)?, sources)));
    match loaded {
        Ok((loaded, sources)) => match serve(loaded, sources) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => super::fail(format_args!("backstop: {error}")),
        },
        Err(error) => super::refuse(error),
    }
}

/// Stands in for the server, which takes the same arguments: the config, and the sources to reload it from.
fn serve(_loaded: Loaded, _sources: Sources) -> Result<(), String> {
    Err("this build has no server".into())
}
