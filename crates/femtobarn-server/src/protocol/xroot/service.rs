//! The state that all connections of a server share, and their common limits.

use std::sync::Arc;
use std::time::SystemTime;

use femtobarn_catalog::clock;
use tokio::sync::Semaphore;

use super::bound_streams::BoundStreams;
use super::preparations::Preparations;
use crate::auth::Authenticator;
use crate::config::CopyHosts;
use crate::logical::Logical;
use crate::protocol::buffers::BufferPool;

/// KiB of small reads that are handled concurrently with other requests, on all connections together.
const CONCURRENT_READ_KIB_MAX: usize = 32 * 1024;

/// Buffers of received data that connections may hold until they are written. Above that, data stay in the kernel.
const WRITE_BUFFERS_MAX: usize = 128;

/// Connections for which the kernel gathers the data of a write; on other connections data are received as they arrive.
const GATHERING_MAX: usize = 64;

/// The most concurrent copies from other servers; further ones wait.
const COPIES_MAX: usize = 32;

/// The state that all connections of a server share.
pub struct RootService {
    /// The logical layer.
    pub logical: Arc<Logical>,
    /// Authentication of clients.
    pub authenticator: Authenticator,
    /// The TLS configuration; `None` if the server has no certificate.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether clients that do not encrypt are refused.
    pub requires_tls: bool,
    /// The name of the site.
    pub site: String,
    /// The start of the server.
    pub since: SystemTime,
    /// Buffers for data in transit.
    pub buffers: Arc<BufferPool>,
    pub(super) streams: BoundStreams,
    /// KiB of small reads that may be handled concurrently.
    pub(super) concurrent_reads: Arc<Semaphore>,
    /// Buffers of received data that connections may hold.
    pub(super) write_buffers: Arc<Semaphore>,
    /// Connections for which the kernel may gather data.
    pub(super) gathering: Arc<Semaphore>,
    pub(super) preparations: Preparations,
    /// The servers from which files are copied for clients.
    pub copy_hosts: CopyHosts,
    /// Turns to copy.
    pub(super) copies: Arc<Semaphore>,
}

impl RootService {
    /// A service of this logical layer, without TLS.
    pub fn new(logical: Arc<Logical>, authenticator: Authenticator) -> Self {
        RootService {
            logical,
            authenticator,
            tls: None,
            requires_tls: false,
            site: "femtobarn".to_owned(),
            since: clock::utc(),
            buffers: Arc::default(),
            streams: BoundStreams::default(),
            concurrent_reads: Arc::new(Semaphore::new(CONCURRENT_READ_KIB_MAX)),
            write_buffers: Arc::new(Semaphore::new(WRITE_BUFFERS_MAX)),
            gathering: Arc::new(Semaphore::new(GATHERING_MAX)),
            preparations: Preparations::default(),
            copy_hosts: CopyHosts::default(),
            copies: Arc::new(Semaphore::new(COPIES_MAX)),
        }
    }
}
