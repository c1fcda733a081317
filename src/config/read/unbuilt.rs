//! Sections of features that are not built yet: fully checked, and refused when they ask for the feature,
//! because a limit that is read and not kept is worse than none.

use crate::config::section::{Context, Section, as_str};
use crate::config::tree::{Node, Value};

/// The global sections.
pub(super) fn sections(s: &mut Section<'_>) -> Option<()> {
    let all = [
        s.section("runs").and_then(runs),
        s.section("repair").and_then(repair),
        s.section("telemetry").and_then(telemetry),
    ];
    all.into_iter().collect()
}

fn telemetry(mut s: Section<'_>) -> Option<()> {
    let endpoint = s.string("otlp_endpoint");
    let endpoint = s.only("otlp_endpoint", endpoint, &"", "\"\"");
    s.finish();
    endpoint
}

fn runs(mut s: Section<'_>) -> Option<()> {
    let enabled = s.bool("enabled");
    let mut all = vec![s.only("enabled", enabled, &false, "false")];
    all.push(s.strings("identify").map(drop));
    for key in ["max_steps", "max_tokens", "max_input_tokens"] {
        all.push(s.int(key, 0..=1_000_000_000_000_i64).map(drop));
    }
    all.push(s.number("max_cost_usd", "a number from 0 (US dollars; 0 = no limit)", |n| n >= 0.0).map(drop));
    all.push(s.duration("max_wall").map(drop));
    all.push(s.one_of("on_stop", &[("message", ()), ("error", ())]));
    all.push(s.section("loops").and_then(loops));
    all.push(s.required("prices").and_then(|node| prices(s.cx, node)));
    all.push(s.section("escalation").and_then(escalation));
    s.finish();
    all.into_iter().collect()
}

fn loops(mut s: Section<'_>) -> Option<()> {
    let mut all = Vec::new();
    for key in ["window", "nudge_after", "stop_after", "error_streak"] {
        all.push(s.int(key, 0..=1000_i64).map(drop));
    }
    all.push(s.strings("error_prefixes").map(drop));
    s.finish();
    all.into_iter().collect()
}

fn escalation(mut s: Section<'_>) -> Option<()> {
    let webhook = s.string("webhook");
    s.finish();
    webhook.map(drop)
}

fn prices(cx: &Context<'_>, node: &Node) -> Option<()> {
    let Some(table) = node.table() else {
        cx.expected(node, "a table of models");
        return None;
    };
    table.values().map(|node| price(Section::open(cx, node))).collect::<Vec<_>>().into_iter().collect()
}

fn price(mut s: Section<'_>) -> Option<()> {
    let mut all = Vec::new();
    for key in ["input", "output", "cached"] {
        if s.optional(key).is_some() {
            all.push(s.number(key, "a number from 0 (US dollars for a million tokens)", |n| n >= 0.0).map(drop));
        }
    }
    s.finish();
    all.into_iter().collect()
}

fn repair(mut s: Section<'_>) -> Option<()> {
    let enabled = s.bool("enabled");
    let mut all = vec![s.only("enabled", enabled, &false, "false")];
    all.push(s.int("max_repairs", 0..=100).map(drop));
    all.push(s.bool("safe_syntax").map(drop));
    if let Some(node) = s.optional("completion") {
        all.push(completions(s.cx, node));
    }
    s.finish();
    all.into_iter().collect()
}

fn completions(cx: &Context<'_>, node: &Node) -> Option<()> {
    let Value::Array(items) = &node.value else {
        cx.expected(node, "conditions, each under a [[repair.completion]] line");
        return None;
    };
    for item in items {
        completion(Section::open(cx, item));
        cx.unavailable(item, "none of it");
    }
    items.is_empty().then_some(())
}

fn completion(mut s: Section<'_>) {
    for key in ["contains", "regex", "note"] {
        if let Some(node) = s.optional(key).filter(|node| as_str(&node.value).is_none()) {
            s.cx.expected(node, "a text in quotes");
        }
    }
    if s.optional("min_chars").is_some() {
        s.int("min_chars", 0..=1_000_000_i64);
    }
    s.finish();
}
