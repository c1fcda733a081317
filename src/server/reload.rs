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
    let sources = Arc::new(sources);
    let mut seen = stamp(&sources).await;
    let mut changing = None;
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            () = sleep(LOOK_EVERY) => {
                let now = stamp(&sources).await;
                // A file that is gone for a moment is being replaced; one that still changes is being written.
                let settled = now == changing;
                changing = now.clone();
                if now == seen || now.is_none() || !settled {
                    continue;
                }
            }
        }
        seen = stamp(&sources).await;
        let (current, sources) = (current.clone(), sources.clone());
        off_the_runtime(move || reload(&current, &sources)).await;
    }
}

/// A file system may take its time, or never answer: no connection waits for that.
async fn off_the_runtime<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

async fn stamp(sources: &Arc<Sources>) -> Option<Stamp> {
    let sources = sources.clone();
    off_the_runtime(move || Stamp::of(sources.path.as_deref())).await
}

/// Read the config again. A faulty one is reported and changes nothing.
pub fn reload(current: &Current, sources: &Sources) {
    let before = current.load_full();
    let metrics = &before.lasting.metrics;
    let loaded = check_file(sources.path.as_deref()).and_then(|()| load(sources).map_err(|error| error.to_string()));
    match loaded {
        Ok(loaded) => {
            let (old, new) = (&before.config, loaded.config);
            if old.server.listen != new.server.listen
                || old.server.max_connections != new.server.max_connections
                || old.server.state_dir != new.server.state_dir
                || old.idempotency.durable != new.idempotency.durable
                || old.redis != new.redis
                || old.log != new.log
            {
                tracing::warn!(
                    "server.listen, server.max_connections, server.state_dir, idempotency.durable, [redis] and [log] take a \
                     restart; the rest is in force"
                );
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

/// A pipe would be waited for, and an emptied file would put all defaults in force: neither is what a reload means.
fn check_file(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let told = |why: &str| format!("{}: {why}", path.display());
    let data = fs::metadata(path).map_err(|error| told(&error.to_string()))?;
    if !data.is_file() {
        return Err(told("it is no regular file, and only such are read again"));
    }
    let text = fs::read(path).map_err(|error| told(&error.to_string()))?;
    if text.trim_ascii().is_empty() {
        return Err(told("it is empty; to go back to the defaults, restart without it"));
    }
    Ok(())
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_with_something_in_it_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backstop.toml");
        assert!(check_file(Some(&file)).is_err(), "gone");
        fs::write(&file, " \n").unwrap();
        assert!(check_file(Some(&file)).unwrap_err().contains("empty"));
        assert!(check_file(Some(dir.path())).unwrap_err().contains("regular"));
        fs::write(&file, "[retry]\n").unwrap();
        assert!(check_file(Some(&file)).is_ok() && check_file(None).is_ok());
    }
}
