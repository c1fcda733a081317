//! The real program on a port of its own, for what only a kernel gives.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::Client;

/// A running Backstop; stopped when dropped.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    logs: Arc<Mutex<String>>,
    _dir: tempfile::TempDir,
}

impl Process {
    /// Start it with this config and nothing of our environment but what is given.
    pub fn start(toml: &str, env: &[(&str, &str)]) -> Process {
        Process::logging("trace", toml, env)
    }

    /// The same with a log of this level, "info" at least.
    pub fn logging(level: &str, toml: &str, env: &[(&str, &str)]) -> Process {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("backstop.toml"), toml).expect("a config file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_backstop"))
            .args(["serve", "--listen", "127.0.0.1:0", "--set", &format!("log.level={level}")])
            .current_dir(dir.path())
            .env_clear()
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("its stderr"));
        let (address, logs) = ready(&mut stderr);
        let logs = Arc::new(Mutex::new(logs));
        let sink = logs.clone();
        std::thread::spawn(move || collect(stderr, &sink));
        Process { child, address, logs, _dir: dir }
    }

    pub async fn client(&self) -> Client {
        Client::over(TcpStream::connect(self.address).await.expect("a connection"))
    }

    /// Everything logged so far.
    pub fn logs(&self) -> String {
        self.logs.lock().unwrap().clone()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// Wait for its end: the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let limit = Instant::now() + Duration::from_secs(20);
        while Instant::now() < limit {
            if let Some(status) = self.child.try_wait().expect("its state") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the line that says it is ready, and all that was said up to it.
fn ready(stderr: &mut impl BufRead) -> (SocketAddr, String) {
    let mut seen = String::new();
    loop {
        let before = seen.len();
        assert!(stderr.read_line(&mut seen).is_ok_and(|n| n > 0), "not ready: {seen}");
        if let Some((_, address)) = seen[before..].split_once("listening on http://") {
            return (address.trim().parse().expect("an address"), seen);
        }
    }
}

fn collect(mut stderr: impl Read, sink: &Mutex<String>) {
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut piece) {
        sink.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}
