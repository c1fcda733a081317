//! A new config without a restart: on SIGHUP, or when the file changes. All of it or nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::Current;
use crate::config::{Sources, load};
use crate::instance::Instance;

/// The file is looked at this often. A look is one `stat`; it also sees a file that was replaced, as editors and
/// Kubernetes do, which watches of a file or a folder see only in part.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Reload whenever asked to, for ever.
pub async fn watch(current: Arc<Current>, sources: Sources, mut hangup: Signal) {
    let mut seen = Stamp::of(sources.path.as_deref());
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            () = sleep(LOOK_EVERY) => {
                let now = Stamp::of(sources.path.as_deref());
                // A file that is gone for a moment is being replaced.
                if now == seen || now.is_none() {
                    continue;
                }
            }
        }
        seen = Stamp::of(sources.path.as_deref());
        reload(&current, &sources);
    }
}

/// Read the config again. A faulty one is reported and changes nothing.
pub fn reload(current: &Current, sources: &Sources) {
    let before = current.load_full();
    let metrics = &before.lasting.metrics;
    match load(sources) {
        Ok(loaded) => {
            let (old, new) = (&before.config, loaded.config);
            if old.server.listen != new.server.listen
                || old.server.max_connections != new.server.max_connections
                || old.log != new.log
            {
                tracing::warn!("server.listen, server.max_connections and [log] take a restart; the rest is in force");
            }
            current.store(Arc::new(Instance::new(Arc::new(new), before.lasting.clone(), Some(&before))));
            metrics.reload(true);
            tracing::info!("config reloaded");
        }
        Err(error) => {
            metrics.reload(false);
            tracing::error!(%error, "the new config is faulty; the old one stays in force");
        }
    }
}

/// What tells one state of a file from another.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    fn of(path: Option<&Path>) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt;
        let data = fs::metadata(path?).ok()?;
        Some(Stamp { modified: data.modified().ok(), length: data.len(), inode: data.ino() })
    }
}
