//! `backstop serve`.

use std::io;
use std::process::ExitCode;

use super::ConfigArgs;
use crate::config::{Loaded, Sources, load};
use crate::server::run::run as run_server;

/// Load the config and serve until told to stop.
pub(super) fn run(args: ConfigArgs) -> ExitCode {
    let loaded = args.sources().and_then(|sources| Ok((load(&sources)?, sources)));
    match loaded {
        Ok((loaded, sources)) => match serve(loaded, sources) {
            Ok(code) => code,
            Err(error) => super::fail(format_args!("backstop: {error}")),
        },
        Err(error) => super::refuse(error),
    }
}

/// Start the runtime and the server on it.
fn serve(loaded: Loaded, sources: Sources) -> io::Result<ExitCode> {
    super::log::init(loaded.config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(run_server(loaded.config, sources))?;
    // What is still running was given its time.
    runtime.shutdown_background();
    Ok(code)
}
