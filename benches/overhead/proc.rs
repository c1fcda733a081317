//! What the operating system knows of a process, and what it is told of this one.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux.
const TICKS: u64 = 100;

/// Open files for 5,000 streams, each with a socket on either side.
const FILES: usize = 12_000;

/// The processor time a process has used, in user and in kernel mode.
pub struct Usage(u64);

impl Usage {
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        Ok(Self(after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()))
    }

    pub fn since(&self, before: &Self) -> Duration {
        Duration::from_millis((self.0 - before.0) * 1000 / TICKS)
    }
}

/// The resident memory of a process in bytes.
pub fn rss(pid: u32) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<f64>().map_err(io::Error::other)?;
    Ok(kilobytes * 1024.0)
}

/// Keep this process on one core, and let it and its children open files enough. Called before there are threads.
pub fn prepare(core: usize) {
    let me = std::process::id().to_string();
    if cores() < 2 {
        eprintln!("one core only: the proxies share it with the load, so read the CPU columns and not the rates");
    } else if !quiet("taskset", &["-p", "-c", &core.to_string(), &me]) {
        eprintln!("taskset did not work: nothing is kept on a core");
    }
    if open_files().is_ok_and(|files| files < FILES)
        && !quiet("prlimit", &["--pid", &me, &format!("--nofile={FILES}:")])
    {
        quiet("prlimit", &["--pid", &me, "--nofile=8192:"]);
    }
}

/// How many files this process may open.
pub fn open_files() -> io::Result<usize> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    Ok(line.split_whitespace().next().and_then(|soft| soft.parse().ok()).unwrap_or(usize::MAX)) // else "unlimited"
}

/// The same command, kept on one core.
pub fn pinned(command: Command, core: usize) -> Command {
    if cores_of_machine() < 2 {
        return command;
    }
    let mut pinned = Command::new("taskset");
    pinned.arg("-c").arg(core.to_string()).arg(command.get_program()).args(command.get_args());
    pinned.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    pinned
}

fn quiet(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Unlike `cores`, not what this process may use.
fn cores_of_machine() -> usize {
    fs::read_to_string("/proc/cpuinfo").map_or(1, |text| text.matches("processor\t").count())
}

/// The processor, and how busy the machine is before the measurement adds to it.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("processor unknown");
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{} cores, {model}; load average {}", cores_of_machine(), load.split(' ').next().unwrap_or_default())
}
