//! The state of a running server, from which its status is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use femtobarn_archive::{Recaller, RuleKeeper};

use crate::logical::Logical;
use crate::logical::catalogue::FederationService;
use crate::logical::cluster::ClusterLogin;
use crate::physical::{CachedOrigin, InPlaceCounts, Throttle};
use crate::protocol::listener::ConnectionCounts;

/// The state of a running server.
pub(crate) struct ServerState {
    pub started: Instant,
    /// The names of exports.
    pub exports: Vec<String>,
    pub is_draining: AtomicBool,
    pub counts: Arc<ConnectionCounts>,
    /// The most connections of the server at the same time.
    pub connections_max: usize,
    pub logical: Arc<Logical>,
    /// Bytes of files that were sent and received over HTTP.
    pub http_bytes: Arc<AtomicU64>,
    pub federations: Vec<Arc<FederationService>>,
    pub disks: Vec<ExportDisks>,
    /// The exports that are caches of other servers.
    pub caches: Vec<(String, Arc<CachedOrigin>)>,
    /// Whether the server is logged in at its cluster; `None` if it is not part of one.
    pub login: Option<ClusterLogin>,
    /// The recallers of federations with stores, by the names of their exports.
    pub recallers: Vec<(String, Arc<Recaller>)>,
    /// Counts of reads in stores, for federations that allow these, by the names of their exports.
    pub in_place: Vec<(String, Arc<InPlaceCounts>)>,
    /// The rule keepers of federations, which run until the server ends.
    pub _rule_keepers: Vec<RuleKeeper>,
}

/// The simulated disks of a throttled export.
pub(crate) struct ExportDisks {
    /// The name of the export.
    pub export: String,
    pub throttle: Arc<Throttle>,
}
