//! Which file may use which, and what the pure layers may not touch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rank and modules, as `src/lib.rs` tells them: a file uses modules of its own rank or lower, and no two modules use each
/// other in a circle.
const RANKS: &[(u8, &[&str])] = &[
    (10, &["main", "cli"]),
    (9, &["server"]),
    (8, &["proxy", "join", "admin"]),
    (7, &["attempts", "relay", "tunnel"]),
    (6, &["call", "instance", "opening"]),
    (5, &["route", "answer", "account", "transcript"]),
    (4, &["upstream", "admission", "metrics", "reply"]),
    (3, &["config"]),
    (2, &["policy", "clock", "drain"]),
    (1, &["wire"]),
];

/// What a pure layer does not hold.
const IMPURE: &[&str] = &["tokio", "hyper::", "async ", "::now(", "rand::", "fastrand", "std::fs", "std::net::Tcp"];

/// Providers, and models that say whose they are.
const PROVIDERS: &[&str] = &[
    "openai",
    "anthropic",
    "gemini",
    "claude",
    "openrouter",
    "groq",
    "mistral",
    "deepseek",
    "fireworks",
    "ollama",
    "gpt-",
];

/// Every source file below `src/`: its path there, and its code without comments and unit tests.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    let tests = |name: &str| name.ends_with("tests.rs");
    let read = |path: &PathBuf| (relative(path), code(&fs::read_to_string(path).unwrap()));
    files.iter().map(read).filter(|(name, _)| !tests(name)).collect()
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
}

/// The code of a file: comments left out, and everything from its unit tests on (they stand last).
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| match line.find("//") {
        // A URL holds two slashes too.
        Some(at) if !line[..at].ends_with(':') => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The module that a file belongs to.
fn module(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

fn rank(module: &str) -> u8 {
    let row = RANKS.iter().find(|(_, modules)| modules.contains(&module));
    row.unwrap_or_else(|| panic!("src/{module} has no rank: put it into the table")).0
}

/// The modules of the crate that a piece of code names.
fn used(code: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for start in ["crate::", "backstop::"] {
        for (at, _) in code.match_indices(start) {
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => modules.extend(names_in(group)),
                None => modules.extend(first_name(rest)),
            }
        }
    }
    modules
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The first names of a group's parts: `{a::b, c::{d, e}, f}` → a, c, f.
fn names_in(group: &str) -> Vec<String> {
    let (mut depth, mut fresh, mut names) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if c.is_whitespace() => {}
            _ if fresh && depth == 0 => {
                names.extend(first_name(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// module → the modules that it uses.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, code) in sources().iter().filter(|(file, _)| file != "lib.rs") {
        let from = module(file);
        let uses = used(code).into_iter().filter(|to| to != from);
        edges.entry(from.to_owned()).or_default().extend(uses);
    }
    edges
}

#[test]
fn no_module_uses_one_above_it() {
    let mut upward = Vec::new();
    for (from, uses) in edges() {
        upward.extend(uses.iter().filter(|to| rank(to) > rank(&from)).map(|to| format!("{from} uses {to}")));
    }
    assert_eq!(upward, Vec::<String>::new());
}

#[test]
fn modules_use_each_other_in_no_circle() {
    let mut edges = edges();
    loop {
        let (done, left): (Vec<_>, Vec<_>) = edges.into_iter().partition(|(_, uses)| uses.is_empty());
        if done.is_empty() {
            assert_eq!(left, Vec::new(), "these use each other in a circle, or lead to one");
            return;
        }
        let done: BTreeSet<String> = done.into_iter().map(|(name, _)| name).collect();
        edges = left.into_iter().map(|(name, uses)| (name, uses.difference(&done).cloned().collect())).collect();
    }
}

#[test]
fn the_table_of_ranks_is_that_of_the_files() {
    let there: BTreeSet<String> = edges().into_keys().collect();
    let ranked: BTreeSet<String> =
        RANKS.iter().flat_map(|(_, modules)| modules.iter().map(|m| (*m).to_owned())).collect();
    assert_eq!(there, ranked);
}

#[test]
fn the_table_of_ranks_is_that_of_the_crates_own_page() {
    for (rank, modules) in RANKS {
        let row = format!("| {rank} | ");
        let told = include_str!("../src/lib.rs").lines().find_map(|line| line.strip_prefix("//! ")?.strip_prefix(&row));
        let names: Vec<&str> = told.unwrap().split('`').skip(1).step_by(2).take(modules.len()).collect();
        assert_eq!(names, *modules, "{rank}");
    }
}

#[test]
fn wire_and_policy_are_pure() {
    for (file, code) in sources().iter().filter(|(file, _)| matches!(module(file), "wire" | "policy")) {
        for word in IMPURE {
            assert!(!code.contains(word), "src/{file} holds {word:?}");
        }
    }
}

#[test]
fn only_the_clock_reads_the_clock_of_the_machine_and_the_dice() {
    for (file, code) in sources().iter().filter(|(file, _)| file != "clock.rs") {
        for word in ["SystemTime::now(", "std::time::Instant", "fastrand"] {
            assert!(!code.contains(word), "src/{file} holds {word:?}");
        }
    }
}

#[test]
fn providers_are_named_in_the_dialects_only() {
    let mut named = Vec::new();
    for (file, code) in sources().iter().filter(|(file, _)| !file.starts_with("wire/dialect/")) {
        let code = code.to_ascii_lowercase();
        let names: Vec<_> = PROVIDERS.iter().filter(|name| code.contains(*name)).collect();
        if !names.is_empty() {
            named.push(format!("src/{file}: {names:?}"));
        }
    }
    assert_eq!(named, Vec::<String>::new());
}

#[test]
fn groups_of_imports_are_read() {
    let code = "use crate::{a::b, c::{d, e},\n f};\nuse crate::g; crate::h::i();";
    assert_eq!(used(code).into_iter().collect::<Vec<_>>(), ["a", "c", "f", "g", "h"]);
}
