//! The log: one line an event on stderr, ours only.

use std::io;

use tracing::Metadata;
use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::config::Log;

/// Start to log. Libraries are left out at every level: at `trace` some of them write headers, and keys are in those.
pub(super) fn init(config: Log) {
    let ours = filter_fn(|event: &Metadata<'_>| event.target().starts_with("backstop"));
    let lines = fmt::layer().with_writer(io::stderr).with_target(false);
    let layer = if config.json {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    } else {
        lines.with_ansi(false).boxed()
    };
    let subscriber =
        Registry::default().with(layer.with_filter(ours).with_filter(LevelFilter::from_level(config.level)));
    // Somebody may have set one before us in a test; theirs stays.
    let _ = set_global_default(subscriber);
}
