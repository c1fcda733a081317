//! Streams, watched as they pass: whether anything of worth has been said, whether it went wrong, whether it is whole,
//! and how to tell the client in the stream's own form if it is not.

mod chat;
mod form;
mod generate;
mod messages;
mod objects;
mod responses;
mod root;
mod said;
mod tell;

use crate::wire::dialect::Dialect;
use crate::wire::dialect::usage::{Counts, Usage};
use crate::wire::headers::Media;
use crate::wire::sse::{Data, Event};
use crate::wire::{ndjson, sse};

use form::Form;
use said::{Said, Turns};
use tell::Teller;

/// Bytes of an error event that are kept. A longer one is an error that says nothing.
const MAX_ERROR: usize = 64 * 1024;
/// Bytes of a model's name that are kept.
const MAX_MODEL: usize = 128;

/// How far a stream has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has not.
    No,
    /// Every choice has ended, and only what comes after that is missing: token counts, the marker.
    Stopped,
    /// Its last event has come, whether that tells a good end or not.
    Marker,
}

/// An error that the stream tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamError {
    /// The JSON of the event; empty if it is too long or none.
    pub data: Vec<u8>,
    /// Content had come before it.
    pub after_content: bool,
}

/// The facts of one stream, kept up to date with each piece that passes.
///
/// Bounds: one event of at most [`sse::MAX_EVENT`] is held if it comes in pieces, and the error, if there is one. Between
/// events a watch holds less than 2 KiB.
#[derive(Debug)]
pub struct Watch {
    form: Form,
    scan: Scan,
    facts: Facts,
}

#[derive(Debug)]
enum Scan {
    Events(Box<sse::Scanner>),
    Lines(ndjson::Scanner),
    /// Not looked into; whether anything but blanks has come.
    Opaque(bool),
}

impl Watch {
    /// A watch for the answer to a call of this path, in this dialect, with a body of this kind.
    pub fn new(dialect: Dialect, path: &str, media: Media) -> Watch {
        let form = Form::of(dialect, path, media);
        let scan = match form {
            Form::Opaque => Scan::Opaque(false),
            Form::Objects => Scan::Lines(ndjson::Scanner::default()),
            _ => Scan::Events(Box::default()),
        };
        Watch { form, scan, facts: Facts::default() }
    }

    /// Takes the next piece. Returns how many of its bytes stand before the last point between two events: what comes
    /// after belongs to one whose end is still to come. (Of a stream that is not looked into: all of them.)
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let skipped = self.recognise(bytes);
        let bytes = &bytes[skipped..];
        let Watch { form, scan, facts } = self;
        skipped
            + match scan {
                Scan::Events(scanner) => scanner.feed(bytes, |event| facts.event(*form, &event)),
                Scan::Lines(scanner) => scanner.feed(bytes, |event| facts.event(*form, &event)),
                Scan::Opaque(filled) => {
                    *filled |= !bytes.trim_ascii().is_empty();
                    bytes.len()
                }
            }
    }

    /// The body has ended well in HTTP: a last event without its blank line counts as well. (Some servers end so; and
    /// bare JSON has no other end.) [`Self::is_between`] and [`Self::closing`] stay as they were.
    pub fn finish(&mut self) {
        let Watch { form, scan, facts } = self;
        match scan {
            Scan::Events(scanner) => scanner.finish(|event| facts.event(*form, &event)),
            Scan::Lines(scanner) => scanner.finish(|event| facts.event(*form, &event)),
            Scan::Opaque(_) => {}
        }
    }

    /// `/api/chat` is a name that many a server gives to events of its own: what begins like no object is of that kind.
    /// Returns how many of the bytes are blanks before that: such as came in earlier pieces are not seen again either.
    fn recognise(&mut self, bytes: &[u8]) -> usize {
        let begun = bytes.trim_ascii_start();
        if let Scan::Lines(scanner) = &self.scan
            && scanner.is_blank()
            && begun.first().is_some_and(|first| *first != b'{')
        {
            (self.form, self.scan) = (Form::Events, Scan::Events(Box::default()));
            return bytes.len() - begun.len();
        }
        0
    }

    /// The form is known, so that an end without [`Self::is_complete`] is a loss, and what comes before content can be
    /// held back. Otherwise the first event counts as content and any end as a good one.
    pub fn is_known(&self) -> bool {
        // Objects where events were expected: a server with a form of its own.
        let other = self.facts.bare && !self.facts.events;
        !other && !matches!(self.form, Form::Events | Form::Opaque)
    }

    /// Something that is meant for the client has come: text, thoughts, a part of a tool call, a refusal, sound, pictures.
    /// A stream that is not looked into: any byte.
    pub fn has_content(&self) -> bool {
        self.facts.content || matches!(self.scan, Scan::Opaque(true))
    }

    /// The first error that the stream told.
    pub fn error(&self) -> Option<&StreamError> {
        self.facts.error.as_deref()
    }

    /// How far it has come to its end. Look at [`Self::error`] first: a marker may come after one.
    pub fn ended(&self) -> Ended {
        let Facts { marker, turns, unseen, .. } = &self.facts;
        match (*marker, turns.all_done(), self.form) {
            (true, ..) | (_, true, Form::Generate) => Ended::Marker,
            // It may have stood in the event that was too large to look at.
            (_, _, Form::Generate) if *unseen => Ended::Stopped,
            (_, true, _) => Ended::Stopped,
            (_, false, _) => Ended::No,
        }
    }

    /// Nothing more is to be expected: the marker has come, or an error, which ends a stream as well. A reason to stop is
    /// none yet where it can stand on every chunk (Gemini).
    pub fn is_over(&self) -> bool {
        self.facts.marker || self.facts.error.is_some()
    }

    /// If the body ends here, the answer is whole: no error, and the end was told (or the form has none that is known).
    pub fn is_complete(&self) -> bool {
        let ended = !self.is_known() || self.ended() != Ended::No;
        ended && self.error().is_none()
    }

    /// It came to a good and natural end, and said nothing.
    pub fn is_empty_answer(&self) -> bool {
        self.is_known() && self.is_complete() && !self.facts.content && !self.facts.turns.explained
    }

    /// It ended because the provider could not use what the model wrote (a malformed tool call).
    pub fn is_malformed(&self) -> bool {
        self.facts.turns.malformed
    }

    /// Nothing but comments and blanks has come.
    pub fn is_empty(&self) -> bool {
        match &self.scan {
            Scan::Events(scanner) => scanner.is_blank(),
            Scan::Lines(scanner) => scanner.is_blank(),
            Scan::Opaque(filled) => !filled,
        }
    }

    /// The tokens that the stream has told of so far.
    pub fn usage(&self) -> Option<Usage> {
        self.facts.counts.usage()
    }

    /// The model that answers.
    pub fn model(&self) -> Option<&str> {
        self.facts.model.as_deref()
    }

    /// Between two events, so that a line of our own does no harm. Never in a stream that is not looked into.
    pub fn is_between(&self) -> bool {
        match &self.scan {
            Scan::Events(scanner) => scanner.is_between(),
            Scan::Lines(scanner) => scanner.is_between(),
            Scan::Opaque(_) => false,
        }
    }

    /// An empty line does no harm here: between two server-sent events. (Objects that come one a line take none.)
    pub fn takes_beat(&self) -> bool {
        matches!(self.scan, Scan::Events(_)) && self.is_between()
    }

    /// What ends an event that was cut off, so that one of ours stands by itself: send it before [`Self::error_event`].
    pub fn closing(&self) -> &'static [u8] {
        match &self.scan {
            Scan::Events(scanner) => scanner.closing(),
            Scan::Lines(scanner) => scanner.closing(),
            Scan::Opaque(_) => b"",
        }
    }

    /// An error of ours, in the form on which SDKs raise. Empty: nothing can be told in this stream; break the connection
    /// off instead of ending it.
    pub fn error_event(&self, kind: &str, message: &str) -> Vec<u8> {
        self.teller().own(kind, message)
    }

    /// An upstream's error answer (content encoding undone) as an event, with its own words, for a client that has had its
    /// 200 already. Empty as in [`Self::error_event`].
    pub fn from_error_body(&self, status: u16, body: &[u8]) -> Vec<u8> {
        self.teller().upstreams(status, body)
    }

    fn teller(&self) -> Teller {
        let newline = match &self.scan {
            Scan::Events(scanner) => scanner.newline(),
            _ => "\n",
        };
        let sequence = self.facts.sequence.map_or(0, |last| last.saturating_add(1));
        Teller { form: self.form, newline, sequence }
    }
}

/// What the events have said so far.
#[derive(Debug, Default)]
struct Facts {
    content: bool,
    marker: bool,
    /// An event has come; JSON that is none has come.
    events: bool,
    bare: bool,
    /// The last event was too large to look at.
    unseen: bool,
    turns: Turns,
    counts: Counts,
    sequence: Option<u64>,
    model: Option<Box<str>>,
    error: Option<Box<StreamError>>,
}

impl Facts {
    fn event(&mut self, form: Form, event: &Event<'_>) {
        self.events |= !matches!(event.data, Data::Raw(_));
        let Some(said) = form.read(event.name, &event.data, !self.content) else {
            return;
        };
        self.unseen = event.data == Data::TooLarge;
        if said.error {
            self.failed(&event.data);
        }
        self.take(said);
    }

    fn failed(&mut self, data: &Data<'_>) {
        let data: &[u8] = match *data {
            Data::Whole(data) | Data::Raw(data) if data.len() <= MAX_ERROR => data,
            _ => b"",
        };
        let after_content = self.content;
        self.error.get_or_insert_with(|| Box::new(StreamError { data: data.to_vec(), after_content }));
    }

    fn take(&mut self, said: Said<'_>) {
        self.content |= said.content && !said.error;
        self.marker |= said.marker;
        self.bare |= said.bare;
        self.turns.join(said.turns);
        if let Some(counts) = said.counts {
            self.counts.merge(counts);
        }
        self.sequence = said.sequence.or(self.sequence);
        if self.model.is_none() {
            self.model = said.model.filter(|m| !m.is_empty() && m.len() <= MAX_MODEL).map(|m| m.into_owned().into());
        }
    }
}

#[cfg(test)]
mod tests;
