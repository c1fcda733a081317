//! The handed cases: `tests/fixtures/cases.jsonl`, their upstream scripts turned into [`Step`]s.

use serde_json::Value;

use super::step::End;
use super::{Script, Step, ms};

const CASES: &str = include_str!("../fixtures/cases.jsonl");

/// One case.
pub struct Case(Value);

/// The case of this id.
pub fn case(id: &str) -> Case {
    let all = CASES.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    Case(all.into_iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}")))
}

/// The ids of all cases.
pub fn ids() -> Vec<String> {
    let id =
        |line| serde_json::from_str::<Value>(line).expect("a line of JSON")["id"].as_str().expect("an id").to_owned();
    CASES.lines().map(id).collect()
}

impl Case {
    /// The script, without variants.
    pub fn script(&self) -> Script {
        self.script_with(|text| text.to_owned())
    }

    /// The script with its `<…>` marks filled in.
    pub fn script_with(&self, fill: impl Fn(&str) -> String) -> Script {
        steps(self.0["upstream_script"].as_array().expect("a script"), &fill).into()
    }

    /// One script for each variant.
    pub fn variants(&self) -> Vec<Script> {
        let variants = self.0["upstream_script"][0]["variants"].as_array().expect("variants");
        let script = |variant: &Value| match variant {
            Value::Array(items) => steps(items, &|text| text.to_owned()).into(),
            item => steps(std::slice::from_ref(item), &|text| text.to_owned()).into(),
        };
        variants.iter().map(script).collect()
    }

    /// What the item at this place of the script does.
    pub fn step(&self, item: usize) -> Step {
        step(&self.0["upstream_script"][item], &|text| text.to_owned())
    }

    /// The body that the item at this place of the script answers with.
    pub fn body(&self, item: usize) -> String {
        body(&self.0["upstream_script"][item])
    }

    /// The stream that the item at this place of the script comes to.
    pub fn stream(&self, item: usize) -> String {
        text(self.0["upstream_script"][item]["writes"].as_array().expect("writes"))
    }

    /// The stream of an item of a variant.
    pub fn variant_stream(&self, variant: usize, item: usize) -> String {
        let variant = &self.0["upstream_script"][0]["variants"][variant];
        let item = variant.as_array().map_or(variant, |items| &items[item]);
        text(item["writes"].as_array().expect("writes"))
    }

    /// The body of a variant's first item.
    pub fn variant_body(&self, variant: usize) -> String {
        let variant = &self.0["upstream_script"][0]["variants"][variant];
        body(variant.as_array().map_or(variant, |items| &items[0]))
    }
}

/// One step for each attempt that the items name; the last is for all that follow.
fn steps(items: &[Value], fill: &dyn Fn(&str) -> String) -> Vec<Step> {
    let mut steps = Vec::new();
    for item in items.iter().filter(|item| item["attempt"] != Value::Null) {
        let last = match &item["attempt"] {
            Value::Number(n) => n.as_u64().expect("an attempt"),
            Value::String(text) => last_of(text).unwrap_or(steps.len() as u64 + 1),
            other => panic!("{other} is no attempt"),
        };
        while (steps.len() as u64) < last {
            steps.push(step(item, fill));
        }
    }
    steps
}

/// The last attempt of `2` or `1-3`; none of `3+` and `all`.
fn last_of(text: &str) -> Option<u64> {
    text.rsplit('-').next()?.parse().ok()
}

fn step(item: &Value, fill: &dyn Fn(&str) -> String) -> Step {
    if item["conn"] == "refuse" {
        return Step::refuse();
    }
    let status = u16::try_from(item["status"].as_u64().expect("a status")).expect("a status");
    let streamed = item["writes"].as_array();
    let mut step = if streamed.is_some() {
        Step::respond(status, &[], "").chunked()
    } else {
        Step::respond(status, &[], body(item))
    };
    for (name, value) in item["headers"].as_object().into_iter().flatten() {
        step = step.header(name, fill(value.as_str().expect("a value")));
    }
    let step = step.delay(ms(item["delay_ms"].as_u64().unwrap_or(0)));
    let Some(writes) = streamed else { return step };
    let step = written(step, writes);
    let size = text(writes).len();
    match item["end"].as_str() {
        Some("rst") => step.cut_after(size).ending(End::Reset),
        Some("hang") => step.stall_after(size),
        Some("eof") | None => step.then_close(),
        Some(other) => panic!("{other} is no end"),
    }
}

/// The writes of a stream: texts, pauses, and what stands for several of them.
fn written(step: Step, writes: &[Value]) -> Step {
    writes.iter().fold(step, |step, write| match write {
        Value::String(text) => step.write(text),
        Value::Object(_) if write["sleep_ms"].is_u64() => step.pause(ms(write["sleep_ms"].as_u64().unwrap())),
        Value::Object(_) if write["repeat"].is_u64() => {
            let of = write["of"].as_array().expect("writes");
            (0..write["repeat"].as_u64().unwrap()).fold(step, |step, _| written(step, of))
        }
        Value::Object(_) if write["hex_split"].is_string() => {
            text(std::slice::from_ref(write)).bytes().fold(step, |step, byte| step.write([byte]).pause(ms(20)))
        }
        other => text(std::slice::from_ref(other)).bytes().fold(step, |step, byte| step.write([byte])),
    })
}

/// All the text that these writes come to.
fn text(writes: &[Value]) -> String {
    let one = |write: &Value| match write {
        Value::String(text) => text.clone(),
        _ if write["sleep_ms"].is_u64() => String::new(),
        _ if write["repeat"].is_u64() => {
            text(write["of"].as_array().expect("writes")).repeat(write["repeat"].as_u64().unwrap() as usize)
        }
        _ if write["byte_by_byte"] == true => text(write["of"].as_array().expect("writes")),
        _ if write["hex_split"].is_string() => super::message_piece("日本🎉"),
        other => panic!("{other} is no write"),
    };
    writes.iter().map(one).collect()
}

fn body(item: &Value) -> String {
    item["body_text"].as_str().map_or_else(|| item["body"].to_string(), str::to_owned)
}
