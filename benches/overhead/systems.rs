//! The systems that are compared: how each is configured and started.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::proc;

/// The core of the proxies, and that of the load and the stub.
pub const PROXY_CORE: usize = 0;
pub const LOAD_CORE: usize = 1;

/// A running system; its process ends with it.
pub struct System {
    pub name: &'static str,
    pub address: SocketAddr,
    pub path: &'static str,
    /// From the start of the process to the first connection it takes.
    pub startup: Option<Duration>,
    process: Option<(Child, TempDir)>,
}

impl System {
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|(child, _)| child.id())
    }

    fn direct(stub: SocketAddr) -> Self {
        Self { name: "direct", address: stub, path: "/v1/chat/completions", startup: None, process: None }
    }

    fn proxy(
        name: &'static str,
        path: &'static str,
        command: impl FnOnce(&Path, SocketAddr) -> io::Result<Command>,
    ) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = proc::pinned(command(folder.path(), address)?, PROXY_CORE);
        let log = std::fs::File::create(folder.path().join("log"))?;
        let start = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        while TcpStream::connect(address).is_err() {
            if child.try_wait()?.is_some() || start.elapsed() > Duration::from_secs(10) {
                let log = std::fs::read_to_string(folder.path().join("log"))?;
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other(format!("{name} did not start: {log}")));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Self { name, address, path, startup: Some(start.elapsed()), process: Some((child, folder)) })
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Start every system there is on this machine, in front of `stub`.
pub fn start_all(stub: SocketAddr) -> io::Result<Vec<System>> {
    let mut systems = vec![System::direct(stub)];
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok() {
        systems.push(System::proxy("nginx", "/v1/chat/completions", |folder, address| nginx(folder, address, stub))?);
    } else {
        eprintln!("nginx is not installed (Debian: nginx-light); comparing with direct only");
    }
    systems.push(System::proxy("backstop", "/openai/v1/chat/completions", |folder, address| {
        backstop(folder, address, stub)
    })?);
    Ok(systems)
}

/// nginx as a streaming reverse proxy: one process, connections kept on both sides, nothing logged.
fn nginx(folder: &Path, address: SocketAddr, stub: SocketAddr) -> io::Result<Command> {
    let config = folder.join("nginx.conf");
    let here = folder.display();
    std::fs::write(
        &config,
        format!(
            "daemon off;
            master_process off;
            worker_processes 1;
            pid {here}/pid;
            error_log {here}/error.log;
            events {{ worker_connections 12000; }}
            http {{
                access_log off;
                client_body_temp_path {here}/body;
                proxy_temp_path {here}/proxy;
                keepalive_requests 1000000000;
                tcp_nodelay on;
                upstream stub {{ server {stub}; keepalive 1024; keepalive_requests 1000000000; }}
                server {{
                    listen {address};
                    location / {{
                        proxy_pass http://stub;
                        proxy_http_version 1.1;
                        proxy_set_header Connection \"\";
                        proxy_buffering off;
                        proxy_read_timeout 600s;
                    }}
                }}
            }}"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(config).arg("-e").arg(folder.join("error.log"));
    Ok(command)
}

/// Backstop as shipped, but for a log that tells failures only.
fn backstop(folder: &Path, address: SocketAddr, stub: SocketAddr) -> io::Result<Command> {
    let config = folder.join("backstop.toml");
    let state = folder.join("state");
    std::fs::write(
        &config,
        format!(
            "[server]\nstate_dir = {state:?}\n[log]\nlevel = \"warn\"\n[upstreams.openai]\nbase_url = \"http://{stub}\"\n"
        ),
    )?;
    let mut command = Command::new(backstop_binary());
    command
        .arg("serve")
        .arg("--config")
        .arg(config)
        .arg("--listen")
        .arg(address.to_string())
        .env("TOKIO_WORKER_THREADS", "1");
    Ok(command)
}

/// The one that cargo has just built, unless `$BACKSTOP_BIN` names another.
fn backstop_binary() -> OsString {
    std::env::var_os("BACKSTOP_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_backstop").into())
}

/// The versions and the machine, in one line.
pub fn environment() -> String {
    let version = |binary: OsString, arg| match Command::new(binary).arg(arg).output() {
        Ok(output) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned(),
        Err(_) => "not installed".to_owned(),
    };
    let (backstop, nginx) = (version(backstop_binary(), "--version"), version("nginx".into(), "-v"));
    format!("{backstop}; {}; {}", nginx.trim_start_matches("nginx version: "), proc::machine())
}
