//! What was measured, as a table of medians or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

const SYSTEMS: [&str; 3] = ["direct", "nginx", "backstop"];

/// Every number of every round, in the order in which the tests were first run.
pub struct Report {
    environment: String,
    rows: Vec<Row>,
}

struct Row {
    test: &'static str,
    metric: &'static str,
    values: BTreeMap<&'static str, Vec<f64>>,
}

impl Report {
    pub fn new(environment: String) -> Self {
        Self { environment, rows: Vec::new() }
    }

    pub fn add(&mut self, system: &'static str, test: &'static str, metric: &'static str, value: f64) {
        let row = match self.rows.iter_mut().position(|row| row.test == test && row.metric == metric) {
            Some(at) => &mut self.rows[at],
            None => {
                self.rows.push(Row { test, metric, values: BTreeMap::new() });
                self.rows.last_mut().expect("just pushed")
            }
        };
        row.values.entry(system).or_default().push(value);
    }

    /// Medians, and Backstop's as a multiple of the others'.
    pub fn table(&self) -> String {
        let columns = "| test | | direct | nginx | backstop | of nginx | of direct |";
        let mut text = format!("{}\n\n{columns}\n|---|---|--:|--:|--:|--:|--:|\n", self.environment);
        for row in &self.rows {
            let medians = SYSTEMS.map(|system| row.values.get(system).map(|values| percentile(values, 0.5)));
            let [direct, nginx, backstop] = medians;
            let ratio = |other: Option<f64>| match (backstop, other) {
                (Some(ours), Some(other)) if other > 0.0 => format!("{:.2}", ours / other),
                _ => "-".to_owned(),
            };
            let cells = medians.map(|median| median.map_or_else(|| "-".to_owned(), rounded)).join(" | ");
            let _ =
                writeln!(text, "| {} | {} | {cells} | {} | {} |", row.test, row.metric, ratio(nginx), ratio(direct));
        }
        text
    }

    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| json!({"test": row.test, "metric": row.metric, "rounds": row.values}));
        json!({"environment": self.environment, "rows": rows.collect::<Vec<_>>()})
    }
}

/// The value below which the share `p` of `values` lies.
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * p).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Three digits that count, thousands apart.
fn rounded(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => {
            let digits = format!("{v:.0}");
            let split = |(n, digit)| if n > 0 && (digits.len() - n) % 3 == 0 { vec![',', digit] } else { vec![digit] };
            digits.chars().enumerate().flat_map(split).collect()
        }
    }
}
