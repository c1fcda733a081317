//! `backstop completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

/// Arguments of `backstop completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Known,
}

/// The shells that are tested.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Print the script.
pub(super) fn run(args: &CompletionsArgs) -> ExitCode {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    // Into memory first: `generate` panics on a closed pipe.
    let mut script = Vec::new();
    generate(shell, &mut super::Cli::command(), "backstop", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
