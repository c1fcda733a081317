//! A real redis-server on a port of its own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running redis-server that keeps nothing on disk; killed when dropped.
pub struct RedisServer {
    child: Child,
    pub port: u16,
    options: Vec<String>,
    dir: tempfile::TempDir,
}

impl RedisServer {
    /// `None`: there is none on this machine, and that is no failure unless `BACKSTOP_TESTS_NEED_REDIS=1`.
    pub fn start() -> Option<RedisServer> {
        RedisServer::with(&[])
    }

    pub fn with(options: &[&str]) -> Option<RedisServer> {
        if let Err(error) = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status() {
            let needed = std::env::var("BACKSTOP_TESTS_NEED_REDIS").is_ok_and(|value| value == "1");
            assert!(!needed, "redis-server: {error}");
            println!("left out: no redis-server on this machine");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let child = spawn(port, &options, &dir);
        Some(RedisServer { child, port, options, dir })
    }

    /// The config that uses it.
    pub fn toml(&self) -> String {
        toml_of(&format!("redis://127.0.0.1:{}/0", self.port))
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    pub fn restart(&mut self) {
        self.child = spawn(self.port, &self.options, &self.dir);
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the signal is sent");
    }

    /// The beginning of its answer to a command.
    pub fn ask(&self, command: &str) -> String {
        ask(self.port, command).expect("an answer")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn toml_of(url: &str) -> String {
    format!("[redis]\nurl = \"{url}\"\n")
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn spawn(port: u16, options: &[String], dir: &tempfile::TempDir) -> Child {
    let child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(options)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts");
    let limit = Instant::now() + Duration::from_secs(10);
    while ask(port, "PING").is_err() {
        assert!(Instant::now() < limit, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn ask(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut piece = [0; 4096];
    let read = stream.read(&mut piece)?;
    Ok(String::from_utf8_lossy(&piece[..read]).into_owned())
}
