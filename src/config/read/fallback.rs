//! `upstreams.NAME.fallbacks` and `upstreams.NAME.model_map`.

use std::collections::BTreeMap;

use super::upstream::expected_name;
use crate::config::section::{Context, Section, as_str};
use crate::config::tree::Node;
use crate::wire::dialect::Dialect;

/// The other upstreams that can stand in for `own`, in order. One without a credential is no fault: models of one's own need none.
pub(super) fn fallbacks(s: &mut Section<'_>, root: &Node, own: &str, names: &[&str]) -> Option<Vec<String>> {
    let items = s.strings("fallbacks")?;
    let mut fallbacks = Vec::new();
    for (node, name) in &items {
        if fallbacks.iter().any(|seen| seen == name) {
            s.cx.fault(node, format!("{name:?} is given twice"));
        } else if is_fallback(s.cx, node, name, root, own, names).is_some() {
            fallbacks.push((*name).to_owned());
        }
    }
    (fallbacks.len() == items.len()).then_some(fallbacks)
}

fn is_fallback(cx: &Context<'_>, node: &Node, name: &str, root: &Node, own: &str, names: &[&str]) -> Option<()> {
    if name == own {
        cx.fault(node, "an upstream can't be its own fallback");
    } else if !names.contains(&name) {
        cx.expected(node, &expected_name(name, names.iter().copied().filter(|other| *other != own)));
    } else if let Some((theirs, ours)) = other_dialect(root, name, own) {
        let (theirs, ours) = (theirs.name(), ours.name());
        cx.fault(node, format!("`{name}` speaks {theirs} and `{own}` speaks {ours}, expected the same dialect"));
    } else {
        return Some(());
    }
    None
}

/// Both dialects, if they differ. One that is not known is told at its own key.
fn other_dialect(root: &Node, name: &str, own: &str) -> Option<(Dialect, Dialect)> {
    let upstreams = root.get("upstreams")?;
    let dialect = |name| {
        let text = as_str(&upstreams.get(name)?.get("dialect")?.value)?;
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == text)
    };
    Some((dialect(name)?, dialect(own)?)).filter(|(theirs, ours)| theirs != ours)
}

/// Model asked for → model sent.
pub(super) fn model_map(cx: &Context<'_>, node: &Node) -> Option<BTreeMap<String, String>> {
    let Some(table) = node.table() else {
        cx.expected(node, "a table of models, like { \"asked-for\" = \"sent\" }");
        return None;
    };
    let read = |(asked, node): (&String, &Node)| {
        let sent = as_str(&node.value).filter(|sent| !sent.trim().is_empty());
        if sent.is_none() {
            cx.expected(node, "the name of a model in quotes, not empty");
        } else if asked.trim().is_empty() {
            cx.fault(node, "the model asked for is empty, expected its name");
            return None;
        }
        sent.map(|sent| (asked.clone(), sent.to_owned()))
    };
    table.iter().map(read).collect::<Vec<_>>().into_iter().collect()
}
