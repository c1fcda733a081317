//! The `backstop` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Every request makes and drops a hundred or so small things; this takes a fifth off the time that costs with the
/// system's allocator (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    backstop::cli::main(std::env::args_os())
}
