//! Events of Anthropic's Messages.

use serde::de::MapAccess;

use super::root::{Root, Told, parse};
use super::said::Said;
use crate::wire::loose::{Loose, Text, key, skip, value};

/// The event of this name is the last one.
pub fn is_end(name: &[u8]) -> bool {
    name == b"message_stop"
}

/// Reads an event. The name in its `event` field counts where the JSON has no `type`.
pub fn read<'a>(name: &'a [u8], data: &'a [u8]) -> Option<Said<'a>> {
    let mut piece: Piece<'a> = parse(data)?;
    let marker = is_end(piece.root.kind.as_deref().map_or(name, str::as_bytes));
    piece.root.adopt(piece.message.root);
    let mut said = Said::new(piece.root);
    said.marker = marker;
    said.content = piece.told || piece.message.told || piece.delta.told.0;
    let stop = piece.delta.stop.as_deref().or(piece.message.stop.as_deref());
    if stop.is_some() {
        said.turns.note(None, stop);
    }
    Some(said)
}

#[derive(Default)]
struct Piece<'a> {
    root: Root<'a>,
    message: Message<'a>,
    delta: Delta<'a>,
    told: bool,
}

impl<'a> Loose<'a> for Piece<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut piece = Piece::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "message" => piece.message = value(&mut map)?,
                "delta" => piece.delta = value(&mut map)?,
                "content_block" => piece.told = value::<Told, _>(&mut map)?.0,
                other => piece.root.field(other, &mut map)?,
            }
        }
        Ok(piece)
    }
}

/// The message as it begins.
#[derive(Default)]
struct Message<'a> {
    root: Root<'a>,
    told: bool,
    stop: Text<'a>,
}

impl<'a> Loose<'a> for Message<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut message = Message::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "content" => message.told = value::<Told, _>(&mut map)?.0,
                "stop_reason" => message.stop = value(&mut map)?,
                other => message.root.field(other, &mut map)?,
            }
        }
        Ok(message)
    }
}

/// More of a block, or how the message ended.
#[derive(Default)]
struct Delta<'a> {
    told: Told,
    stop: Text<'a>,
}

impl<'a> Loose<'a> for Delta<'a> {
    fn object<A: MapAccess<'a>>(mut map: A) -> Result<Self, A::Error> {
        let mut delta = Delta::default();
        while let Some(name) = key(&mut map)? {
            match &*name {
                "stop_reason" => delta.stop = value(&mut map)?,
                "stop_sequence" | "container" | "stop_details" => skip(&mut map)?,
                other => delta.told.field(other, &mut map)?,
            }
        }
        Ok(delta)
    }
}
