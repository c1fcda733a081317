//! Chunks of Gemini's `streamGenerateContent`.

use serde::de::{MapAccess, SeqAccess};

use super::root::{Root, Told, parse};
use super::said::{Said, Turns};
use crate::wire::loose::{Count, Filled, Loose, Read, Text, key, skip, value};

/// Reads a chunk.
pub fn read(data: &[u8]) -> Option<Said<'_>> {
    let Chunk { root, candidates, blocked } = parse(data)?;
    let mut turns = candidates.turns;
    turns.explained |= blocked;
    // A blocked prompt has no candidates that could end.
    Some(Said { content: candidates.told, turns, marker: blocked, ..Said::new(root) })
}

#[derive(Default)]
struct Chunk<'a> {
    root: Root<'a>,
    candidates: Candidates,
    blocked: bool,
}

impl<'a> Loose<'a> for Chunk<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut chunk = Chunk::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "candidates" => chunk.candidates = value(&mut map)?,
                "promptFeedback" => chunk.blocked |= value::<Feedback, _>(&mut map)?.0,
                other => chunk.root.field(other, &mut map)?,
            }
        }
        Ok(chunk)
    }
}

/// The prompt was blocked. Ratings alone are no block.
#[derive(Default)]
struct Feedback(bool);

impl<'a> Loose<'a> for Feedback {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut feedback = Feedback::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "blockReason" => feedback.0 |= value::<Filled, _>(&mut map)?.0,
                _ => skip(&mut map)?,
            }
        }
        Ok(feedback)
    }
}

#[derive(Default)]
struct Candidates {
    told: bool,
    turns: Turns,
}

impl<'a> Loose<'a> for Candidates {
    fn array<A: SeqAccess<'a>>(mut seq: A) -> Result<Self, A::Error> {
        let mut candidates = Candidates::default();
        while let Some(Read(candidate)) = seq.next_element::<Read<Candidate<'a>>>()? {
            candidates.told |= candidate.told;
            candidates.turns.note(candidate.index.0, candidate.finish.as_deref());
        }
        Ok(candidates)
    }
}

#[derive(Default)]
struct Candidate<'a> {
    told: bool,
    index: Count,
    finish: Text<'a>,
}

impl<'a> Loose<'a> for Candidate<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut candidate = Candidate::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "content" => candidate.told |= value::<Told, _>(&mut map)?.0,
                "index" => candidate.index = value(&mut map)?,
                "finishReason" => candidate.finish = value(&mut map)?,
                _ => skip(&mut map)?,
            }
        }
        Ok(candidate)
    }
}
