//! What was measured, as tables.

use std::fmt;

use crate::support::herd::figures::median;
use crate::support::herd::{Figures, Herd, World};

/// One system in one world.
pub struct Row {
    pub system: &'static str,
    pub world: World,
    pub herd: Herd,
    pub runs: Vec<Figures>,
    /// The interactive agent without the herd.
    pub alone: Option<Figures>,
}

/// All rows, in order.
pub struct Report {
    about: String,
    rows: Vec<Row>,
}

const COLUMNS: [&str; 13] = [
    "a 429",
    "Retry-After",
    "start",
    "system",
    "time / optimum",
    "tasks lost",
    "429s",
    "5xx",
    "wasted a call",
    "most in 100 ms",
    "Jain",
    "wait p50, s",
    "wait p99, s",
];

impl Report {
    pub fn new(about: String) -> Self {
        Report { about, rows: Vec::new() }
    }

    /// Keep a row, and say that it is there: some take a while.
    pub fn add(&mut self, row: Row) {
        eprintln!("{}", row.cells().join(" | "));
        self.rows.push(row);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (alone, herds): (Vec<_>, Vec<_>) = self.rows.iter().partition(|row| row.alone.is_some());
        writeln!(f, "{}\n\n| {} |\n|{}--:|", self.about, COLUMNS.join(" | "), "---|".repeat(4) + &"--:|".repeat(8))?;
        for row in herds {
            writeln!(f, "| {} |", row.cells().join(" | "))?;
        }
        writeln!(f, "\n* of the calls that were done: the others never were\n")?;
        writeln!(
            f,
            "| a 429 | Retry-After | a call of the one, s | alone, s | mean | median | its calls lost | time / optimum | wasted a call |"
        )?;
        writeln!(f, "|---|---|{}", "--:|".repeat(7))?;
        for row in alone {
            writeln!(f, "| {} |", row.interactive().join(" | "))?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let [cost, hint] = self.world_cells();
        let start = if self.herd.spread.is_zero() { "at once" } else { "spread" };
        let star = if self.runs.iter().any(|run| run.lost > 0.0) { "*" } else { "" };
        let count = |value: f64| format!("{value:.0}");
        vec![
            cost,
            hint,
            start.into(),
            self.system.into(),
            self.both(|run| run.over_optimum, 3) + star,
            self.both(|run| run.lost, 0),
            count(self.median(|run| run.limited)),
            count(self.median(|run| run.failed)),
            self.both(|run| run.wasted, 3),
            self.both(|run| run.burst, 0),
            format!("{:.3}", self.median(|run| run.fairness)),
            format!("{:.1}", self.median(|run| run.wait_p50)),
            format!("{:.1}", self.median(|run| run.wait_p99)),
        ]
    }

    fn interactive(&self) -> Vec<String> {
        let [cost, hint] = self.world_cells();
        let (alone, alone_p50) =
            self.alone.map_or((f64::NAN, f64::NAN), |alone| (alone.companion, alone.companion_p50));
        let here = self.median(|run| run.companion);
        vec![
            cost,
            hint,
            format!("{here:.3}"),
            format!("{alone:.3}"),
            self.both(|run| run.companion / alone, 2),
            self.both(|run| run.companion_p50 / alone_p50, 2),
            self.both(|run| run.companion_lost, 0),
            self.both(|run| run.over_optimum, 3),
            self.both(|run| run.wasted, 3),
        ]
    }

    fn world_cells(&self) -> [String; 2] {
        let cost = if self.world.burns { "burns a token" } else { "is free" };
        [cost.into(), if self.world.hints { "whole s" } else { "none" }.into()]
    }

    fn values(&self, figure: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(&self.values(figure))
    }

    /// The median, and the worst (largest) if there are several.
    fn both(&self, figure: impl Fn(&Figures) -> f64, digits: usize) -> String {
        let values = self.values(figure);
        let middle = format!("{:.digits$}", median(&values));
        if values.len() < 2 {
            return middle;
        }
        format!("{middle} ({:.digits$})", values.iter().copied().fold(f64::NAN, f64::max))
    }
}
