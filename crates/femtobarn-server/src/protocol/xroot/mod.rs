//! `root://`: the server side of the XRootD protocol, version 5.2.0.
//!
//! | module | contents |
//! |---|---|
//! | `dispatch` | the loop of a connection: receives requests, hands each to its family, cleans up at the end |
//! | `login` | handshake, login, authentication, binding |
//! | `redirects` | requests about paths, if this server has no data |
//! | `read`, `readv`, `write` | requests that move data |
//! | `audited` | records requests that change something |
//! | `open`, `checkpoint`, `namespace`, `dirlist`, `query`, `fattr` | all other requests |
//! | `passed_files` | files that are passed to clients on this machine |
//! | `third_party` | copies from other servers, which clients request and watch |
//! | `handler` | rights, paths and handles of a request; calls to storages |
//! | `connection` | the state of a connection: queued answers, delayed answers, limits on data to be written |
//! | `service`, `bound_streams`, `preparations` | the state that all connections share |
//! | `transfer` | reads and writes that one connection may hand to another |
//! | `responses`, `stat_line`, `answer_queue`, `socket` | encoding of answers; plain and TLS sockets |
//!
//! A module uses those below it in this table, and none above.
//!
//! 1. A connection is one task. While it waits it holds neither a buffer nor a thread.
//! 2. The requests of a connection are handled in order. A few that wait for a disk are handled concurrently, and
//!    answered as they finish.
//! 3. While answers wait for a slow client, no further request is read from it.
//! 4. Blocking calls run in the blocking pool. Small calls to storages marked as quick run on the connection's thread.
//!
//! No name in this server claims to be XRootD.

mod answer_queue;
mod audited;
mod bound_streams;
mod checkpoint;
mod connection;
mod dirlist;
mod dispatch;
mod fattr;
mod handler;
mod login;
mod namespace;
mod open;
mod passed_files;
mod preparations;
mod query;
mod read;
mod readv;
mod redirects;
mod responses;
mod service;
mod socket;
mod stat_line;
mod third_party;
mod transfer;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use connection::RootConnection;
pub use service::RootService;

/// Serves one client until it disconnects or violates the protocol.
pub async fn serve(stream: TcpStream, service: Arc<RootService>) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    // Otherwise the last packet of an answer would wait until the client has acknowledged the earlier ones.
    let _ = stream.set_nodelay(true);
    serve_from(stream, peer, local, service).await;
}

/// [`serve`] with explicit addresses, for a socket that has none.
pub async fn serve_from(
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    service: Arc<RootService>,
) {
    let mut connection = RootConnection::new(stream, peer, local, service);
    let outcome = connection.run().await;
    connection.leave().await;
    match outcome {
        Ok(()) => tracing::debug!(%peer, "connection closed"),
        Err(error) => tracing::debug!(%peer, %error, "connection lost"),
    }
}
