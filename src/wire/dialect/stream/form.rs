//! Which form a stream has, and what its events say.

use super::root::{Root, parse};
use super::said::Said;
use super::{chat, generate, messages, objects, responses};
use crate::wire::dialect::{Dialect, form};
use crate::wire::headers::Media;
use crate::wire::sse::Data;

/// A form of stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Chat completions of OpenAI and everything compatible, and the older completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Gemini's server-sent events.
    Generate,
    /// Ollama's objects, one a line.
    Objects,
    /// Server-sent events that are not known: what is content and what the end, nobody knows.
    Events,
    /// Anything else: passed on unseen, and nothing can be told in it.
    Opaque,
}

impl Form {
    /// The form of an answer to a call of this path, in this dialect, with a body of this kind.
    pub fn of(dialect: Dialect, path: &str, media: Media) -> Form {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let form = match media {
            Media::Stream | Media::Unstated | Media::Text => Form::by_path(dialect, path.trim_end_matches('/')),
            Media::Json | Media::Html | Media::Binary => Form::Opaque,
        };
        // Without a content type that says so, only a path that can't mean anything else makes it a stream.
        match form {
            _ if media == Media::Stream => form,
            Form::Events | Form::Objects => Form::Opaque,
            Form::Generate if !query.contains("alt=sse") => Form::Opaque,
            form => form,
        }
    }

    fn by_path(dialect: Dialect, path: &str) -> Form {
        let ends = |tails: &[&str]| tails.iter().any(|tail| path.ends_with(tail));
        // A binary framing of another family's events.
        if ends(&["/invoke-with-response-stream", "/converse-stream"]) {
            return Form::Opaque;
        }
        if ends(&["/api/chat", "/api/generate"]) && matches!(dialect, Dialect::OpenAi | Dialect::Generic) {
            return Form::Objects;
        }
        match form::of_path(path, dialect) {
            Dialect::Anthropic if ends(&["/messages"]) => Form::Messages,
            Dialect::Gemini if ends(&[":streamGenerateContent"]) => Form::Generate,
            // Other families behind Vertex.
            Dialect::Gemini if ends(&[":streamRawPredict"]) && path.contains("/anthropic/") => Form::Messages,
            Dialect::Gemini if ends(&[":streamRawPredict"]) => Form::Chat,
            Dialect::OpenAi if ends(&["/completions"]) => Form::Chat,
            Dialect::OpenAi if ends(&["/responses"]) || is_one_response(path) => Form::Responses,
            _ => Form::Events,
        }
    }

    /// What an event says; `None`: nothing that is understood. `look`: whether there is content still matters.
    pub(super) fn read<'a>(self, name: &'a [u8], data: &Data<'a>, look: bool) -> Option<Said<'a>> {
        let mut said = match *data {
            Data::TooLarge => Some(self.unseen(name)),
            Data::Raw(json) => return self.raw(json),
            Data::Whole(data) if data.trim_ascii() == b"[DONE]" => Some(Said { marker: true, ..Said::default() }),
            // What cannot be read may well be content: a lone surrogate, NaN.
            Data::Whole(data) => self.json(name, data, look).or_else(|| self.unread(data)),
        };
        // Whatever it holds: the name says it.
        if name == b"error" {
            let said = said.get_or_insert_default();
            (said.error, said.content) = (true, false);
        }
        said
    }

    /// An event whose data begins like JSON and is none that we can read. (What does not begin so is a vendor's small talk,
    /// such as `data: : keepalive`.)
    fn unread<'a>(self, data: &[u8]) -> Option<Said<'a>> {
        let object = matches!(data.trim_ascii().first(), Some(b'{' | b'['));
        (object && self != Form::Opaque).then(|| Said { content: true, ..Said::default() })
    }

    fn json<'a>(self, name: &'a [u8], data: &'a [u8], look: bool) -> Option<Said<'a>> {
        match self {
            Form::Chat => chat::read(data, look),
            Form::Responses => responses::read(name, data),
            Form::Messages => messages::read(name, data),
            Form::Generate => generate::read(data),
            Form::Objects => objects::read(data),
            Form::Events | Form::Opaque => {
                let said = parse(data).map_or_else(Said::default, |root: Root<'a>| Said::new(root));
                Some(Said { content: !said.error, ..said })
            }
        }
    }

    /// An event that is too large to look at: only its name is known, and that it is no small talk.
    fn unseen<'a>(self, name: &[u8]) -> Said<'a> {
        let marker = match self {
            Form::Responses => responses::is_end(name),
            Form::Messages => messages::is_end(name),
            _ => false,
        };
        let error = self == Form::Responses && name == b"response.failed";
        Said { content: !error, error, marker, ..Said::default() }
    }

    /// JSON that stands bare between events: a client of the standard sees nothing in it, but if it is an error it is why
    /// the stream ends.
    fn raw(self, json: &[u8]) -> Option<Said<'_>> {
        let root: Root<'_> = parse(json)?;
        let error = root.is_error();
        Some(if error { Said::new(root) } else { Said { content: true, bare: true, ..Said::default() } })
    }
}

/// `/responses/ID`: a stream that is taken up again.
fn is_one_response(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    segments.next().is_some_and(|id| id.starts_with("resp_")) && segments.next() == Some("responses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_path_and_kind_of_body() {
        use Dialect::{Anthropic, Gemini, Generic, OpenAi};
        for (dialect, path, media, form) in [
            (OpenAi, "/v1/chat/completions", Media::Stream, Form::Chat),
            (OpenAi, "/openai/deployments/x/chat/completions?api-version=1", Media::Stream, Form::Chat),
            (OpenAi, "/v1/completions/", Media::Stream, Form::Chat),
            (OpenAi, "/v1/chat/completions", Media::Unstated, Form::Chat),
            (OpenAi, "/v1/chat/completions", Media::Json, Form::Opaque),
            (OpenAi, "/v1/responses", Media::Stream, Form::Responses),
            (OpenAi, "/v1/responses/resp_1?stream=true", Media::Stream, Form::Responses),
            (OpenAi, "/v1/messages", Media::Stream, Form::Messages),
            (OpenAi, "/v1/images/generations", Media::Stream, Form::Events),
            (OpenAi, "/v1/audio/transcriptions", Media::Text, Form::Opaque),
            (OpenAi, "/v1/audio/speech", Media::Binary, Form::Opaque),
            (OpenAi, "/api/chat", Media::Stream, Form::Objects),
            (Generic, "/api/generate", Media::Stream, Form::Objects),
            (Generic, "/v1/chat/completions", Media::Stream, Form::Events),
            (Anthropic, "/v1/messages", Media::Stream, Form::Messages),
            (Anthropic, "/model/m/invoke-with-response-stream", Media::Stream, Form::Opaque),
            (Anthropic, "/v1/complete", Media::Stream, Form::Events),
            (Gemini, "/v1beta/models/m:streamGenerateContent?alt=sse", Media::Stream, Form::Generate),
            (Gemini, "/v1beta/models/m:streamGenerateContent", Media::Json, Form::Opaque),
            (Gemini, "/v1beta/openai/chat/completions", Media::Stream, Form::Chat),
            (Gemini, "/v1/publishers/anthropic/models/m:streamRawPredict", Media::Stream, Form::Messages),
            (Gemini, "/v1/publishers/mistralai/models/m:streamRawPredict", Media::Stream, Form::Chat),
            (Gemini, "/v1beta/interactions", Media::Stream, Form::Events),
            (Gemini, "/v1beta/models/m:streamGenerateContent", Media::Unstated, Form::Opaque),
            (Gemini, "/v1beta/models/m:streamGenerateContent?key=k&alt=sse", Media::Unstated, Form::Generate),
            (OpenAi, "/api/chat", Media::Text, Form::Opaque),
            (OpenAi, "", Media::Unstated, Form::Opaque),
        ] {
            assert_eq!(Form::of(dialect, path, media), form, "{dialect:?} {path} {media:?}");
        }
    }
}
