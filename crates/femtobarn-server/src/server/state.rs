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
    /// Connections that the server takes at once.
    pub connections_max: usize,
    pub logical: Arc<Logical>,
    /// Bytes of files that were sent and received over HTTP.
    pub http_bytes: Arc<AtomicU64>,
    pub federations: Vec<Arc<FederationService>>,
    pub disks: Vec<ExportDisks>,
    /// The exports that are caches of other servers.
    pub caches: Vec<(String, Arc<CachedOrigin>)>,
    /// Whether the server is logged in at its cluster; none if it is in none.
    pub login: Option<ClusterLogin>,
    /// What stages the databases of federations that have stores, by the names of their exports.
    pub recallers: Vec<(String, Arc<Recaller>)>,
    /// What is read in stores of federations whose readers may, by the names of their exports.
    pub in_place: Vec<(String, Arc<InPlaceCounts>)>,
    /// They apply the rules of federations until the server ends.
    pub _rule_keepers: Vec<RuleKeeper>,
}

/// The simulated disks of a throttled export.
pub(crate) struct ExportDisks {
    /// The name of the export.
    pub export: String,
    pub throttle: Arc<Throttle>,
}
