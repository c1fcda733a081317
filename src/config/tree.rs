//! A config as written: TOML values that know their place, laid over one another.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Kind, Place};
use super::mask;

/// Keys in the order of the alphabet.
pub(super) type Table = BTreeMap<String, Node>;

/// A value, where it stands and under which key.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The value.
    pub value: Value,
    /// Where the value is.
    pub at: Place,
    /// Where its key is.
    pub key_at: Place,
    /// Its full key, `retry.max_attempts`.
    pub key: String,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A list.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
    /// A date, or a number too large: nothing that any key takes.
    Other(&'static str),
}

impl Node {
    /// The table, if it is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The value under `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.table()?.get(key)
    }

    /// Lay `over` on top: tables are merged key by key, everything else is replaced.
    pub fn overlay(&mut self, over: Node) {
        match (&mut self.value, over.value) {
            (Value::Table(base), Value::Table(top)) => {
                for (key, node) in top {
                    match base.get_mut(&key) {
                        Some(old) => old.overlay(node),
                        None => drop(base.insert(key, node)),
                    }
                }
            }
            (value, top) => *value = top,
        }
        (self.at, self.key_at, self.key) = (over.at, over.key_at, over.key);
    }

    /// The plain TOML value.
    pub fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::String(text) => text.clone().into(),
            Value::Integer(number) => (*number).into(),
            Value::Float(number) => (*number).into(),
            Value::Bool(flag) => (*flag).into(),
            Value::Array(items) => toml::Value::Array(items.iter().map(Node::to_toml).collect()),
            Value::Table(table) => table.iter().map(|(k, v)| (k.clone(), v.to_toml())).collect::<toml::Table>().into(),
            Value::Other(name) => (*name).into(),
        }
    }
}

/// A text to read from: its rank among the sources, its name and the starts of its lines.
struct Source {
    rank: usize,
    name: Arc<str>,
    lines: Vec<usize>,
}

impl Source {
    fn place(&self, span: &Range<usize>) -> Place {
        Place::new(self.rank, &self.name, self.lines.partition_point(|start| *start <= span.start))
    }

    fn node(&self, key: &str, key_span: &Range<usize>, value: Spanned<DeValue<'_>>) -> Node {
        let (at, key_at) = (self.place(&value.span()), self.place(key_span));
        let value = match value.into_inner() {
            DeValue::String(text) => Value::String(text.into_owned()),
            DeValue::Integer(number) => integer(number.as_str(), number.radix()),
            DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("a number"), Value::Float),
            DeValue::Boolean(flag) => Value::Bool(flag),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Array(items) => Value::Array(
                items
                    .into_iter()
                    .map(|item| {
                        let span = item.span();
                        self.node(key, &span, item)
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.table(key, table)),
        };
        Node { value, at, key_at, key: key.to_owned() }
    }

    fn table(&self, path: &str, table: DeTable<'_>) -> Table {
        let entry = |(key, value): (Spanned<_>, Spanned<_>)| {
            let span = key.span();
            let name: String = std::borrow::Cow::<str>::into_owned(key.into_inner());
            let node = self.node(&join(path, &name), &span, value);
            (name, node)
        };
        table.into_iter().map(entry).collect()
    }
}

fn integer(digits: &str, radix: u32) -> Value {
    i64::from_str_radix(digits, radix).map_or(Value::Other("a number that is too large"), Value::Integer)
}

/// `path.name`, with quotes where TOML wants them.
fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let name = if bare { name.to_owned() } else { format!("{:?}", mask::short(name)) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// Read a whole document. Faults of syntax come alone: what is read around them would only mislead.
pub(super) fn parse(rank: usize, name: &str, text: &str) -> Result<Node, Vec<Fault>> {
    let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|i| i + 1));
    let source = Source { rank, name: Arc::from(name), lines: starts.collect() };
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let at = source.place(&(0..0));
        let table = source.table("", root.into_inner());
        return Ok(Node { value: Value::Table(table), at: at.clone(), key_at: at, key: String::new() });
    }
    let fault = |e: &toml::de::Error| {
        // An error at the line break belongs to the line that it ends.
        let span = e.span().unwrap_or(text.len()..text.len());
        let message = format!("not valid TOML: {}", e.message());
        Fault { place: source.place(&span), key: String::new(), message, kind: Kind::Wrong }
    };
    Err(errors.iter().map(fault).collect())
}

/// Read one `--set KEY=VALUE`: the value as TOML, or as text where it is none.
pub(super) fn parse_set(rank: usize, arg: &str) -> Result<Node, Fault> {
    let bad = |message: &str| {
        let source = format!("--set {}", mask::argument_key(arg));
        Fault {
            place: Place::new(rank, &Arc::from(source), 0),
            key: String::new(),
            message: message.into(),
            kind: Kind::Wrong,
        }
    };
    let (key, value) = split(arg).ok_or_else(|| bad("expected KEY=VALUE, like `retry.max_attempts=3`"))?;
    let path =
        key_path(key).ok_or_else(|| bad("found no key before the `=`, expected one like `retry.max_attempts`"))?;
    let name = path.iter().fold(String::new(), |path, part| join(&path, part));
    let shown = if mask::is_secret(&name) { mask::HIDDEN } else { mask::short(value) };
    let source = Source { rank, name: Arc::from(format!("--set {name}={shown}")), lines: Vec::new() };
    let value = DeValue::parse(value.trim()).unwrap_or_else(|_| Spanned::new(0..0, DeValue::String(value.into())));
    Ok(source.nest(&path, value))
}

impl Source {
    /// `value` under a path of keys, as a document.
    fn nest(&self, path: &[String], value: Spanned<DeValue<'_>>) -> Node {
        let key = path.iter().fold(String::new(), |path, part| join(&path, part));
        let mut node = self.node(&key, &(0..0), value);
        for depth in (0..path.len()).rev() {
            let key = path[..depth].iter().fold(String::new(), |path, part| join(&path, part));
            let (at, key_at) = (node.at.clone(), node.key_at.clone());
            let table = Table::from([(path[depth].clone(), node)]);
            node = Node { value: Value::Table(table), at, key_at, key };
        }
        node
    }
}

/// A document with one text in it, from an argument of its own (`--listen`).
pub(super) fn argument(rank: usize, flag: &str, path: &[&str], value: &str) -> Node {
    let source = Source { rank, name: Arc::from(flag), lines: Vec::new() };
    let path: Vec<String> = path.iter().map(ToString::to_string).collect();
    source.nest(&path, Spanned::new(0..0, DeValue::String(value.into())))
}

/// Split at the first `=` outside quotes.
fn split(arg: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    for (i, c) in arg.char_indices() {
        match (c, quote) {
            ('=', None) => return Some((&arg[..i], &arg[i + 1..])),
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

/// The parts of a dotted key. TOML's own reader knows the quotes.
fn key_path(key: &str) -> Option<Vec<String>> {
    let text = format!("{} = 0", key.trim());
    let mut table = DeTable::parse(&text).ok()?.into_inner();
    let mut path = Vec::new();
    loop {
        let (key, value) = table.into_iter().next()?;
        path.push(key.into_inner().into_owned());
        match value.into_inner() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}
