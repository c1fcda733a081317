//! `[[classify]]`.

use crate::config::section::{Context, Section, strings};
use crate::config::tree::{Node, Value};
use crate::policy::classify::Rule;
use crate::policy::verdict::Class;

/// A rule and the upstream it is for; `None`: all.
pub(super) type Scoped = (Option<String>, Rule);

const CLASSES: [(&str, Class); 4] = [
    ("success", Class::Success),
    ("transient", Class::Transient),
    ("recoverable", Class::Recoverable),
    ("terminal", Class::Terminal),
];

/// Read all rules, in order.
pub(super) fn rules(cx: &Context<'_>, node: &Node, names: &[&str]) -> Option<Vec<Scoped>> {
    let Value::Array(items) = &node.value else {
        cx.expected(node, "rules, each under a [[classify]] line");
        return None;
    };
    items.iter().map(|item| rule(cx, item, names)).collect::<Vec<_>>().into_iter().collect()
}

/// The rules for one upstream.
pub(super) fn of_upstream(rules: &[Scoped], name: &str) -> Vec<Rule> {
    let applies = |scope: &Option<String>| scope.as_deref().is_none_or(|scope| scope == name);
    rules.iter().filter(|(scope, _)| applies(scope)).map(|(_, rule)| rule.clone()).collect()
}

fn rule(cx: &Context<'_>, node: &Node, names: &[&str]) -> Option<Scoped> {
    let mut s = Section::open(cx, node);
    let upstream = scope(&mut s, names);
    let status = s.optional("status").map_or(Some(Vec::new()), |node| statuses(cx, node));
    let types = s.optional("error_type").map_or(Some(Vec::new()), |node| strings(cx, node));
    let has_text = s.optional("body_contains").is_some();
    let body_contains = if has_text { s.string("body_contains") } else { Some("") };
    let class = s.one_of("class", &CLASSES);
    s.finish();
    let rule = Rule {
        status: status?,
        error_type: types?.into_iter().map(|(_, text)| text.to_owned()).collect(),
        body_contains: body_contains?.to_owned(),
        class: class?,
    };
    if rule.status.is_empty() && rule.error_type.is_empty() && rule.body_contains.is_empty() {
        cx.fault(node, "a rule without a condition would match every answer, expected at least one of status, error_type, body_contains");
        return None;
    }
    Some((upstream?, rule))
}

fn scope(s: &mut Section<'_>, names: &[&str]) -> Option<Option<String>> {
    let Some(node) = s.optional("upstream") else {
        return Some(None);
    };
    let name = s.set_string("upstream")?;
    if let Some(name) = name.filter(|name| !names.contains(name)) {
        s.cx.expected(node, &super::upstream::expected_name(name, names.iter().copied()));
        return None;
    }
    Some(name.map(str::to_owned))
}

fn statuses(cx: &Context<'_>, node: &Node) -> Option<Vec<u16>> {
    let Value::Array(items) = &node.value else {
        cx.expected(node, "a list of HTTP statuses, like [404, 409]");
        return None;
    };
    let read = |item: &Node| {
        let status = match item.value {
            Value::Integer(number) => u16::try_from(number).ok().filter(|n| (100..=599).contains(n)),
            _ => None,
        };
        if status.is_none() {
            cx.expected(item, "an HTTP status from 100 to 599");
        }
        status
    };
    items.iter().map(read).collect::<Vec<_>>().into_iter().collect()
}
