//! `root://`: the XRootD protocol, version 5.2.0, as a server speaks it.
//!
//! | module | what it does |
//! |---|---|
//! | `connection` | one task for each connection: bytes in, requests in turn, answers out |
//! | `greeting` | from the handshake to a session; bound streams |
//! | `reading`, `vector` | read, pgread, readv |
//! | `writing` | write, pgwrite, writev, changes in checkpoints |
//! | `handler` | who asks, and for what path: rights |
//! | `opening`, `names`, `listing`, `queries`, `attributes` | the other requests |
//! | `socket`, `outgoing`, `failures` | plain and TLS sockets; answers that wait; errors |
//!
//! 1. A connection is one task. While it waits it holds no buffer and no thread.
//! 2. Requests of a connection are done in turn, but for those that wait for a disk: a few of these are
//!    done beside the others, and answered when they are done.
//! 3. While answers wait for a slow client, nothing more is read from it.
//! 4. What may block runs in the blocking pool. Small calls of storages that are said to be quick are
//!    made in place.
//!
//! No name of ours claims to be XRootD.

mod attributes;
mod connection;
mod failures;
mod greeting;
mod handler;
mod listing;
mod names;
mod opening;
mod outgoing;
mod queries;
mod reading;
mod socket;
mod streams;
mod vector;
mod writing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::buffers::BufferPool;
use crate::auth::Authenticator;
use crate::logical::Logical;
use connection::Connection;
use names::Preparations;
use streams::Streams;

/// KiB of small pieces that are read beside other requests, on all connections together.
const LATE_KIB_MAX: usize = 32 * 1024;

/// Buffers' worth of data to be written that connections hold; others leave theirs in the kernel until it
/// is their turn.
const WRITTEN_BUFFERS_MAX: usize = 128;

/// Connections for which the kernel gathers data to be written; what is sent to others is taken as it comes.
const PATIENT_MAX: usize = 64;

/// Checksums that are computed at once.
const CHECKSUMS_MAX: usize = 2;

/// What all connections of a server share.
pub struct Shared {
    /// Names, files, sessions.
    pub logical: Arc<Logical>,
    /// Who clients may be.
    pub authenticator: Authenticator,
    /// For clients that want TLS; none: there is none.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether clients that do not encrypt are refused.
    pub requires_tls: bool,
    /// What the server calls its site.
    pub site: String,
    /// When the server began.
    pub since: SystemTime,
    /// Memory for what goes through.
    pub buffers: Arc<BufferPool>,
    streams: Streams,
    /// KiB of small pieces that are read beside other requests.
    late: Arc<Semaphore>,
    /// Buffers' worth of data to be written that connections may hold.
    writers: Arc<Semaphore>,
    /// Connections for which the kernel may gather data.
    patient: Arc<Semaphore>,
    /// Checksums that are computed.
    checksums: Arc<Semaphore>,
    preparations: Preparations,
}

impl Shared {
    /// For this logical layer; without TLS.
    pub fn new(logical: Arc<Logical>, authenticator: Authenticator) -> Self {
        Shared {
            logical,
            authenticator,
            tls: None,
            requires_tls: false,
            site: "femtobarn".to_owned(),
            since: SystemTime::now(),
            buffers: Arc::default(),
            streams: Streams::default(),
            late: Arc::new(Semaphore::new(LATE_KIB_MAX)),
            writers: Arc::new(Semaphore::new(WRITTEN_BUFFERS_MAX)),
            patient: Arc::new(Semaphore::new(PATIENT_MAX)),
            checksums: Arc::new(Semaphore::new(CHECKSUMS_MAX)),
            preparations: Preparations::default(),
        }
    }
}

/// Serves one client until it goes, or does what the protocol does not allow.
pub async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    // Without it, the last piece of an answer would wait for the client to acknowledge those before.
    let _ = stream.set_nodelay(true);
    serve_from(stream, peer, local, shared).await;
}

/// As [`serve`], for a socket that does not know where its ends are.
pub async fn serve_from(
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    shared: Arc<Shared>,
) {
    let mut connection = Connection::new(stream, peer, local, shared);
    let outcome = connection.run().await;
    connection.leave().await;
    match outcome {
        Ok(()) => tracing::debug!(%peer, "connection closed"),
        Err(error) => tracing::debug!(%peer, %error, "connection lost"),
    }
}
