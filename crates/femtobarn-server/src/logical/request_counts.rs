//! Requests of clients, and those that were refused or failed, by protocol and kind of error.
//!
//! 1. Sessions of `root://` count their requests themselves, so that concurrent readers share no counter; errors are
//!    rare.
//! 2. An answer that asks its client to wait, or redirects it, is not an error.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::ErrorKind;

/// A protocol of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProtocol {
    /// `root://`.
    Root,
    /// HTTP: files, WebDAV, the Tape REST API, pages and their data.
    Http,
    /// gRPC: calls to the catalogues of federations.
    Grpc,
}

impl ClientProtocol {
    /// All protocols, in the order of their counters.
    pub const ALL: [ClientProtocol; 3] =
        [ClientProtocol::Root, ClientProtocol::Http, ClientProtocol::Grpc];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            ClientProtocol::Root => "root",
            ClientProtocol::Http => "http",
            ClientProtocol::Grpc => "grpc",
        }
    }
}

/// Counts since the server started.
#[derive(Debug, Default)]
pub struct RequestCounts {
    requests: [AtomicU64; ClientProtocol::ALL.len()],
    errors: [[AtomicU64; ErrorKind::ALL.len()]; ClientProtocol::ALL.len()],
}

impl RequestCounts {
    /// Counts a request.
    pub fn count_request(&self, protocol: ClientProtocol) {
        self.requests[protocol as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused or failed.
    pub fn count_error(&self, protocol: ClientProtocol, kind: ErrorKind) {
        self.errors[protocol as usize][kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests; 0 for `root://`.
    pub fn requests(&self, protocol: ClientProtocol) -> u64 {
        self.requests[protocol as usize].load(Ordering::Relaxed)
    }

    /// The errors by the names of their kinds, including kinds without errors.
    pub fn errors(&self, protocol: ClientProtocol) -> BTreeMap<&'static str, u64> {
        let mut errors = BTreeMap::new();
        for kind in ErrorKind::ALL {
            let counter = &self.errors[protocol as usize][kind as usize];
            *errors.entry(kind.name()).or_default() += counter.load(Ordering::Relaxed);
        }
        errors
    }
}
