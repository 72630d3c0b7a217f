//! The logical layer: names, open files, sessions, who may do what.
//!
//! It knows storages, and nothing of how clients ask: protocols map what they hear to what is here.

pub mod catalogue;
pub mod checkpoint;
pub mod checksums;
pub mod exports;
pub mod files;
pub mod handles;
pub(crate) mod journal;
pub mod latency;
pub mod locks;
pub mod placement;
pub mod reopening;
pub mod sessions;

use std::sync::Arc;
use std::time::Duration;

use checksums::Checksums;
use exports::Exports;
use files::Files;
use placement::{Here, Placement};
use sessions::Sessions;

/// What the logical layer does to save work, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// One open file for all sessions that use it alike.
    pub reuse_files: bool,
    /// No sync where nothing was written since the last one.
    pub eliminate_syncs: bool,
    /// Checksums are kept until their file changes.
    pub keep_checksums: bool,
    /// After which time open files that nobody uses are closed; none: never.
    pub close_idle_files: Option<Duration>,
    /// After which time sessions that move nothing are ended; none: never.
    pub end_idle_sessions: Option<Duration>,
    /// Files that one session may have open.
    pub files_per_session_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            reuse_files: true,
            eliminate_syncs: true,
            keep_checksums: true,
            close_idle_files: Some(Duration::from_secs(600)),
            end_idle_sessions: Some(Duration::from_secs(3600)),
            files_per_session_max: 4096,
        }
    }
}

/// The logical layer of one server.
pub struct Logical {
    /// What it does to save work, and its limits.
    pub settings: Settings,
    /// Names.
    pub exports: Arc<Exports>,
    /// Files that are open.
    pub files: Files,
    /// Who is connected.
    pub sessions: Sessions,
    /// Checksums that were computed.
    pub checksums: Checksums,
    /// Who else opens files.
    pub placement: Arc<dyn Placement>,
}

impl Logical {
    /// For these exports; everything is opened here.
    pub fn new(settings: Settings, exports: Exports) -> Self {
        let exports = Arc::new(exports);
        Logical {
            files: Files::new(Arc::clone(&exports), settings.reuse_files, settings.eliminate_syncs),
            checksums: Checksums::new(settings.keep_checksums),
            sessions: Sessions::default(),
            placement: Arc::new(Here),
            exports,
            settings,
        }
    }

    /// Closes what is idle, for as long as the server runs.
    pub async fn keep_tidy(self: Arc<Self>) {
        tokio::join!(self.close_idle_files(), self.end_idle_sessions());
    }

    async fn close_idle_files(self: &Arc<Self>) {
        let Some(time) = self.settings.close_idle_files else { return };
        loop {
            tokio::time::sleep(time).await;
            let this = Arc::clone(self);
            // It fails only if the server is shutting down.
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
