//! A TCP proxy between the gateway and its server that cuts connections, on command or after so many bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// Counts the cuts: a connection lasts until the next.
    cuts: watch::Sender<u64>,
    /// New connections are closed at once.
    is_closed: AtomicBool,
    meter: Mutex<Meter>,
}

/// Counts the bytes of the server over all connections.
#[derive(Debug, Default)]
struct Meter {
    /// So many went through.
    carried: usize,
    /// As many as these, and the connection is cut that carries the last.
    cut_at: Option<usize>,
}

impl Meter {
    /// How many of so many that have come go through, and whether their connection is cut then.
    fn count(&mut self, bytes: usize) -> (usize, bool) {
        let all = self.carried + bytes;
        let cut_at = self.cut_at.take_if(|at| *at <= all);
        let reached = cut_at.unwrap_or(all);
        let through = reached - self.carried;
        self.carried = reached;
        (through, cut_at.is_some())
    }
}

impl Shared {
    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap()
    }
}

/// A running proxy. Dropped, it ends with all its connections.
#[derive(Debug)]
pub(crate) struct Cutter {
    shared: Arc<Shared>,
    addr: SocketAddr,
    _end: DropGuard,
}

impl Cutter {
    /// In front of a server, on a free port.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            cuts: watch::channel(0).0,
            is_closed: AtomicBool::new(false),
            meter: Mutex::default(),
        });
        let (end, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting = accept(listener, Arc::clone(&shared), end.clone(), tasks.clone());
        tasks.spawn(accepting);
        Self {
            shared,
            addr,
            _end: end.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Cuts every connection that is open.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on new connections are closed at once, or are not.
    pub(crate) fn close(&self, is_closed: bool) {
        self.shared.is_closed.store(is_closed, Ordering::Release);
    }

    /// Cuts, once, the connection that carries the server's last of `more` bytes from now on.
    pub(crate) fn cut_after(&self, more: usize) {
        let mut meter = self.shared.meter();
        meter.cut_at = Some(meter.carried + more);
    }

    /// Whether that has not happened yet.
    pub(crate) fn is_to_cut(&self) -> bool {
        self.shared.meter().cut_at.is_some()
    }

    /// How many bytes of the server went through so far.
    pub(crate) fn carried(&self) -> usize {
        self.shared.meter().carried
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    end: CancellationToken,
    tasks: TaskTracker,
) {
    while let Some(Ok((client, _))) = end.run_until_cancelled(listener.accept()).await {
        if shared.is_closed.load(Ordering::Acquire) {
            continue;
        }
        let (shared, end) = (Arc::clone(&shared), end.clone());
        let mut cuts = shared.cuts.subscribe();
        tasks.spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                _ = cuts.changed() => {}
                _ = carry(client, &shared) => {}
            }
        });
    }
}

async fn carry(client: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let server = TcpStream::connect(shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        copied = copy(&mut from_client, &mut to_server) => copied.map(|_| ()),
        carried = carry_back(from_server, to_client, shared) => carried,
    }
}

async fn carry_back(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let (through, is_cut) = shared.meter().count(read);
        to.write_all(&buffer[..through]).await?;
        if is_cut {
            return Ok(());
        }
    }
}

/// Whoever comes first to the last byte is cut there, and nobody after it.
#[test]
fn one_connection_is_cut_and_none_carries_too_much() {
    for bytes in 1..20 {
        let mut meter = Meter::default();
        assert_eq!(meter.count(5), (5, false));
        meter.cut_at = Some(45);
        let whole = 39 / bytes;
        for _ in 0..whole {
            assert_eq!(meter.count(bytes), (bytes, false));
        }
        assert_eq!(meter.count(bytes), (40 - whole * bytes, true));
        assert_eq!((meter.carried, meter.cut_at), (45, None));
        assert_eq!(meter.count(bytes), (bytes, false));
    }
}
