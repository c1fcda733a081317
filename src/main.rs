//! The `backstop` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    backstop::cli::main(std::env::args_os())
}
