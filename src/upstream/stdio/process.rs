//! One process from its start to the end of its group.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Fate, Stdio};
use crate::upstream::channel::{Carriage, Hub, Parcel};
use crate::upstream::error::{ChannelEnd, UpstreamError};
use crate::wire::garbled;
use crate::wire::jsonrpc::unmarked;
use crate::wire::line::{Line, Lines, one_line};

/// How much is read at once: what a pipe of Linux holds.
const READ_BYTES: usize = 64 << 10;

/// The longest line of standard error, and of a banner, that is logged. Some lines of a stack trace; arbitrary.
const LOGGED_BYTES_MAX: usize = 4 << 10;

/// How long a process that has closed a stream may take to say with what status it ends: that is the better reason.
/// Arbitrary; one that is about to end takes a few milliseconds.
const STATUS_WAIT: Duration = Duration::from_millis(200);

/// How often a process group is looked for that has outlived its leader: nothing tells of its end.
/// Arbitrary: well below any grace.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long standard error is read after the end: what was started may have inherited it.
/// Arbitrary; what was written before is in the pipe by then.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

/// One process.
pub(super) struct Process {
    last_resort: LastResort,
    server: Arc<Stdio>,
    pid: Option<u32>,
    started: Instant,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Process {
    /// Starts the program of a server; what it says goes to the hub.
    pub(super) fn start(server: &Arc<Stdio>, carriage: Carriage) -> io::Result<Self> {
        let mut child = server.program.command().spawn()?;
        let last_resort = LastResort {
            group: child.id().and_then(group_of),
            carriage,
        };
        let piped = || io::Error::other("a stream is no pipe");
        let stdin = child.stdin.take().ok_or_else(piped)?;
        let stdout = child.stdout.take().ok_or_else(piped)?;
        let stderr = child.stderr.take().ok_or_else(piped)?;
        let (backend, pid) = (&server.backend, child.id());
        tracing::debug!(%backend, pid, "a process of the server is started");
        Ok(Self {
            last_resort,
            server: Arc::clone(server),
            pid,
            started: Instant::now(),
            child,
            stdin,
            stdout,
            stderr,
        })
    }

    /// Carries messages until the process ends or is not wanted any more, then sees to it that nothing of it is left.
    pub(super) async fn carry(self, mut parcels: mpsc::Receiver<Parcel>) {
        let Self {
            server,
            pid,
            started,
            mut child,
            stdin,
            mut stdout,
            mut stderr,
            // After the child, so that it is dropped before.
            mut last_resort,
        } = self;
        let Carriage { hub, end } = &last_resort.carriage;
        let (backend, limits) = (&server.backend, &server.limits);
        let is_over = CancellationToken::new();
        let logging = async {
            tokio::select! {
                () = log_errors(&mut stderr, backend, pid) => {}
                () = async { is_over.cancelled().await; sleep(LAST_WORDS_MAX).await } => {}
            }
        };
        let carrying = async {
            let mut unwritten = None;
            let ended = tokio::select! {
                ended = read(&mut stdout, &mut child, hub, backend, limits.message_bytes_max) => ended,
                ended = write(stdin, &mut parcels, &mut unwritten) => ended,
                () = end.wanted.cancelled() => ChannelEnd::Stopped,
            };
            let was_good = end.was_good.load(Ordering::Acquire);
            let fate = match ended {
                _ if !was_good => Fate::Useless,
                ChannelEnd::Stopped => Fate::Unwanted,
                _ => Fate::Fell,
            };
            server.takes_in(fate, started);
            if !matches!(ended, ChannelEnd::Stopped) {
                let error = crate::observe::chain(&ended);
                tracing::warn!(%backend, pid, error, "a session with the server is over");
            }
            // Before what could not be written is let go: its senders look here for the reason.
            hub.over(ended);
            drop((unwritten, parcels));
            // What it still says would fill its pipe and keep it from ending.
            tokio::select! {
                () = stop(&mut child, last_resort.group, limits.stop_grace) => {}
                () = drain(&mut stdout) => {}
            }
            is_over.cancel();
        };
        tokio::join!(carrying, logging);
        // Somebody else may have its number from now on.
        last_resort.group = None;
    }
}

/// Sees to it that nothing of a process is left and nobody waits for it, however its task ends: it may be dropped with
/// all others when time is up, or panic.
struct LastResort {
    /// The process group, until nothing of it is left.
    group: Option<Pid>,
    carriage: Carriage,
}

impl Drop for LastResort {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // If there is nobody any more, that is as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let Carriage { hub, end } = &self.carriage;
        // It was said before, unless this comes early.
        hub.over(ChannelEnd::Stopped);
        end.done.cancel();
    }
}

/// The process group that this process leads.
fn group_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.try_into().ok()?)
}

/// Reads messages up to the end of the process, or of its output. The process is watched as well: what it started may
/// have its output too, and keep that open. Cancelled, it may lose a message: then the channel is over.
async fn read(
    stdout: &mut ChildStdout,
    child: &mut Child,
    hub: &Hub,
    backend: &str,
    bytes_max: usize,
) -> ChannelEnd {
    let mut lines = Lines::new(bytes_max);
    let mut last: Option<Last> = None;
    loop {
        while let Some(line) = lines.next_line() {
            match line {
                // Servers greet, and libraries of theirs print.
                Line::Whole(line) if !may_be_message(&line) => {
                    let text = String::from_utf8_lossy(&line[..line.len().min(LOGGED_BYTES_MAX)]);
                    tracing::debug!(backend, %text, "a line of the server that is no message is skipped");
                }
                Line::Whole(line) => hub.arrived(line).await,
                Line::TooLong => return ChannelEnd::TooLarge { bytes_max },
            }
        }
        if let Some(Last { status, .. }) = last.take_if(|last| last.bytes == 0) {
            return exited(Some(status));
        }
        let filled = tokio::select! {
            filled = fill(stdout, &mut lines) => filled,
            status = child.wait(), if last.is_none() => {
                // All that it ever wrote is in the pipe now.
                let bytes = ioctl_fionread(&*stdout).unwrap_or(0);
                last = Some(Last { bytes, status });
                continue;
            }
        };
        match (filled, &mut last) {
            (Ok(0), None) => return exited(timeout(STATUS_WAIT, child.wait()).await.ok()),
            (Ok(0), Some(last)) => last.bytes = 0,
            (Ok(count), Some(last)) => last.bytes = last.bytes.saturating_sub(count as u64),
            (Ok(_), None) => {}
            (Err(error), _) => return ChannelEnd::Broken(error.into()),
        }
    }
}

/// What is left of a process that has ended.
struct Last {
    /// How much of its output was not read yet.
    bytes: u64,
    status: io::Result<ExitStatus>,
}

/// How a process ended; nothing if only its output did.
fn exited(status: Option<io::Result<ExitStatus>>) -> ChannelEnd {
    ChannelEnd::Exited(match status {
        Some(Ok(status)) => status.to_string().into(),
        Some(Err(error)) => error.into(),
        None => "it closed its output and goes on".into(),
    })
}

/// Whether it is JSON and not a mere value, for `[INFO]` begins many a line of a log, or was meant as an answer: whoever
/// waits for that has to learn that it cannot be read.
fn may_be_message(line: &[u8]) -> bool {
    let line = unmarked(line);
    let is_json = || serde_json::from_slice::<&RawValue>(line).is_ok();
    matches!(line.first(), Some(b'{' | b'[')) && (is_json() || garbled::answered(line).is_some())
}

/// Reads more of a stream. Cancel-safe: what it was cancelled before was not read.
async fn fill(from: &mut (impl AsyncRead + Unpin), lines: &mut Lines) -> io::Result<usize> {
    lines.buffer().reserve(READ_BYTES);
    from.read_buf(lines.buffer()).await
}

/// Writes messages until the process does not take them; where the end of the one is told that it did not take is left
/// in `unwritten`. When nobody has any more it only waits. Cancelled, it may leave a message half
/// written: then the channel is over.
async fn write(
    mut stdin: ChildStdin,
    parcels: &mut mpsc::Receiver<Parcel>,
    unwritten: &mut Option<oneshot::Sender<Result<(), UpstreamError>>>,
) -> ChannelEnd {
    while let Some(parcel) = parcels.recv().await {
        let Some((message, done)) = parcel.go() else {
            continue;
        };
        if let Err(error) = stdin.write_all(&one_line(message)).await {
            *unwritten = Some(done);
            // If it is about to end, that is seen on the other side meanwhile.
            sleep(STATUS_WAIT).await;
            return ChannelEnd::Broken(error.into());
        }
        // Whoever sent it may have gone.
        let _ = done.send(Ok(()));
    }
    // Nothing more is written; what the server still says is read.
    drop(stdin);
    std::future::pending().await
}

/// Logs standard error to its end. Cancelled, it may lose a line, which nobody waits for any longer.
async fn log_errors(stderr: &mut ChildStderr, backend: &str, pid: Option<u32>) {
    let mut lines = Lines::new(LOGGED_BYTES_MAX);
    loop {
        while let Some(line) = lines.next_line() {
            match line {
                Line::Whole(line) => {
                    let text = String::from_utf8_lossy(&line);
                    tracing::info!(backend, pid, %text, "the server says");
                }
                Line::TooLong => tracing::info!(backend, pid, "the server says a very long line"),
            }
        }
        if !matches!(fill(stderr, &mut lines).await, Ok(1..)) {
            return;
        }
    }
}

/// Reads what nobody wants any more. Cancel-safe: it has nothing to lose.
async fn drain(stdout: &mut ChildStdout) {
    let mut unwanted = BytesMut::with_capacity(READ_BYTES);
    while matches!(stdout.read_buf(&mut unwanted).await, Ok(1..)) {
        unwanted.clear();
    }
    std::future::pending().await
}

/// The longest that a process and its group may take to end, at this grace.
#[must_use]
pub fn stop_max(grace: Duration) -> Duration {
    // By itself, asked to, and what it started.
    grace * 3
}

/// Ends a process whose input is closed, and its group. Cancelled, it would leave them running: nothing it is raced with
/// ever ends.
async fn stop(child: &mut Child, group: Option<Pid>, grace: Duration) {
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    if timeout(grace, child.wait()).await.is_err() {
        signal(Signal::TERM);
        if timeout(grace, child.wait()).await.is_err() {
            signal(Signal::KILL);
            // Killed, it cannot but end.
            let _ = child.wait().await;
        }
    }
    // What it started may outlive it.
    let Some(group) = group.filter(|group| test_kill_process_group(*group).is_ok()) else {
        return;
    };
    signal(Signal::TERM);
    let is_gone = async {
        while test_kill_process_group(group).is_ok() {
            sleep(LOOK_EVERY).await;
        }
    };
    if timeout(grace, is_gone).await.is_err() {
        signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::upstream::channel::Channel;
    use crate::upstream::stdio::{ProcessLimits, Program};

    const STARTS_ANOTHER: &str =
        r#"sleep 600 & echo '{"jsonrpc":"2.0","method":"notifications/up"}'; wait"#;

    fn server() -> Arc<Stdio> {
        let program = Program {
            command: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), STARTS_ANOTHER.to_owned()],
            env: Vec::new(),
            pass_env: Vec::new(),
            cwd: None,
        };
        let limits = ProcessLimits {
            message_bytes_max: 1000,
            send_timeout: Duration::from_secs(1),
            stop_grace: Duration::from_secs(60),
        };
        Arc::new(Stdio::new("program", program, limits, TaskTracker::new()))
    }

    /// Whether a process of this group is more than what its parent has yet to look at.
    fn is_alive(group: u32) -> bool {
        let stats = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("stat")).ok());
        stats.into_iter().any(|stat| {
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let fields: Vec<&str> = fields.split_whitespace().collect();
            fields[0] != "Z" && fields[2] == group.to_string()
        })
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_process_whose_task_is_dropped() {
        let (channel, carriage, parcels) = Channel::queued(Duration::from_secs(1));
        let process = Process::start(&server(), carriage).unwrap();
        let group = process.pid.unwrap();
        let mut general = channel.general().unwrap();
        let mut carrying = Box::pin(process.carry(parcels));
        let heard = tokio::select! {
            () = &mut carrying => None,
            message = general.next() => message,
        };
        assert!(heard.is_some() && is_alive(group), "it has started another");
        drop(carrying);
        assert!(channel.is_over());
        channel.close().await;
        let is_gone = async {
            while is_alive(group) {
                sleep(LOOK_EVERY).await;
            }
        };
        let waited = timeout(Duration::from_secs(30), is_gone).await;
        assert!(waited.is_ok(), "what it started lives on");
    }
}
