//! Requests to bring files from mass storage to the disk, and to keep them there for a while.
//!
//! 1. A request belongs to the user who made it; others are told that there is none.
//! 2. A request is durable before its id is told, and so is what it has come to before that is told. It lies in the folder of the
//!    first federation with stores; a server without one forgets requests when it stops.
//! 3. A file is pinned from the moment it is asked for: for its lifetime, again when it comes, and again while it waits. Its pin
//!    ends when the file is released or cancelled, fails, or its request is deleted.
//! 4. The oldest requests are forgotten if there are too many; pins of theirs end with their lifetimes.
//!
//! `request` is one request, without I/O; `kept` has them on disk.

mod kept;
mod request;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;

use self::kept::{KeptRequest, RequestFolder};
use self::request::FoundFile;
use super::exports::Exports;
use crate::physical::{Opaque, Storage, StorageError, StoragePath, StorageResult, WantedBy};

pub use request::{StageRequest, StageState, StagedFile, WantedFile};

/// Requests that are remembered, and files of all of them.
const REQUESTS_MAX: usize = 1000;
const FILES_KEPT_MAX: usize = 200_000;

/// The requests of all clients of a server.
#[derive(Default)]
pub struct StageRequests {
    folders: Vec<RequestFolder>,
    /// The oldest first.
    requests: Mutex<VecDeque<KeptRequest>>,
}

impl StageRequests {
    /// The requests that are kept in the folders of federations. New ones go into the first.
    pub fn open(federations: impl Iterator<Item = PathBuf>) -> Self {
        let folders: Vec<_> = federations.map(|folder| RequestFolder::of(&folder)).collect();
        let mut requests: Vec<_> = folders.iter().flat_map(RequestFolder::read).collect();
        requests.sort_by_key(|kept| kept.request.created_at);
        let this = StageRequests { folders, requests: Mutex::new(requests.into()) };
        this.forget_old(&mut this.requests.lock());
        this
    }

    /// Makes a request, whose files each appear once; returns its id.
    ///
    /// # Errors
    /// If it cannot be kept, or its files cannot be pinned.
    pub fn begin(
        &self,
        exports: &Exports,
        user: &str,
        files: Vec<WantedFile>,
    ) -> StorageResult<String> {
        let now = seconds();
        let mut request = StageRequest::new(files, now);
        let pins = request.extend_pins(now);
        // Before it is looked at: what is on the disk could leave it in between.
        pin(exports, &request.id, &pins)?;
        let found = find_out(exports, user, request.waiting());
        let over = request.note(found, now);
        unpin(exports, &request.id, &over)?;
        let kept = KeptRequest { user: user.to_owned(), request };
        let mut requests = self.requests.lock();
        if let Err(error) = self.keep(&kept) {
            let paths: Vec<_> = pins.into_iter().map(|(path, _)| path).collect();
            // What cannot be unpinned stays for its lifetime.
            let _ = unpin(exports, &kept.request.id, &paths);
            return Err(error);
        }
        let id = kept.request.id.clone();
        requests.push_back(kept);
        self.forget_old(&mut requests);
        Ok(id)
    }

    /// Asks again for the files of all requests that wait, as after a start of the server.
    pub fn resume(&self, exports: &Exports) {
        let waiting: Vec<(String, Vec<String>)> = {
            let requests = self.requests.lock();
            requests.iter().map(|kept| (kept.user.clone(), kept.request.waiting())).collect()
        };
        for (user, paths) in waiting {
            find_out(exports, &user, paths);
        }
    }

    /// A user's request, as it is now; none if there is none.
    ///
    /// # Errors
    /// If what it has come to cannot be kept, or its files cannot be pinned.
    pub fn look(
        &self,
        exports: &Exports,
        user: &str,
        id: &str,
    ) -> StorageResult<Option<StageRequest>> {
        let waiting = self.find(user, id, |kept| Ok(kept.request.waiting()))?;
        let Some(waiting) = waiting else { return Ok(None) };
        let found = find_out(exports, user, waiting);
        let now = seconds();
        self.find(user, id, |kept| {
            let mut request = kept.request.clone();
            let over = request.note(found, now);
            let pins = request.extend_pins(now);
            pin(exports, id, &pins)?;
            unpin(exports, id, &over)?;
            self.replace(kept, request)?;
            Ok(kept.request.clone())
        })
    }

    /// Cancels files that a user's request waits for; false if one is not of the request, none if there is no such request.
    ///
    /// # Errors
    /// If that cannot be kept, or their pins cannot be ended.
    pub fn cancel(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        paths: &HashSet<String>,
    ) -> StorageResult<Option<bool>> {
        self.end_pins(exports, (user, id), |request| request.cancel(paths, seconds()))
    }

    /// Ends the pins of files; false if one is not of the request, none if there is no such request.
    ///
    /// # Errors
    /// If that cannot be kept, or the pins cannot be ended.
    pub fn release(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        paths: &HashSet<String>,
    ) -> StorageResult<Option<bool>> {
        self.end_pins(exports, (user, id), |request| request.release(paths))
    }

    /// Forgets a user's request, and ends its pins; false if there is none.
    ///
    /// # Errors
    /// If the pins cannot be ended, or it cannot be removed.
    pub fn delete(&self, exports: &Exports, user: &str, id: &str) -> StorageResult<bool> {
        let mut requests = self.requests.lock();
        let Some(at) = requests.iter().position(|kept| kept.is_of(user, id)) else {
            return Ok(false);
        };
        let pinned = requests[at].request.pinned();
        unpin(exports, id, &pinned)?;
        self.remove(id)?;
        requests.remove(at);
        Ok(true)
    }

    fn end_pins(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        change: impl FnOnce(&mut StageRequest) -> Option<Vec<String>>,
    ) -> StorageResult<Option<bool>> {
        self.find(user, id, |kept| {
            let mut request = kept.request.clone();
            let Some(over) = change(&mut request) else { return Ok(false) };
            unpin(exports, id, &over)?;
            self.replace(kept, request)?;
            Ok(true)
        })
    }

    /// Does something with a user's request, if there is one.
    fn find<T>(
        &self,
        user: &str,
        id: &str,
        work: impl FnOnce(&mut KeptRequest) -> StorageResult<T>,
    ) -> StorageResult<Option<T>> {
        let mut requests = self.requests.lock();
        requests.iter_mut().find(|kept| kept.is_of(user, id)).map(work).transpose()
    }

    /// Puts a request into another state, if it is another one.
    fn replace(&self, kept: &mut KeptRequest, request: StageRequest) -> StorageResult<()> {
        if kept.request == request {
            return Ok(());
        }
        let changed = KeptRequest { user: kept.user.clone(), request };
        self.keep(&changed)?;
        *kept = changed;
        Ok(())
    }

    fn keep(&self, kept: &KeptRequest) -> StorageResult<()> {
        let Some(folder) = self.folders.first() else { return Ok(()) };
        folder.write(kept).map_err(|error| not_kept(&error))
    }

    fn remove(&self, id: &str) -> StorageResult<()> {
        // It may be from a time when another federation was the first.
        self.folders
            .iter()
            .try_for_each(|folder| folder.remove(id))
            .map_err(|error| not_kept(&error))
    }

    fn forget_old(&self, requests: &mut VecDeque<KeptRequest>) {
        let mut files: usize = requests.iter().map(|kept| kept.request.files.len()).sum();
        while requests.len() > REQUESTS_MAX || files > FILES_KEPT_MAX {
            let Some(oldest) = requests.pop_front() else { return };
            files -= oldest.request.files.len();
            // What stays is forgotten by the next server.
            let _ = self.remove(&oldest.request.id);
        }
    }
}

impl KeptRequest {
    fn is_of(&self, user: &str, id: &str) -> bool {
        self.request.id == id && self.user == user
    }
}

/// Asks for files on behalf of a user, and notes which are on the disk.
fn find_out(exports: &Exports, user: &str, names: Vec<String>) -> Vec<(String, FoundFile)> {
    let wanted = WantedBy { user, ..WantedBy::default() };
    let found = names.into_iter().map(|name| {
        let staged = StoragePath::new(name.as_bytes())
            .and_then(|path| exports.stage(&path, wanted, Opaque::default()));
        let found = match staged {
            Ok(None) => FoundFile::OnDisk,
            Ok(Some(_)) | Err(StorageError::NotBefore(..)) => FoundFile::Waiting,
            Err(error) => FoundFile::Failed(error.into_text()),
        };
        (name, found)
    });
    found.collect()
}

/// Pins files for a request until the given times.
fn pin(exports: &Exports, id: &str, pins: &[(String, u64)]) -> StorageResult<()> {
    let mut by_end: BTreeMap<u64, Vec<StoragePath>> = BTreeMap::new();
    for (name, until) in pins {
        by_end.entry(*until).or_default().extend(StoragePath::new(name.as_bytes()));
    }
    by_end
        .into_iter()
        .try_for_each(|(until, paths)| exports.pin(&paths, &holder(id), Some(time_of(until))))
}

/// Ends the pins that a request has of files.
fn unpin(exports: &Exports, id: &str, names: &[String]) -> StorageResult<()> {
    if names.is_empty() {
        return Ok(());
    }
    let paths = names.iter().filter_map(|name| StoragePath::new(name.as_bytes()).ok());
    exports.pin(&paths.collect::<Vec<_>>(), &holder(id), None)
}

/// The holder of the pins of a request.
fn holder(id: &str) -> String {
    format!("stage request {id}")
}

fn time_of(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

/// Seconds since 1970.
fn seconds() -> u64 {
    clock::utc_ms() / 1000
}

fn not_kept(error: &std::io::Error) -> StorageError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO));
    StorageError::refused(errno, format!("the stage request cannot be kept: {error}"))
}
