//! `backstop classify`: the classifier, asked about one answer.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::ConfigArgs;
use crate::clock::Clock;
use crate::config::{Config, Upstream, load};
use crate::policy::classify::{Answer, Evidence, classify};
use crate::policy::verdict::{Class, Verdict};
use crate::wire::dialect::Dialect;
use crate::wire::encoding;

/// A larger body is not read to its end; no rule looks that far.
const LARGEST_BODY: u64 = 32 << 20;

/// Arguments of `backstop classify`.
#[derive(Debug, Args)]
pub(super) struct ClassifyArgs {
    /// What the upstream speaks
    #[arg(long, value_parser = dialect())]
    dialect: Dialect,
    /// The HTTP status
    #[arg(long, value_parser = status)]
    status: StatusCode,
    /// A header of the answer, 'name: value' (repeatable)
    #[arg(long = "header", value_name = "K: V", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// File with the body; - is stdin, nothing is an empty body
    #[arg(long, value_name = "FILE|-")]
    body: Option<PathBuf>,
    /// Path of the request, which may name the upstream whose rules apply
    #[arg(long)]
    path: Option<String>,
    /// Config file with [[classify]] rules
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set any config key (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

fn dialect() -> impl TypedValueParser<Value = Dialect> {
    PossibleValuesParser::new(Dialect::ALL.map(Dialect::name))
        .try_map(|name| Dialect::from_name(&name).ok_or("no dialect of that name"))
}

fn status(text: &str) -> Result<StatusCode, String> {
    let number = text.parse::<u16>().ok().filter(|n| (100..=599).contains(n));
    number.and_then(|n| StatusCode::from_u16(n).ok()).ok_or_else(|| "expected a number from 100 to 599".into())
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'name: value'")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "the name can't be a header's")?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| "the value can't be a header's")?;
    Ok((name, value))
}

/// Classify, and print one line of JSON.
pub(super) fn run(before: ConfigArgs, args: ClassifyArgs) -> ExitCode {
    let own = ConfigArgs { config: args.config.clone(), sets: args.sets.clone(), ..ConfigArgs::default() };
    let config = match before.with(own).sources().and_then(|sources| load(&sources)) {
        Ok(loaded) => loaded.config,
        Err(error) => return super::refuse(error),
    };
    let body = match args.body.as_deref().map_or(Ok(Vec::new()), read_body) {
        Ok(body) => body,
        Err(error) => return super::refuse(error),
    };
    let Some(upstream) = upstream(&config, &args) else {
        return super::fail("backstop classify: the config has no upstream");
    };
    super::print(&format!("{}\n", answer(&args, &body, upstream)))
}

/// The upstream whose rules and limits count: the one that the path or the dialect names, else any of the dialect.
fn upstream<'a>(config: &'a Config, args: &ClassifyArgs) -> Option<&'a Upstream> {
    let segment = args.path.as_deref().and_then(|path| path.trim_start_matches('/').split(['/', '?']).next());
    let named = segment.and_then(|name| config.upstreams.get(name));
    let of_dialect = || config.upstreams.values().find(|upstream| upstream.dialect == args.dialect);
    // The built-in upstream of the dialect's name: its rules are the ones that a bare path would meet.
    let found = named.or_else(|| config.upstreams.get(args.dialect.name())).or_else(of_dialect);
    found.or_else(|| config.upstreams.values().next()).map(AsRef::as_ref)
}

fn answer(args: &ClassifyArgs, body: &[u8], upstream: &Upstream) -> serde_json::Value {
    let headers: HeaderMap = args.headers.iter().cloned().collect();
    let (body, whole) = decode(&headers, body);
    let answer = Answer {
        dialect: args.dialect,
        model_call: true,
        status: args.status,
        headers: &headers,
        body: &body,
        whole,
        now: Clock::real().wall(),
    };
    let verdict = classify(Evidence::Answer(answer), &upstream.rules);
    describe(&verdict, upstream.retry.max_wait_hint)
}

/// The body with its content encoding undone, and whether that is all of it.
fn decode(headers: &HeaderMap, body: &[u8]) -> (Vec<u8>, bool) {
    let limit = usize::try_from(LARGEST_BODY).unwrap_or(usize::MAX);
    match encoding::decode(headers, body, limit) {
        Some(decoded) => (decoded.body, !decoded.cut && (body.len() as u64) < LARGEST_BODY),
        None => (body.to_vec(), false),
    }
}

/// The verdict as JSON. A wait too long for the caller is no retry.
fn describe(verdict: &Verdict, max_wait: Duration) -> serde_json::Value {
    let wait_ms = verdict.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    serde_json::json!({
        "class": verdict.class.name(),
        "reason": verdict.reason.name(),
        "rule": verdict.rule,
        "wait_ms": wait_ms,
        "retry": verdict.class == Class::Transient && verdict.wait.is_none_or(|wait| wait <= max_wait),
    })
}

fn read_body(path: &Path) -> Result<Vec<u8>, String> {
    let fault = |e: std::io::Error| format!("backstop classify: {}: {e}", path.display());
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => Box::new(std::fs::File::open(path).map_err(fault)?),
    };
    let mut body = Vec::new();
    source.take(LARGEST_BODY).read_to_end(&mut body).map_err(fault)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::policy::verdict::Reason;

    fn parse(args: &[&str]) -> Result<ClassifyArgs, clap::Error> {
        let cli = Cli::try_parse_from(["backstop", "classify"].iter().chain(args))?;
        match cli.command {
            Some(Command::Classify(args)) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_are_checked() {
        let args = parse(&[
            "--dialect",
            "gemini",
            "--status",
            "429",
            "--header",
            "Retry-After:  7",
            "--header",
            "a: b:c",
            "--body",
            "-",
        ])
        .unwrap();
        assert_eq!((args.dialect, args.status.as_u16()), (Dialect::Gemini, 429));
        assert_eq!(args.headers[0], (http::header::RETRY_AFTER, HeaderValue::from_static("7")));
        assert_eq!(args.headers[1].1, "b:c");
        for bad in [
            &["--dialect", "openai"][..],
            &["--dialect", "klingon", "--status", "200"],
            &["--dialect", "openai", "--status", "99"],
            &["--dialect", "openai", "--status", "999"],
            &["--dialect", "openai", "--status", "200", "--header", "no colon"],
            &["--dialect", "openai", "--status", "200", "--header", "a b: c"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_path_or_else_the_dialect_names_the_upstream() {
        let config = load(&crate::config::Sources::default()).unwrap().config;
        for (args, name) in [
            (&["--dialect", "openai", "--status", "200"][..], "openai"),
            (&["--dialect", "openai", "--status", "200", "--path", "/groq/v1/models?x=1"], "groq"),
            (&["--dialect", "anthropic", "--status", "200", "--path", "/v1/messages"], "anthropic"),
        ] {
            assert_eq!(&*upstream(&config, &parse(args).unwrap()).unwrap().name, name);
        }
    }

    #[test]
    fn a_wait_that_is_too_long_is_no_retry() {
        let verdict = |wait| Verdict {
            class: Class::Transient,
            reason: Reason::RateLimited,
            rule: "r",
            wait,
            ambiguous: false,
            unknown: false,
            named_status: None,
        };
        let limit = Duration::from_secs(120);
        let json = describe(&verdict(Some(Duration::from_millis(1500))), limit);
        assert_eq!(
            json.to_string(),
            r#"{"class":"transient","reason":"rate_limited","retry":true,"rule":"r","wait_ms":1500}"#
        );
        assert_eq!(describe(&verdict(Some(Duration::MAX)), limit)["retry"], false);
        assert_eq!(describe(&verdict(None), limit)["wait_ms"], serde_json::Value::Null);
    }
}
