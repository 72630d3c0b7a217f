//! Reports the [`CacheContents`] of each cache of another server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::clock;

use super::state::ServerState;
use super::status_report::cache_status;
use crate::physical::{CachedOrigin, LeavingFile};
use crate::status::{CacheContents, LeavingFileStatus};

/// The contents of a server's caches. May look at all their files.
///
/// # Errors
/// If a folder cannot be read.
pub(super) fn caches(state: &ServerState) -> io::Result<Vec<CacheContents>> {
    state.caches.iter().map(contents).collect()
}

fn contents(export: &(String, Arc<CachedOrigin>)) -> io::Result<CacheContents> {
    let (name, cache) = export;
    let leaving = cache.next_to_leave().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot look at the cache {name}: {error}"))
    })?;
    Ok(CacheContents {
        sums: cache_status(export),
        files: leaving.kept,
        idle_seconds: cache.idle().map(|idle| idle.as_secs()),
        leaving: leaving.first.into_iter().map(row).collect(),
    })
}

fn row(file: LeavingFile) -> LeavingFileStatus {
    let unused: Duration = clock::utc().duration_since(file.used).unwrap_or_default();
    LeavingFileStatus {
        file: String::from_utf8_lossy(&file.name).into_owned(),
        bytes: file.bytes,
        unused_seconds: unused.as_secs(),
        is_open: file.is_open,
    }
}
