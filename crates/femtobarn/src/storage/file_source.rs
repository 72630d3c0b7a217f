//! A database's file as a source of bytes, wherever it is.
//!
//! A file on this machine's disk is read by the kernel's calls, and so is one that its server has passed. Any other is read
//! through the prefetcher and the tiers before its server.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use femtobarn_catalog::{Csn, DatabaseId};
use rntuple::{ByteSource, ReadRequest};

use super::file::DatabaseFile;
use super::open_files::OpenDatabaseFiles;
use super::remote::cached_file::CachedRemoteFile;
use super::remote::prefetch::Prefetcher;
use super::remote::recent_ranges::RecentRanges;
use super::remote::tier::{FileTiers, TierCounts, total};

/// A database's file as a source of bytes.
pub(crate) struct FileSource {
    pub(super) files: Arc<OpenDatabaseFiles>,
    pub(super) database: DatabaseId,
    /// A commit as of which the database exists.
    pub(super) at: Csn,
    /// `None` for a file on this machine's disk, which the operating system prefetches.
    pub(super) remote: Option<RemoteSource>,
    /// Whether the server has passed the file, which is then read as one on this machine's disk.
    pub(super) is_passed: bool,
    /// The size of a file on a server, requested once, since all bytes that the commit refers to were there before.
    pub(super) size: OnceLock<u64>,
    /// The end of the version that is read, as far as is known; 0 if it is unknown.
    pub(super) version_end: AtomicU64,
}

/// The access to a file on a server.
pub(super) struct RemoteSource {
    pub(super) prefetcher: Arc<Prefetcher>,
    /// Weak, since thousands of versions may be open: it is dropped once the ranges of many other files were needed.
    pub(super) recent: Weak<RecentRanges>,
    pub(super) tiers: FileTiers,
    pub(super) server: Arc<TierCounts>,
}

impl RemoteSource {
    fn cached(&self, file: Arc<DatabaseFile>) -> CachedRemoteFile {
        CachedRemoteFile { file, tiers: self.tiers.clone(), server: self.server.clone() }
    }

    fn read_many(
        &self,
        file: Arc<DatabaseFile>,
        requests: &mut [ReadRequest<'_>],
        version_end: u64,
    ) -> rntuple::Result<()> {
        let Some(recent) = self.recent.upgrade() else {
            return self.prefetcher.read_many(&self.cached(file), requests, version_end);
        };
        recent
            .read(requests, |rest| self.prefetcher.read_many(&self.cached(file), rest, version_end))
    }
}

impl FileSource {
    fn file(&self) -> rntuple::Result<Arc<DatabaseFile>> {
        let file = self.files.file(self.database, self.at);
        file.map_err(|error| error.into_rntuple("cannot open the file again"))
    }

    /// The file itself, if its server has passed it. It is read for as long as the session is open that has the snapshot
    /// pinned: without it, space of the file may be given out again.
    fn passed<'a>(&self, file: &'a DatabaseFile) -> Option<&'a File> {
        file.passed().filter(|_| self.files.has_session())
    }

    /// Extends the version to `end`. Nothing behind its end is prefetched.
    pub(crate) fn extend_version_to(&self, end: u64) {
        self.version_end.fetch_max(end, Ordering::Relaxed);
    }

    fn version_end(&self) -> u64 {
        match self.version_end.load(Ordering::Relaxed) {
            0 => u64::MAX,
            end => end,
        }
    }
}

impl ByteSource for FileSource {
    fn size(&self) -> rntuple::Result<u64> {
        if let Some(size) = self.size.get() {
            return Ok(*size);
        }
        let recent = self.remote.as_ref().and_then(|remote| remote.recent.upgrade());
        if let Some(size) = recent.and_then(|recent| recent.size_as_of(self.at)) {
            return Ok(*self.size.get_or_init(|| size));
        }
        let file = self.file()?;
        let size = match self.passed(&file) {
            Some(passed) => passed.size()?,
            None => file.size_as_of(self.at)?,
        };
        if self.remote.is_some() { Ok(*self.size.get_or_init(|| size)) } else { Ok(size) }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        if self.remote.is_some() {
            self.read_many(&mut [ReadRequest { offset, buffer }])
        } else {
            self.file()?.read_at(offset, buffer)
        }
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        let file = self.file()?;
        if let (Some(remote), Some(passed)) = (&self.remote, self.passed(&file)) {
            let read = passed.read_many(requests);
            // If the session has ended meanwhile, the bytes read may be another version's.
            if self.files.has_session() {
                remote.server.add_hits(requests.len() as u64, total(requests));
                return read;
            }
        }
        let read = match &self.remote {
            None => file.read_many(requests),
            Some(remote) => remote.read_many(file, requests, self.version_end()),
        };
        if read.is_err() && self.files.are_local() {
            // The disk, or another store, may have the file meanwhile.
            self.files.close(self.database);
        }
        read
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        let file = self.file()?;
        match &self.remote {
            None => file.read_many(requests),
            Some(remote) => {
                remote.recent.upgrade().iter().for_each(|recent| recent.clear());
                remote.cached(file).read_past_tiers(requests)
            }
        }
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        // If the file cannot be opened, the read itself returns the error.
        let Ok(file) = self.file() else { return };
        match (&self.remote, self.passed(&file)) {
            (None, _) => file.will_need(ranges),
            (Some(_), Some(passed)) => passed.will_need(ranges),
            (Some(remote), None) => remote.prefetcher.will_need(&remote.cached(file), ranges),
        }
    }

    fn may_need(&self, ranges: &[Range<u64>]) {
        if let (Some(remote), false, Ok(file)) = (&self.remote, self.is_passed, self.file()) {
            remote.prefetcher.may_need(&remote.cached(file), ranges);
        }
    }

    fn is_remote(&self) -> bool {
        self.remote.is_some() && !self.is_passed
    }
}
