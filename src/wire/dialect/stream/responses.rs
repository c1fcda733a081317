//! Events of OpenAI's Responses.

use serde::de::MapAccess;

use super::root::{Root, Told, parse};
use super::said::Said;
use crate::wire::loose::{Count, Loose, key, value};

/// The events after which nothing comes.
const ENDS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "response.cancelled"];

/// The event of this name is the last one.
pub fn is_end(name: &[u8]) -> bool {
    ENDS.iter().any(|end| end.as_bytes() == name)
}

/// Reads an event. The name in its `event` field counts where the JSON has no `type`.
pub fn read<'a>(name: &'a [u8], data: &'a [u8]) -> Option<Said<'a>> {
    let mut piece: Piece<'a> = parse(data)?;
    let kind = piece.root.kind.0.take();
    let kind = kind.as_deref().map_or(name, str::as_bytes);
    let failed = matches!(kind, b"error" | b"response.failed") || piece.response.root.error;
    piece.root.adopt(piece.response.root);
    let mut said = Said::new(piece.root);
    said.error |= failed;
    said.marker = is_end(kind);
    // What ended early has its reason for being empty.
    said.turns.explained = said.marker && kind != b"response.completed";
    said.content = !said.error && (piece.told || piece.response.output);
    said.sequence = piece.sequence.0;
    Some(said)
}

#[derive(Default)]
struct Piece<'a> {
    root: Root<'a>,
    response: Response<'a>,
    told: bool,
    sequence: Count,
}

impl<'a> Loose<'a> for Piece<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut piece = Piece::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "response" => piece.response = value(&mut map)?,
                "sequence_number" => piece.sequence = value(&mut map)?,
                "delta" | "text" | "refusal" | "arguments" | "input" | "code" | "transcript" | "item" | "part"
                | "partial_image_b64" | "annotation" => piece.told |= value::<Told, _>(&mut map)?.0,
                other => piece.root.field(other, &mut map)?,
            }
        }
        Ok(piece)
    }
}

/// The answer as it stands, told within some events.
#[derive(Default)]
struct Response<'a> {
    root: Root<'a>,
    output: bool,
}

impl<'a> Loose<'a> for Response<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut response = Response::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "output" => response.output = value::<Told, _>(&mut map)?.0,
                other => response.root.field(other, &mut map)?,
            }
        }
        Ok(response)
    }
}
