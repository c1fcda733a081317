//! The command line: what can be asked for, and the exit code. One small file a subcommand.
//!
//! Exit codes: 0, 1 (failed while running), 2 (usage or config).

mod check;
mod classify;
mod completions;
mod config;
mod later;
mod log;
mod serve;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::{ConfigError, Sources, locate};

/// Failed while running.
const FAILED: u8 = 1;
/// Wrong usage or config.
const USAGE: u8 = 2;

/// A resilient LLM client proxy: one local binary between any agent or SDK and the model API.
#[derive(Debug, Parser)]
#[command(name = "backstop", version, subcommand_help_heading = "Commands")]
struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve. The same as no command at all
    Serve(ConfigArgs),
    /// Read the config and print every fault of it, or nothing
    Check(ConfigArgs),
    /// Print the config in force, defaults filled in, secrets masked
    Config(config::ConfigCommand),
    /// Say how an answer would be classified, and why, as JSON
    Classify(classify::ClassifyArgs),
    /// Run a command behind a private Backstop (not available yet)
    Exec(later::Anything),
    /// The runs of a serving Backstop (not available yet)
    Runs(later::Anything),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Where the config comes from. Taken before the command and after it.
#[derive(Debug, Clone, Default, Args)]
struct ConfigArgs {
    /// Config file, in place of $BACKSTOP_CONFIG, ./backstop.toml and $XDG_CONFIG_HOME/backstop/backstop.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// One upstream for every path; what it speaks is read from the path
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Set any config key, like retry.max_attempts=3 (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

impl ConfigArgs {
    /// These, and `over` on top.
    fn with(mut self, over: ConfigArgs) -> Self {
        self.sets.extend(over.sets);
        ConfigArgs {
            config: over.config.or(self.config),
            listen: over.listen.or(self.listen),
            upstream: over.upstream.or(self.upstream),
            sets: self.sets,
        }
    }

    fn is_empty(&self) -> bool {
        self.config.is_none() && self.listen.is_none() && self.upstream.is_none() && self.sets.is_empty()
    }

    /// The sources, the file found.
    fn sources(self) -> Result<Sources, ConfigError> {
        let defaults = Sources::default();
        let path = locate(self.config.as_deref(), &|name| (defaults.env)(name))?;
        Ok(Sources { path, sets: self.sets, listen: self.listen, upstream: self.upstream, ..defaults })
    }
}

/// Parse the arguments, run, give the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Cli::try_parse_from(args).and_then(checked) {
        Ok(cli) => run(cli),
        Err(error) => {
            // Help and version are errors to clap, without an exit code of their own.
            let code = if error.use_stderr() { USAGE } else { 0 };
            let told = error.print();
            if told.is_err() && code == 0 { ExitCode::from(FAILED) } else { ExitCode::from(code) }
        }
    }
}

/// Config flags in front of a command that reads no config would be lost without a word.
fn checked(cli: Cli) -> Result<Cli, clap::Error> {
    let reads_none = matches!(cli.command, Some(Command::Completions(_)));
    if reads_none && !cli.config.is_empty() {
        let message = "this command reads no config: --config, --listen, --upstream and --set can't be used with it";
        return Err(Cli::command().error(clap::error::ErrorKind::ArgumentConflict, message));
    }
    Ok(cli)
}

fn run(cli: Cli) -> ExitCode {
    let args = cli.config;
    match cli.command {
        None => serve::run(args),
        Some(Command::Serve(own)) => serve::run(args.with(own)),
        Some(Command::Check(own)) => check::run(args.with(own)),
        Some(Command::Config(own)) => config::run(args, own),
        Some(Command::Classify(own)) => classify::run(args, own),
        Some(Command::Exec(_)) => later::run("exec"),
        Some(Command::Runs(_)) => later::run("runs"),
        Some(Command::Completions(own)) => completions::run(&own),
    }
}

/// Say what is wrong, and end with the exit code for it.
fn refuse(what: impl std::fmt::Display) -> ExitCode {
    say(what, USAGE)
}

/// Say what failed.
fn fail(what: impl std::fmt::Display) -> ExitCode {
    say(what, FAILED)
}

fn say(what: impl std::fmt::Display, code: u8) -> ExitCode {
    // Where stderr is closed there is nobody to tell; the exit code remains.
    let _ = writeln!(io::stderr(), "{what}");
    ExitCode::from(code)
}

/// Write an answer to stdout. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => fail(format_args!("backstop: can't write: {e}")),
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault_in_the_commands() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_after_the_command_win_over_those_before_it() {
        let args =
            ["backstop", "--config", "a", "--set", "x=1", "--listen", "l", "serve", "--config", "b", "--set", "x=2"];
        let cli = Cli::try_parse_from(args).unwrap();
        let Some(Command::Serve(own)) = cli.command else { panic!("{cli:?}") };
        let args = cli.config.with(own);
        assert_eq!(args.config, Some("b".into()));
        assert_eq!(args.listen.as_deref(), Some("l"));
        assert_eq!(args.sets, ["x=1", "x=2"]);
    }

    #[test]
    fn no_command_is_serve_with_the_same_flags() {
        let cli = Cli::try_parse_from(["backstop", "--upstream", "http://h"]).unwrap();
        assert!(cli.command.is_none() && cli.config.upstream.is_some());
    }

    #[test]
    fn what_comes_later_takes_any_arguments() {
        for args in [["backstop", "exec", "--", "ls", "-l"], ["backstop", "runs", "extend", "ID", "--steps=3"]] {
            Cli::try_parse_from(args).unwrap();
        }
    }
}
