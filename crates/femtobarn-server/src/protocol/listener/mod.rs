//! The port: accepts connections, and distinguishes protocols by the first byte.
//!
//! | first byte | protocol |
//! |---|---|
//! | 0 | `root://`: the handshake of XRootD, which may switch to TLS itself |
//! | 22 | TLS, containing HTTP/2 (with gRPC) or HTTP/1.1 |
//! | other | HTTP/2 or HTTP/1.1 |
//!
//! 1. A connection without a first byte is closed after `FIRST_BYTE_WAIT`, and one of HTTP whose first request does not
//!    arrive in the same time after that, too. `client_waits` limits its further waits for the client.
//! 2. Connections above the limit, and those above the share of their machine, are closed at once.
//! 3. No client can end the accept loop. If file descriptors run out, it pauses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use super::client_waits::{ClientWaits, WaitLimits, service};
use super::lingering::LingeringStream;
use super::workers::Workers;
use crate::auth::CertifiedName;
use crate::client_shares::{ClientShare, ClientShares};
use crate::config::Limits;
use crate::tls::client_name;

/// The longest wait for the first byte of a connection, for a TLS handshake, and for the head of a request.
const FIRST_BYTE_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for further bytes of a request, or until the client takes some of an answer. Longer than that of
/// files, which ends only the request.
const BYTES_WAIT: Duration = Duration::from_secs(360);
/// The pause of the accept loop if the operating system lacks resources.
const PAUSE: Duration = Duration::from_millis(100);
/// How often refused connections are logged.
const REFUSALS_LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of HTTP/1.1 headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
const FIRST_OF_ROOT: u8 = 0;
const FIRST_OF_TLS: u8 = 22;

/// The client's end of a connection, in the extensions of requests of HTTP and gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The name in the client's certificate, if it has shown one.
    pub certificate: Option<Arc<CertifiedName>>,
}

/// Keeps a connection among those of its thread ([`Workers`]) while it carries another protocol; in the extensions of
/// requests of HTTP and gRPC. The connection's slot goes with its stream.
#[derive(Clone)]
pub struct ConnectionClaim {
    _open: mpsc::Sender<()>,
}

/// Serves a connection of `root://` to its end, on another thread, and keeps its slot until then.
pub type ServeRoot = Box<dyn Fn(TcpStream, ConnectionSlot) -> io::Result<()> + Send + Sync>;

/// The protocols to which connections are handed.
pub struct Protocols {
    /// `root://`.
    pub root: ServeRoot,
    /// HTTP and gRPC.
    pub http: Router,
    /// The threads for HTTP and gRPC.
    pub http_workers: Arc<Workers>,
    /// The TLS configuration for HTTP and gRPC; `None` if the server has no certificate.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether HTTP and gRPC must be encrypted.
    pub is_tls_required: bool,
    /// The limit of open connections.
    pub connections_max: usize,
    /// The configured limits.
    pub limits: Limits,
    /// Counts of connections.
    pub counts: Arc<ConnectionCounts>,
}

/// Counts of connections.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    accepted: AtomicU64,
    closed: AtomicU64,
}

impl ConnectionCounts {
    /// Connections accepted since the server started.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        let closed = self.closed.load(Ordering::Acquire);
        self.accepted().saturating_sub(closed)
    }
}

/// A connection's share in the limit on connections, for as long as it lives.
pub struct ConnectionSlot {
    counts: Arc<ConnectionCounts>,
    _share: ClientShare,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.counts.closed.fetch_add(1, Ordering::Release);
    }
}

/// Accepts connections until it is dropped.
pub async fn accept(listener: TcpListener, protocols: Arc<Protocols>) {
    let shares = ClientShares::new(protocols.connections_max, protocols.limits.machine_percent);
    let (mut refused, mut told) = (0_u64, None::<Instant>);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let Some(share) = shares.take(address.ip()) else {
            refused += 1;
            // A flood of connections must not become one of lines.
            if told.is_none_or(|told| told.elapsed() >= REFUSALS_LOG_INTERVAL) {
                told = Some(Instant::now());
                tracing::warn!(
                    %address,
                    refused,
                    "connection closed: the client's machine has used up its share (limits.machine_percent) of \
                     limits.connections"
                );
            }
            continue;
        };
        protocols.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let slot = ConnectionSlot { counts: Arc::clone(&protocols.counts), _share: share };
        let protocols = Arc::clone(&protocols);
        tokio::spawn(async move {
            if let Err(error) = serve(stream, address, slot, &protocols).await {
                tracing::debug!(%address, %error, "connection lost");
            }
        });
    }
}

async fn pause_after(error: &io::Error) {
    // A client that has disconnected already does not mean a lack of resources.
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
    // Answers are written in one piece, so delaying them to join them has no benefit.
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
                    "the client wants TLS, but no certificate is configured (tls.certificate)",
                )
            };
            Some(protocols.tls.clone().ok_or_else(none)?)
        }
        _ if protocols.is_tls_required => {
            return Err(io::Error::other("unencrypted connection refused: tls.required is set"));
        }
        _ => None,
    };
    let router = protocols.http.clone();
    let limits = wait_limits(&protocols.limits);
    protocols.http_workers.serve(stream, move |stream| async move {
        let stream = LingeringStream::new(stream, slot);
        if let Err(error) = serve_http(stream, address, tls, router, limits).await {
            tracing::debug!(%address, %error, "connection lost");
        }
    })
}

/// How long connections of HTTP wait for their clients.
fn wait_limits(limits: &Limits) -> WaitLimits {
    let idle_seconds = Some(limits.idle_seconds).filter(|seconds| *seconds > 0);
    WaitLimits {
        first_request: FIRST_BYTE_WAIT,
        // The client of a session over gRPC is silent for a part of its lease.
        bytes: BYTES_WAIT.max(Duration::from_secs(limits.lease_seconds).saturating_mul(2)),
        next_request: idle_seconds.map(Duration::from_secs),
    }
}

async fn serve_http(
    stream: LingeringStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: WaitLimits,
) -> io::Result<()> {
    let (claim, mut claimed) = mpsc::channel(1);
    let with_peer = |certificate| {
        let peer = Peer { address, is_encrypted: tls.is_some(), certificate };
        router.layer((Extension(peer), Extension(ConnectionClaim { _open: claim })))
    };
    let served = match tls.clone() {
        None => serve_decrypted(stream, with_peer(None), limits).await,
        Some(tls) => {
            let stream = timeout(FIRST_BYTE_WAIT, TlsAcceptor::from(tls).accept(stream)).await;
            let stream = stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            let certificate = client_name(stream.get_ref().1)?;
            serve_decrypted(stream, with_peer(certificate), limits).await
        }
    };
    // Nothing is ever sent: the wait ends when the last claim is dropped.
    let _: Option<()> = claimed.recv().await;
    served
}

async fn serve_decrypted(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: WaitLimits,
) -> io::Result<()> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(FIRST_BYTE_WAIT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(FIRST_BYTE_WAIT));
    let waits = ClientWaits::new(limits);
    let service = service(router, Arc::clone(&waits));
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        served = served => served.map_err(io::Error::other),
        error = waits.exceeded() => Err(error),
    }
}

#[cfg(test)]
mod tests;
