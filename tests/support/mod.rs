//! What the tests of whole calls share: a scripted upstream, a client that keeps every byte, and the Backstop between them.
//!
//! Everything runs over memory in tokio's paused clock unless a test is about what only a kernel gives.

#![allow(dead_code)] // each promise uses its own part of it

pub mod answers;
pub mod bed;
pub mod case;
pub mod client;
pub mod herd;
pub mod logs;
pub mod memory;
pub mod process;
pub mod redis;
pub mod request;
pub mod site;
pub mod step;
pub mod tcp;
pub mod upstream;
pub mod wire;

pub use answers::*;
pub use bed::Bed;
pub use client::{Answer, Client};
#[allow(unused_imports)] // a bench uses few of these
pub use request::{Request, delete, get, head, post};
pub use step::Step;
pub use upstream::{Script, Upstream};

use std::time::Duration;

/// Milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Header lines as they stood on the wire: name with its case, value, in order.
pub type Lines = Vec<(String, Vec<u8>)>;

/// The values of a header, in order, whatever the case of its name.
pub fn values<'a>(lines: &'a Lines, name: &str) -> Vec<&'a str> {
    let of_name = lines.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    of_name.map(|(_, value)| std::str::from_utf8(value).expect("a header of text")).collect()
}

/// The one value of a header, if it is there.
///
/// # Panics
/// If it is there twice.
pub fn value<'a>(lines: &'a Lines, name: &str) -> Option<&'a str> {
    let all = values(lines, name);
    assert!(all.len() < 2, "{name} is there {} times", all.len());
    all.first().copied()
}
