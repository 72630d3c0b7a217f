//! `root://`: the XRootD protocol, version 5.2.0, as a server speaks it.
//!
//! | module | what it does |
//! |---|---|
//! | `connection` | one task for each connection: bytes in, requests in turn, answers out |
//! | `greeting` | from the handshake to a session; bound streams |
//! | `reading`, `vector` | read, pgread, readv |
//! | `writing` | write, pgwrite, writev, changes in checkpoints |
//! | `asking` | who asks, and for what path: rights |
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

mod asking;
mod attributes;
mod connection;
mod failures;
mod greeting;
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

use std::sync::Arc;
use std::time::SystemTime;

use tokio::net::TcpStream;

use super::buffers::BufferPool;
use crate::auth::Authenticator;
use crate::logical::Logical;
use connection::Connection;
use names::Preparations;
use streams::Streams;

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
            preparations: Preparations::default(),
        }
    }
}

/// Serves one client until it goes, or does what the protocol does not allow.
pub async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    // Without it, the last piece of an answer would wait for the client to acknowledge those before.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream, peer, local, shared);
    let outcome = connection.run().await;
    connection.leave().await;
    match outcome {
        Ok(()) => tracing::debug!(%peer, "connection closed"),
        Err(error) => tracing::debug!(%peer, %error, "connection lost"),
    }
}
