//! One port: connections, told apart by their first byte.
//!
//! | first byte | protocol |
//! |---|---|
//! | 0 | `root://`: the handshake of XRootD, which may go on to TLS itself |
//! | 22 | TLS, with HTTP/2 (gRPC among it) or HTTP/1.1 inside |
//! | other | HTTP/2 or HTTP/1.1 |
//!
//! 1. A connection that says nothing is closed after `FIRST_BYTE_WAIT`.
//! 2. There are never more connections than allowed: those above are closed at once.
//! 3. Nothing that a client does ends the loop; running out of file descriptors makes it pause.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::workers::Workers;

/// How long a connection may say nothing before it has said anything, and TLS may take to begin.
const FIRST_BYTE_WAIT: Duration = Duration::from_secs(30);
/// How long to wait before accepting again where the system is short of something.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of HTTP/1.1 headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
const FIRST_OF_ROOT: u8 = 0;
const FIRST_OF_TLS: u8 = 22;

/// Who is at the other end of a connection; HTTP and gRPC find it among a request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where they are.
    pub address: SocketAddr,
    /// Whether nobody listens in.
    pub is_encrypted: bool,
}

/// Serves a connection of `root://` to its end, elsewhere, and keeps its slot until then.
pub type ServeRoot = Box<dyn Fn(TcpStream, ConnectionSlot) -> io::Result<()> + Send + Sync>;

/// What connections are handed to.
pub struct Protocols {
    /// `root://`.
    pub root: ServeRoot,
    /// HTTP and gRPC.
    pub http: Router,
    /// Threads for these.
    pub http_workers: Arc<Workers>,
    /// What encrypts HTTP and gRPC; none if they cannot be encrypted.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether HTTP and gRPC must be encrypted.
    pub is_tls_required: bool,
    /// Connections at once.
    pub connections_max: usize,
    /// How many there were and are.
    pub counts: Arc<ConnectionCounts>,
}

/// How many connections there were, and are.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    accepted: AtomicU64,
    closed: AtomicU64,
}

impl ConnectionCounts {
    /// Connections since the start.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub fn open(&self) -> u64 {
        let closed = self.closed.load(Ordering::Acquire);
        self.accepted().saturating_sub(closed)
    }
}

/// A connection's slot among those that there may be; counts it for as long as it lives.
pub struct ConnectionSlot {
    counts: Arc<ConnectionCounts>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.counts.closed.fetch_add(1, Ordering::Release);
    }
}

/// Accepts connections until it is dropped.
pub async fn accept(listener: TcpListener, protocols: Arc<Protocols>) {
    let slots = Arc::new(Semaphore::new(protocols.connections_max.min(Semaphore::MAX_PERMITS)));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&slots).try_acquire_owned() else {
            tracing::warn!(%address, "closed at once: there are limits.connections connections");
            continue;
        };
        protocols.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let slot = ConnectionSlot { counts: Arc::clone(&protocols.counts), _permit: permit };
        let protocols = Arc::clone(&protocols);
        tokio::spawn(async move {
            if let Err(error) = serve(stream, address, slot, &protocols).await {
                tracing::debug!(%address, %error, "connection lost");
            }
        });
    }
}

async fn pause_after(error: &io::Error) {
    // A client that is gone again is no reason to wait.
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
        tracing::error!(%error, "cannot accept connections");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    slot: ConnectionSlot,
    protocols: &Protocols,
) -> io::Result<()> {
    // Answers are written whole: nothing is gained by waiting for more.
    stream.set_nodelay(true)?;
    let mut first = [0];
    match timeout(FIRST_BYTE_WAIT, stream.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    }
    let tls = match first[0] {
        FIRST_OF_ROOT => return (protocols.root)(stream, slot),
        FIRST_OF_TLS => {
            let none = || {
                io::Error::other(
                    "the client asks for TLS, for which this server has no certificate",
                )
            };
            Some(protocols.tls.clone().ok_or_else(none)?)
        }
        _ if protocols.is_tls_required => {
            return Err(io::Error::other("the client does not encrypt, and must"));
        }
        _ => None,
    };
    let router = protocols.http.clone();
    protocols.http_workers.serve(stream, move |stream| async move {
        if let Err(error) = serve_http(stream, address, tls, router).await {
            tracing::debug!(%address, %error, "connection lost");
        }
        drop(slot);
    })
}

async fn serve_http(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
) -> io::Result<()> {
    let router = router.layer(Extension(Peer { address, is_encrypted: tls.is_some() }));
    let Some(tls) = tls else { return serve_decrypted(stream, router).await };
    let stream = timeout(FIRST_BYTE_WAIT, TlsAcceptor::from(tls).accept(stream)).await;
    serve_decrypted(stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??, router).await
}

async fn serve_decrypted(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
) -> io::Result<()> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(FIRST_BYTE_WAIT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(FIRST_BYTE_WAIT));
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    served.await.map_err(io::Error::other)
}
