//! The logical layer: the name space, open files and sessions, independent of protocols.
//!
//! | module | contents |
//! |---|---|
//! | `exports`, `placement`, `follower_placement` | which storage serves a path; which server a client is redirected to |
//! | `redirector` | a server without data, which redirects clients to servers that have it |
//! | `cluster` | reports to the `cmsd` of an XRootD cluster |
//! | `files`, `handles` | open files that sessions share; the open files of one session |
//! | `journal`, `checkpoint` | changes of open files that can be undone, even after a crash |
//! | `sessions`, `session_recovery` | connected clients; the snapshots that they open again after a lost connection |
//! | `incoming_copy` | copies from other servers into open files |
//! | `stage_requests` | requests to stage files, and for how long |
//! | `uploads` | files that appear when they are complete and durable |
//! | `checksums` | cached checksums of files |
//! | `latency`, `request_counts` | histograms of request times; requests and errors |
//! | `catalogue`, `locks` | remote access to the catalogues of federations; their lock table |
//!
//! It uses the physical layer only. Protocols translate their requests to calls of this layer.

pub mod catalogue;
pub mod checkpoint;
pub mod checksums;
pub mod cluster;
pub mod exports;
pub mod files;
pub mod follower_placement;
pub mod handles;
pub mod incoming_copy;
pub(crate) mod journal;
pub mod latency;
pub mod locks;
pub mod placement;
pub mod redirector;
pub mod request_counts;
pub mod session_recovery;
pub mod sessions;
pub mod stage_requests;
pub mod uploads;

use std::sync::Arc;
use std::time::Duration;

use checksums::Checksums;
use exports::Exports;
use files::Files;
use placement::{AlwaysLocal, Placement};
use redirector::Redirector;
use request_counts::RequestCounts;
use sessions::ClientSessions;
use stage_requests::StageRequests;

use crate::client_shares::ClientShares;

/// Optimisations and limits of the logical layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Sessions that open a file in the same mode share one open file.
    pub reuse_files: bool,
    /// A sync without writes since the last one does nothing.
    pub eliminate_syncs: bool,
    /// Checksums are cached until their file changes.
    pub keep_checksums: bool,
    /// Clients on this machine get open files passed, which they then read without the server.
    pub pass_files: bool,
    /// The time after which unused open files are closed; never if `None`.
    pub close_idle_files: Option<Duration>,
    /// The time after which sessions without traffic are ended; never if `None`.
    pub end_idle_sessions: Option<Duration>,
    /// Open files per session.
    pub files_per_session_max: usize,
    /// Open files of all sessions; a few hundred bytes each.
    pub open_files_max: usize,
    /// Open files that hold a descriptor; see [`files`].
    pub held_files_max: usize,
    /// The percentage of these two limits that the clients of one machine may have.
    pub machine_percent: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            reuse_files: true,
            eliminate_syncs: true,
            keep_checksums: true,
            pass_files: true,
            close_idle_files: Some(Duration::from_secs(600)),
            end_idle_sessions: Some(Duration::from_secs(3600)),
            files_per_session_max: 4096,
            open_files_max: 1 << 18,
            held_files_max: usize::MAX,
            machine_percent: 50,
        }
    }
}

/// The logical layer of one server.
pub struct Logical {
    /// Optimisations and limits.
    pub settings: Settings,
    /// The name space.
    pub exports: Arc<Exports>,
    /// Open files.
    pub files: Files,
    /// The open files that sessions may have.
    pub open_files: Arc<ClientShares>,
    /// Connected clients.
    pub sessions: ClientSessions,
    /// Cached checksums.
    pub checksums: Checksums,
    /// Redirects of opens to other servers.
    pub placement: Arc<dyn Placement>,
    /// Redirects clients if this server has no data.
    pub redirector: Option<Arc<Redirector>>,
    /// Requests of clients to stage files.
    pub stage_requests: StageRequests,
    /// Requests and errors of all protocols.
    pub request_counts: Arc<RequestCounts>,
}

impl Logical {
    /// The logical layer over these exports, without redirects.
    pub fn new(settings: Settings, exports: Exports) -> Self {
        let exports = Arc::new(exports);
        Logical {
            files: Files::new(
                Arc::clone(&exports),
                settings.reuse_files,
                settings.eliminate_syncs,
                (settings.held_files_max, settings.machine_percent),
            ),
            open_files: ClientShares::new(settings.open_files_max, settings.machine_percent),
            checksums: Checksums::new(settings.keep_checksums),
            sessions: ClientSessions::default(),
            placement: Arc::new(AlwaysLocal),
            redirector: None,
            stage_requests: StageRequests::default(),
            request_counts: Arc::default(),
            exports,
            settings,
        }
    }

    /// Closes idle files and sessions periodically; never returns.
    pub async fn close_idle(self: Arc<Self>) {
        tokio::join!(self.close_idle_files(), self.end_idle_sessions());
    }

    async fn close_idle_files(self: &Arc<Self>) {
        let Some(time) = self.settings.close_idle_files else { return };
        loop {
            tokio::time::sleep(time).await;
            let this = Arc::clone(self);
            // It fails only while the server is shutting down.
            let _ = tokio::task::spawn_blocking(move || this.files.close_idle()).await;
        }
    }

    async fn end_idle_sessions(&self) {
        let Some(time) = self.settings.end_idle_sessions else { return };
        loop {
            tokio::time::sleep(time).await;
            self.sessions.end_idle();
        }
    }
}
