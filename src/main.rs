//! The `backstop` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Every request makes and drops many small things. Measured beside glibc's allocator with the same load, this one takes about
/// a fifth off a request's time in user space; it costs about 10 MB of idle memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    backstop::cli::main(std::env::args_os())
}
