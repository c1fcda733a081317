//! Chunks of chat completions, and of the older completions.

use serde::de::{MapAccess, SeqAccess};

use super::root::{Root, Told, parse};
use super::said::{Said, Turns};
use crate::wire::loose::{Count, Filled, Loose, Read, Text, key, skip, value};

/// Reads a chunk. `look`: whether there is content still matters.
pub fn read(data: &[u8], look: bool) -> Option<Said<'_>> {
    if look { parse::<Chunk<'_, true>>(data)?.said() } else { parse::<Chunk<'_, false>>(data)?.said() }
}

/// A chunk. Without `LOOK` the deltas are passed over: they are most of a stream's bytes.
#[derive(Default)]
struct Chunk<'a, const LOOK: bool> {
    root: Root<'a>,
    choices: Choices<LOOK>,
}

impl<'a, const LOOK: bool> Chunk<'a, LOOK> {
    fn said(self) -> Option<Said<'a>> {
        let said = Said::new(self.root);
        let error = said.error || self.choices.error || self.choices.turns.error;
        Some(Said { error, content: self.choices.told, turns: self.choices.turns, ..said })
    }
}

impl<'a, const LOOK: bool> Loose<'a> for Chunk<'a, LOOK> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut chunk = Self::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "choices" => chunk.choices = value(&mut map)?,
                // Groq: usage, or the reason why the stream stops early.
                "x_groq" => chunk.root.adopt(value(&mut map)?),
                other => chunk.root.field(other, &mut map)?,
            }
        }
        Ok(chunk)
    }
}

#[derive(Default)]
struct Choices<const LOOK: bool> {
    told: bool,
    error: bool,
    turns: Turns,
}

impl<'a, const LOOK: bool> Loose<'a> for Choices<LOOK> {
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut choices = Self::default();
        while let Some(Read(choice)) = seq.next_element::<Read<Choice<'a, LOOK>>>()? {
            choices.told |= choice.told;
            choices.error |= choice.error;
            choices.turns.note(choice.index.0, choice.finish.as_deref());
        }
        Ok(choices)
    }
}

#[derive(Default)]
struct Choice<'a, const LOOK: bool> {
    told: bool,
    error: bool,
    index: Count,
    finish: Text<'a>,
}

impl<'a, const LOOK: bool> Loose<'a> for Choice<'a, LOOK> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut choice = Self::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "delta" | "text" | "message" if LOOK => choice.told |= value::<Told, _>(&mut map)?.0,
                "error" => choice.error |= value::<Filled, _>(&mut map)?.0,
                "index" => choice.index = value(&mut map)?,
                "finish_reason" => choice.finish = value(&mut map)?,
                _ => skip(&mut map)?,
            }
        }
        Ok(choice)
    }
}
