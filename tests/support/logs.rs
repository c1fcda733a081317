//! What is logged, caught at the lowest level. As in the program, libraries are left out.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

/// Everything logged on this thread while it lives.
#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    pub fn catch() -> (Logs, DefaultGuard) {
        // While there is one subscriber only, tracing asks whichever thread logs a line first whether anybody wants it, and
        // remembers the answer for all: with a second one it asks each time.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(Registry::default()));
        let logs = Logs::default();
        let ours = filter_fn(|event| event.target().starts_with("backstop"));
        let lines = fmt::layer().with_writer(logs.clone()).with_ansi(false).with_filter(ours);
        (logs, set_default(Registry::default().with(lines)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Logs;

    fn make_writer(&'a self) -> Logs {
        self.clone()
    }
}
