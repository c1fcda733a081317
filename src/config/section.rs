//! One table being read: typed getters that note every fault and go on.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::fault::{Fault, Kind};
use super::suggest::{self, Schema};
use super::tree::{Node, Table, Value};
use super::{mask, units};

/// What all readers share: the faults so far, the keys that exist, the environment.
pub(super) struct Context<'a> {
    faults: RefCell<Vec<Fault>>,
    schema: Schema,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Context<'a> {
    /// No faults yet.
    pub fn new(schema: Schema, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Context { faults: RefCell::default(), schema, env }
    }

    /// A variable that is set and not empty.
    pub fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.trim().is_empty())
    }

    /// Note a fault of a value.
    pub fn fault(&self, node: &Node, message: impl Into<String>) {
        self.push(node, message.into(), Kind::Wrong);
    }

    /// Note a value that asks for what is not built yet.
    pub fn unavailable(&self, node: &Node, off: &str) {
        self.push(node, format!("not available yet; the one value that works now is {off}"), Kind::Unavailable);
    }

    /// Note that a value is not what was expected.
    pub fn expected(&self, node: &Node, expected: &str) {
        self.fault(node, format!("found {}, expected {expected}", found(node)));
    }

    fn push(&self, node: &Node, message: String, kind: Kind) {
        let fault = Fault { place: node.at.clone(), key: node.key.clone(), message, kind };
        self.faults.borrow_mut().push(fault);
    }

    /// All faults.
    pub fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }
}

/// A value as faults show it.
fn found(node: &Node) -> String {
    match &node.value {
        Value::Array(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
        Value::Other(name) => (*name).into(),
        _ if mask::is_secret(&node.key) => "a value that is not shown".into(),
        Value::String(text) => format!("{:?}", mask::short(text)),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Bool(flag) => flag.to_string(),
    }
}

/// A table being read. A getter gives `None` after it noted a fault, so that a reader can ask for all its keys before it gives up.
pub(super) struct Section<'a> {
    /// Faults go here.
    pub cx: &'a Context<'a>,
    /// The table itself.
    pub node: &'a Node,
    table: Option<&'a Table>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Start to read a table; anything else is a fault.
    pub fn open(cx: &'a Context<'a>, node: &'a Node) -> Self {
        let table = node.table();
        if table.is_none() {
            cx.expected(node, "a table of keys");
        }
        Section { cx, node, table, known: Vec::new() }
    }

    /// The value of a key that may be missing.
    pub fn optional(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known.push(key);
        self.table?.get(key)
    }

    /// The value of a key that must be there.
    pub fn required(&mut self, key: &'static str) -> Option<&'a Node> {
        let node = self.optional(key);
        if let (None, Some(_)) = (node, self.table) {
            self.cx.fault(self.node, format!("`{key}` is missing"));
        }
        node
    }

    /// A table inside this one.
    pub fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let node = self.required(key)?;
        Some(Section::open(self.cx, node))
    }

    /// Report the keys that nobody asked for.
    pub fn finish(self) {
        for (name, node) in self.table.into_iter().flatten() {
            if self.known.contains(&name.as_str()) {
                continue;
            }
            let hint = self.cx.schema.hint(&self.node.key, name, &self.known);
            let message = format!("unknown {}{hint}", if self.node.key.is_empty() { "section" } else { "key" });
            let fault = Fault { place: node.key_at.clone(), key: node.key.clone(), message, kind: Kind::Wrong };
            self.cx.faults.borrow_mut().push(fault);
        }
    }

    fn read<T>(&mut self, key: &'static str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let node = self.required(key)?;
        let value = read(&node.value);
        if value.is_none() {
            self.cx.expected(node, expected);
        }
        value
    }

    /// Text; it may be empty.
    pub fn string(&mut self, key: &'static str) -> Option<&'a str> {
        self.read(key, "a text in quotes", as_str)
    }

    /// Text, and `None` inside for an empty one, which stands for "not set".
    pub fn set_string(&mut self, key: &'static str) -> Option<Option<&'a str>> {
        self.string(key).map(|text| (!text.is_empty()).then_some(text))
    }

    /// `true` or `false`.
    pub fn bool(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A whole number in a range.
    pub fn int<T: TryFrom<i64> + PartialOrd + Display>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, &expected, |value| match value {
            Value::Integer(number) => T::try_from(*number).ok().filter(|n| range.contains(n)),
            _ => None,
        })
    }

    /// A finite number that `allowed` takes; `expected` says which.
    pub fn number(&mut self, key: &'static str, expected: &str, allowed: impl FnOnce(f64) -> bool) -> Option<f64> {
        self.read(key, expected, |value| {
            let number = match value {
                #[allow(clippy::cast_precision_loss)] // no rate needs 53 bits
                Value::Integer(number) => *number as f64,
                Value::Float(number) => *number,
                _ => return None,
            };
            Some(number).filter(|n| n.is_finite() && allowed(*n))
        })
    }

    /// A duration, zero allowed.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.duration_from(key, Duration::ZERO)
    }

    /// A duration above zero.
    pub fn period(&mut self, key: &'static str) -> Option<Duration> {
        self.duration_from(key, Duration::from_nanos(1))
    }

    fn duration_from(&mut self, key: &'static str, least: Duration) -> Option<Duration> {
        let node = self.required(key)?;
        let value = as_str(&node.value).and_then(units::duration);
        match (value, &node.value) {
            (Some(value), _) if value >= least => return Some(value),
            (Some(_), _) => self.cx.expected(node, "a duration above zero"),
            (None, Value::Integer(number)) => {
                let hint = format!("a duration in quotes with its unit: write \"{number}s\"");
                self.cx.expected(node, &hint);
            }
            (None, _) => {
                self.cx.expected(node, "a duration with its unit, like \"500ms\", \"10s\" or \"2m\", of a year at most")
            }
        }
        None
    }

    /// A size in bytes.
    pub fn size(&mut self, key: &'static str) -> Option<u64> {
        let expected =
            "a size with its unit, like \"512KiB\" or \"32MiB\" (B, KB, MB, GB, KiB, MiB, GiB), of 1024GiB at most";
        // Nothing needs no unit.
        let zero = |value: &Value| matches!(value, Value::Integer(0)).then_some(0);
        self.read(key, expected, |value| as_str(value).and_then(units::size).or_else(|| zero(value)))
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let node = self.required(key)?;
        let text = as_str(&node.value);
        let value = words.iter().find(|(word, _)| Some(*word) == text).map(|(_, value)| *value);
        if value.is_none() {
            let near = text.and_then(|text| suggest::nearest(text, words.iter().map(|(word, _)| *word)));
            let all: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            let hint = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
            self.cx.expected(node, &format!("one of {}{hint}", all.join(", ")));
        }
        value
    }

    /// A list of texts, none empty, each with its place.
    pub fn strings(&mut self, key: &'static str) -> Option<Vec<(&'a Node, &'a str)>> {
        let node = self.required(key)?;
        strings(self.cx, node)
    }

    /// A key of something that is not built yet: `value` was read as usual, and only `off` is taken.
    pub fn only<T: PartialEq>(&mut self, key: &'static str, value: Option<T>, off: &T, off_text: &str) -> Option<()> {
        let node = self.optional(key)?;
        if &value? == off {
            return Some(());
        }
        self.cx.unavailable(node, off_text);
        None
    }
}

/// The text of a value.
pub(super) fn as_str(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The items of a list of texts; an item that is none is a fault at its own line.
pub(super) fn strings<'a>(cx: &Context<'_>, node: &'a Node) -> Option<Vec<(&'a Node, &'a str)>> {
    let Value::Array(items) = &node.value else {
        cx.expected(node, "a list of texts, like [\"a\", \"b\"]");
        return None;
    };
    let read = |item: &'a Node| {
        let text = as_str(&item.value).filter(|text| !text.trim().is_empty());
        if text.is_none() {
            cx.expected(item, "a text in quotes that is not empty");
        }
        text.map(|text| (item, text))
    };
    // Collected twice so that every bad item is told, not just the first.
    items.iter().map(read).collect::<Vec<_>>().into_iter().collect()
}
