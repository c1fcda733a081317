//! The command line, through the binary: exit codes, what goes to which stream, where the config comes from.

use std::path::Path;
use std::process::{Command, Output};

/// Run the binary in a directory of its own, with nothing of our environment.
fn run(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstop"));
    command.args(args).current_dir(dir).env_clear().envs(env.iter().copied());
    command.output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn usage_is_exit_2_help_and_version_are_exit_0() {
    let dir = temp();
    let wrong = run(dir.path(), &["serve", "--no-such-flag"], &[]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("no-such-flag"));
    assert_eq!(run(dir.path(), &["frobnicate"], &[]).status.code(), Some(2));
    let help = run(dir.path(), &["--help"], &[]);
    assert_eq!(help.status.code(), Some(0));
    for word in ["serve", "check", "config", "classify", "exec", "runs", "completions"] {
        assert!(out(&help).contains(word), "{word}");
    }
    let version = run(dir.path(), &["--version"], &[]);
    assert_eq!(out(&version), concat!("backstop ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn check_says_nothing_of_a_good_config_and_every_fault_of_a_bad_one() {
    let dir = temp();
    let path = dir.path().join("backstop.toml");
    std::fs::write(&path, "[retry]\nmax_attempts = 4\n").unwrap();
    let good = run(dir.path(), &["check"], &[]);
    assert_eq!((good.status.code(), out(&good), err(&good)), (Some(0), String::new(), String::new()));
    std::fs::write(&path, "[retry]\nmax_atempts = 0\njitter = \"some\"\n").unwrap();
    let bad = run(dir.path(), &["check", "--config", "backstop.toml"], &[]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(err(&bad).starts_with("backstop.toml:2: retry.max_atempts: unknown key; did you mean `max_attempts`?\nbackstop.toml:3: retry.jitter: "), "{}", err(&bad));
    let gone = run(dir.path(), &["check", "--config", "gone.toml"], &[]);
    assert_eq!((gone.status.code(), err(&gone)), (Some(2), "gone.toml: no such file\n".into()));
}

#[test]
fn serve_and_no_command_refuse_a_faulty_config() {
    let dir = temp();
    for args in [
        &["serve", "--set", "retry.max_attempts=three"][..],
        &["--set", "retry.max_attempts=three"],
        &["--set", "retry.max_attempts=three", "serve"],
    ] {
        let output = run(dir.path(), args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).starts_with("--set retry.max_attempts=three: "), "{}", err(&output));
    }
}

#[test]
fn config_prints_what_is_in_force_as_toml() {
    let dir = temp();
    let attempts = |args: &[&str], env: &[(&str, &str)]| {
        let output = run(dir.path(), &[&["config"], args].concat(), env);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let table: toml::Table = out(&output).parse().unwrap();
        assert_eq!(table["retry"]["base_delay"].as_str(), Some("1s"));
        table["retry"]["max_attempts"].as_integer().unwrap()
    };
    let file =
        |name: &str, n: i64| std::fs::write(dir.path().join(name), format!("[retry]\nmax_attempts = {n}\n")).unwrap();
    assert_eq!(attempts(&[], &[]), 5);
    file("backstop.toml", 12);
    file("env.toml", 13);
    file("arg.toml", 14);
    assert_eq!(attempts(&[], &[("BACKSTOP_CONFIG", "")]), 12);
    assert_eq!(attempts(&[], &[("BACKSTOP_CONFIG", "env.toml")]), 13);
    assert_eq!(attempts(&["--config", "arg.toml"], &[("BACKSTOP_CONFIG", "env.toml")]), 14);
    assert_eq!(attempts(&["--config", "arg.toml", "--set", "retry.max_attempts=7"], &[]), 7);
}

#[test]
fn config_masks_secrets_and_shows_what_is_not_built_yet() {
    let dir = temp();
    let text = "[upstreams.openai]\nbase_url = \"http://user:url-secret@127.0.0.1:1\"\napi_key_env = \"RIG_K\"\n\
                headers = { authorization = \"Bearer header-secret\", \"x-team\" = \"blue\" }\n[redis]\nurl = \"redis://:redis-secret@127.0.0.1:1/0\"\n\
                [upstreams.openai.admission]\nmax_concurrency = 7\n[runs]\nenabled = true\n";
    std::fs::write(dir.path().join("backstop.toml"), text).unwrap();
    let output = run(dir.path(), &["config"], &[("RIG_K", "sk-env-secret")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(err(&output).contains("runs.enabled: not available yet"));
    assert!(out(&output).contains("redis://***@127.0.0.1:1/0") && out(&output).contains("max_concurrency = 7"));
    let shown = out(&output) + &err(&output);
    for secret in ["url-secret", "header-secret", "redis-secret", "sk-env-secret"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert!(shown.contains("blue") && shown.contains("RIG_K"));
    assert_eq!(run(dir.path(), &["check"], &[("RIG_K", "k")]).status.code(), Some(2));
    assert_eq!(run(dir.path(), &["check", "--set", "runs.enabled=false"], &[("RIG_K", "k")]).status.code(), Some(0));
}

#[test]
fn the_default_file_is_printed_with_its_comments() {
    let dir = temp();
    let output = run(dir.path(), &["config", "--default"], &[]);
    assert_eq!(out(&output), backstop::config::DEFAULTS);
    std::fs::write(dir.path().join("backstop.toml"), out(&output)).unwrap();
    assert_eq!(run(dir.path(), &["check"], &[]).status.code(), Some(0));
}

#[test]
fn completions_name_the_commands() {
    let dir = temp();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(dir.path(), &["completions", shell], &[]);
        assert_eq!(output.status.code(), Some(0));
        assert!(out(&output).contains("classify"), "{shell}");
    }
    assert_eq!(run(dir.path(), &["completions", "tcl"], &[]).status.code(), Some(2));
    assert_eq!(run(dir.path(), &["--listen", "x", "completions", "bash"], &[]).status.code(), Some(2));
}

#[test]
fn commands_to_come_say_so() {
    let dir = temp();
    for args in [&["exec", "--", "true"][..], &["runs", "list"], &["runs"]] {
        let output = run(dir.path(), args, &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("not available yet"));
    }
}

#[test]
fn classify_refuses_a_body_that_is_not_there() {
    let dir = temp();
    let output = run(dir.path(), &["classify", "--dialect", "openai", "--status", "429", "--body", "gone"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("gone"));
}
