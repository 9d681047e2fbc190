//! A TCP proxy between the gateway and its server that cuts connections, on command or after so many bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    /// Bytes of the server that went through.
    carried: AtomicUsize,
    /// As many as these, and the connection is cut that carried the last.
    cut_at: AtomicUsize,
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
            carried: AtomicUsize::new(0),
            cut_at: AtomicUsize::new(usize::MAX),
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
        let at = self.carried() + more;
        self.shared.cut_at.store(at, Ordering::Release);
    }

    /// Whether that has not happened yet.
    pub(crate) fn is_to_cut(&self) -> bool {
        self.shared.cut_at.load(Ordering::Acquire) != usize::MAX
    }

    /// How many bytes of the server went through so far.
    pub(crate) fn carried(&self) -> usize {
        self.shared.carried.load(Ordering::Acquire)
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
        let before = shared.carried.load(Ordering::Acquire);
        let cut_at = shared.cut_at.load(Ordering::Acquire);
        let is_last = cut_at <= before + read;
        let length = read.min(cut_at.saturating_sub(before));
        shared.carried.fetch_add(length, Ordering::AcqRel);
        to.write_all(&buffer[..length]).await?;
        if is_last {
            shared.cut_at.store(usize::MAX, Ordering::Release);
            return Ok(());
        }
    }
}
