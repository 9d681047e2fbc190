//! Child processes and what they cost: CPU time and resident memory, as the kernel counts them.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// Lifts the limit of open files as far as it may be lifted; children inherit it.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        return limit.current.unwrap_or(0);
    }
    limit.maximum.unwrap_or(u64::MAX)
}

pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A child that ends with this program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Lines of standard error are read by a thread of their own, so that the child never waits for it.
    lines: std::sync::mpsc::Receiver<String>,
}

impl Drop for Process {
    /// Asks first: a killed nginx leaves its workers behind.
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..200 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = std::io::BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that begins with `prefix` and returns the rest of it.
    pub(crate) fn says(&self, prefix: &str) -> String {
        let mut said = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(Duration::from_secs(20)) else {
                panic!("a child did not say {prefix:?}:\n{said}");
            };
            if let Some((_, rest)) = line.split_once(prefix) {
                return rest.trim().to_owned();
            }
            said += &line;
            said.push('\n');
        }
    }

    /// CPU time so far, of the process and of its children.
    pub(crate) fn cpu(&self) -> Duration {
        let own = self.child.id();
        let children = processes()
            .into_iter()
            .filter(|pid| parent(*pid) == Some(own));
        let ticks: u64 = children.chain([own]).filter_map(ticks).sum();
        Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Open files.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The fields of /proc/PID/stat after the name, which may hold spaces.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// User and system time (fields 14 and 15 of the whole line).
fn ticks(pid: u32) -> Option<u64> {
    let fields = stat(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}
