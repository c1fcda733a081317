//! Objects of Ollama's own API, one a line.

use serde::de::MapAccess;

use super::root::{Root, Told, Truth, parse};
use super::said::Said;
use crate::wire::dialect::usage::Counts;
use crate::wire::loose::{Loose, Text, key, value};

/// Reads an object.
pub fn read(data: &[u8]) -> Option<Said<'_>> {
    let Piece { root, counts, told, done, reason } = parse(data)?;
    let mut said = Said { content: told, marker: done, ..Said::new(root) };
    said.counts = said.counts.or(Some(counts));
    if done {
        said.turns.note(None, Some(reason.as_deref().unwrap_or("stop")));
    }
    Some(said)
}

#[derive(Default)]
struct Piece<'a> {
    root: Root<'a>,
    counts: Counts,
    told: bool,
    done: bool,
    reason: Text<'a>,
}

impl<'a> Loose<'a> for Piece<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut piece = Piece::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "message" | "response" | "thinking" => piece.told |= value::<Told, _>(&mut map)?.0,
                "done" => piece.done |= value::<Truth, _>(&mut map)?.0,
                "done_reason" => piece.reason = value(&mut map)?,
                other if piece.counts.top_level(other, &mut map)? => {}
                other => piece.root.field(other, &mut map)?,
            }
        }
        Ok(piece)
    }
}
