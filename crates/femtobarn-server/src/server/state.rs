//! The state of a running server, from which its status is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use femtobarn_archive::Recaller;

use crate::logical::Logical;
use crate::logical::catalogue::FederationService;
use crate::physical::Throttle;
use crate::protocol::listener::ConnectionCounts;

/// The state of a running server.
pub(crate) struct ServerState {
    pub started: Instant,
    /// The names of exports.
    pub exports: Vec<String>,
    pub is_draining: AtomicBool,
    pub counts: Arc<ConnectionCounts>,
    pub logical: Arc<Logical>,
    /// Bytes of files that were sent and received over HTTP.
    pub http_bytes: Arc<AtomicU64>,
    pub federations: Vec<Arc<FederationService>>,
    pub disks: Vec<ExportDisks>,
    /// What stages the databases of federations that have stores, by the names of their exports.
    pub recallers: Vec<(String, Arc<Recaller>)>,
}

/// The simulated disks of a throttled export.
pub(crate) struct ExportDisks {
    /// The name of the export.
    pub export: String,
    pub throttle: Arc<Throttle>,
}
