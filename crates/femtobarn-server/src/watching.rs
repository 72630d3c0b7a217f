//! [`Status`] of a running server: who is there and what they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::logical::sessions::Session;
use crate::server::Watched;
use crate::status::{FileStatus, SessionStatus, Status, Totals};

/// Rows of each kind that are told.
const ROWS_MAX: usize = 1000;

/// What a server is doing.
pub(crate) fn status(watched: &Watched) -> Status {
    let logical = &watched.logical;
    let all = logical.sessions.all();
    let moved = logical.sessions.totals();
    let totals = Totals {
        connections: watched.counts.accepted(),
        open_connections: watched.counts.open(),
        open_sessions: all.len() as u64,
        open_files: logical.files.count() as u64,
        requests: read(&moved.requests),
        errors: read(&moved.errors),
        bytes_read: read(&moved.bytes_out),
        bytes_written: read(&moved.bytes_in),
        ..Totals::default()
    };
    let mut sessions: Vec<_> = all.iter().map(|session| session_status(session)).collect();
    if sessions.len() > ROWS_MAX {
        sessions
            .sort_by_key(|session| std::cmp::Reverse(session.bytes_read + session.bytes_written));
        sessions.truncate(ROWS_MAX);
    }
    let mut files = open_files(&all);
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes_read + file.bytes_written));
    files.truncate(ROWS_MAX);
    Status {
        server: concat!("femtobarn ", env!("CARGO_PKG_VERSION")).to_owned(),
        up_seconds: watched.started.elapsed().as_secs(),
        is_draining: watched.is_draining.load(Ordering::Relaxed),
        totals,
        sessions,
        files,
        ..Status::default()
    }
}

fn session_status(session: &Session) -> SessionStatus {
    let since = SystemTime::now().duration_since(session.since).unwrap_or_default();
    let name = session.identity().filter(|i| i.how != "anonymous").map(|i| i.name.clone());
    SessionStatus {
        id: session.number.to_string(),
        protocol: "root".to_owned(),
        user: name.unwrap_or_else(|| session.client.user.clone()),
        host: session.host.ip().to_string(),
        program: session.client.program.clone(),
        age_seconds: since.as_secs(),
        open_files: session.handles.count() as u64,
        requests: read(&session.counters.requests),
        bytes_read: read(&session.counters.bytes_out),
        bytes_written: read(&session.counters.bytes_in),
    }
}

/// What sessions have open, each path once for reading and once for writing.
fn open_files(sessions: &[Arc<Session>]) -> Vec<FileStatus> {
    let mut files = BTreeMap::new();
    for open in sessions.iter().flat_map(|session| session.handles.all()) {
        let path = String::from_utf8_lossy(open.path.as_bytes()).into_owned();
        let file = files.entry((path, open.is_writable)).or_insert_with(FileStatus::default);
        file.users += 1;
        file.bytes_read += read(&open.bytes_read);
        file.bytes_written += read(&open.bytes_written);
    }
    let named = files.into_iter();
    named.map(|((path, is_writable), file)| FileStatus { path, is_writable, ..file }).collect()
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
