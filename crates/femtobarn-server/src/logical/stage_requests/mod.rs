//! Requests to bring files from mass storage to the disk, and to keep them there for a while.
//!
//! 1. A request belongs to the user who made it; for other users it does not exist.
//! 2. A request is durable before its id is returned, and each state of it before that state is returned. It is stored
//!    in the folder of the first federation with stores; a server without one forgets requests when it stops.
//! 3. A file is pinned from the moment of its request, for its lifetime. Looking at the request renews the pin: for the
//!    lifetime once the file has arrived, and repeatedly while it waits. The pin ends when the file is released or
//!    cancelled, fails, or its request is deleted or forgotten.
//! 4. If there are too many requests, some are forgotten.
//! 5. A request is locked while it changes; the list is locked only to find, add or remove requests, never for I/O.
//!
//! `request` is one request, without I/O; `kept` stores requests on disk; `surplus` chooses the requests to forget.

mod kept;
mod request;
mod surplus;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;

use self::kept::{KeptRequest, RequestFolder};
use self::request::FoundFile;
use self::surplus::CountedRequest;
use super::exports::Exports;
use crate::physical::{Opaque, Storage, StorageError, StoragePath, StorageResult, WantedBy};

pub use request::{StageRequest, StageState, StagedFile, WantedFile};

/// The requests of all clients of a server.
#[derive(Default)]
pub struct StageRequests {
    folders: Vec<RequestFolder>,
    /// The oldest first.
    requests: Mutex<VecDeque<Arc<ListedRequest>>>,
}

/// A request in the list, with its constant properties.
struct ListedRequest {
    id: String,
    user: String,
    files: usize,
    /// `None` once the request is forgotten.
    request: Mutex<Option<StageRequest>>,
}

impl StageRequests {
    /// The requests that are stored in the folders of federations. New ones are stored in the first.
    pub fn open(federations: impl Iterator<Item = PathBuf>) -> Self {
        let folders: Vec<_> = federations.map(|folder| RequestFolder::of(&folder)).collect();
        let mut requests: Vec<_> = folders.iter().flat_map(RequestFolder::read).collect();
        requests.sort_by_key(|kept| kept.request.created_at);
        let requests = requests.into_iter().map(ListedRequest::new).collect();
        StageRequests { folders, requests: Mutex::new(requests) }
    }

    /// Makes a request, whose files each appear once; returns its id.
    ///
    /// # Errors
    /// If it cannot be stored, or its files cannot be pinned.
    pub fn begin(
        &self,
        exports: &Exports,
        user: &str,
        files: Vec<WantedFile>,
    ) -> StorageResult<String> {
        let request = StageRequest::new(files, seconds());
        let (id, pinned) = (request.id.clone(), request.pinned());
        let begun = self.pin_and_keep(exports, KeptRequest { user: user.to_owned(), request });
        match begun {
            Ok(kept) => self.requests.lock().push_back(ListedRequest::new(kept)),
            Err(error) => {
                // A file that cannot be unpinned stays pinned for its lifetime.
                let _ = unpin(exports, &id, &pinned);
                let _ = self.remove(&id);
                return Err(error);
            }
        }
        self.forget_surplus(exports);
        Ok(id)
    }

    /// Pins the files of a new request, looks which are on the disk, and writes it.
    fn pin_and_keep(&self, exports: &Exports, mut kept: KeptRequest) -> StorageResult<KeptRequest> {
        let KeptRequest { user, request } = &mut kept;
        let now = request.created_at;
        let pins = request.extend_pins(now);
        // Pinned before the look, since a file on the disk could leave it in between.
        pin(exports, &request.id, &pins)?;
        let found = find_out(exports, user, request.waiting());
        let over = request.note(found, now);
        unpin(exports, &request.id, &over)?;
        self.keep(&kept)?;
        Ok(kept)
    }

    /// Asks for the files of all waiting requests again, as after a start of the server.
    pub fn resume(&self, exports: &Exports) {
        self.forget_surplus(exports);
        let all: Vec<_> = self.requests.lock().iter().cloned().collect();
        for listed in all {
            let waiting = listed.request.lock().as_ref().map(StageRequest::waiting);
            find_out(exports, &listed.user, waiting.unwrap_or_default());
        }
    }

    /// A user's request in its present state; `None` if there is none.
    ///
    /// # Errors
    /// If its state cannot be stored, or its files cannot be pinned.
    pub fn look(
        &self,
        exports: &Exports,
        user: &str,
        id: &str,
    ) -> StorageResult<Option<StageRequest>> {
        let waiting = self.with_request(user, id, |request| Ok(request.waiting()))?;
        let Some(waiting) = waiting else { return Ok(None) };
        let found = find_out(exports, user, waiting);
        let now = seconds();
        self.with_request(user, id, |request| {
            let mut changed = request.clone();
            let over = changed.note(found, now);
            pin(exports, id, &changed.extend_pins(now))?;
            unpin(exports, id, &over)?;
            self.replace(user, request, changed)?;
            Ok(request.clone())
        })
    }

    /// Cancels files that a user's request waits for; false if a file is not part of the request, `None` if there is no
    /// such request.
    ///
    /// # Errors
    /// If the change cannot be stored, or the pins of the files cannot be ended.
    pub fn cancel(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        paths: &HashSet<StoragePath>,
    ) -> StorageResult<Option<bool>> {
        self.end_pins(exports, (user, id), |request| request.cancel(paths, seconds()))
    }

    /// Ends the pins of files; false if a file is not part of the request, `None` if there is no such request.
    ///
    /// # Errors
    /// If the change cannot be stored, or the pins cannot be ended.
    pub fn release(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        paths: &HashSet<StoragePath>,
    ) -> StorageResult<Option<bool>> {
        self.end_pins(exports, (user, id), |request| request.release(paths))
    }

    /// Forgets a user's request, and ends its pins; false if there is none.
    ///
    /// # Errors
    /// If the pins cannot be ended, or the stored request cannot be removed.
    pub fn delete(&self, exports: &Exports, user: &str, id: &str) -> StorageResult<bool> {
        let Some(listed) = self.find(user, id) else { return Ok(false) };
        let mut request = listed.request.lock();
        let Some(pinned) = request.as_ref().map(StageRequest::pinned) else { return Ok(false) };
        unpin(exports, id, &pinned)?;
        self.remove(id)?;
        *request = None;
        drop(request);
        self.requests.lock().retain(|other| !Arc::ptr_eq(other, &listed));
        Ok(true)
    }

    fn end_pins(
        &self,
        exports: &Exports,
        (user, id): (&str, &str),
        change: impl FnOnce(&mut StageRequest) -> Option<Vec<String>>,
    ) -> StorageResult<Option<bool>> {
        self.with_request(user, id, |request| {
            let mut changed = request.clone();
            let Some(over) = change(&mut changed) else { return Ok(false) };
            unpin(exports, id, &over)?;
            self.replace(user, request, changed)?;
            Ok(true)
        })
    }

    fn find(&self, user: &str, id: &str) -> Option<Arc<ListedRequest>> {
        let requests = self.requests.lock();
        requests.iter().find(|listed| listed.id == id && listed.user == user).cloned()
    }

    /// Runs an operation on a user's request, if there is one, under its lock.
    fn with_request<T>(
        &self,
        user: &str,
        id: &str,
        work: impl FnOnce(&mut StageRequest) -> StorageResult<T>,
    ) -> StorageResult<Option<T>> {
        let Some(listed) = self.find(user, id) else { return Ok(None) };
        listed.request.lock().as_mut().map(work).transpose()
    }

    /// Stores a changed request, if it differs.
    fn replace(
        &self,
        user: &str,
        request: &mut StageRequest,
        changed: StageRequest,
    ) -> StorageResult<()> {
        if *request == changed {
            return Ok(());
        }
        let changed = KeptRequest { user: user.to_owned(), request: changed };
        self.keep(&changed)?;
        *request = changed.request;
        Ok(())
    }

    fn keep(&self, kept: &KeptRequest) -> StorageResult<()> {
        let Some(folder) = self.folders.first() else { return Ok(()) };
        folder.write(kept).map_err(|error| not_kept(&error))
    }

    fn remove(&self, id: &str) -> StorageResult<()> {
        // The request may have been stored when another federation was the first.
        self.folders
            .iter()
            .try_for_each(|folder| folder.remove(id))
            .map_err(|error| not_kept(&error))
    }

    /// Forgets requests, and ends their pins, if there are too many.
    fn forget_surplus(&self, exports: &Exports) {
        for listed in self.take_surplus() {
            let Some(request) = listed.request.lock().take() else { continue };
            let unpinned = unpin(exports, &request.id, &request.pinned());
            // A request that cannot be removed now is read again by the next server.
            let _ = unpinned.and_then(|()| self.remove(&request.id));
        }
    }

    fn take_surplus(&self) -> Vec<Arc<ListedRequest>> {
        let mut requests = self.requests.lock();
        let mut surplus = vec![];
        loop {
            let counted: Vec<_> = requests.iter().map(|listed| listed.counted()).collect();
            let Some(next) = surplus::next_to_forget(&counted) else { return surplus };
            surplus.extend(requests.remove(next));
        }
    }
}

impl ListedRequest {
    fn new(kept: KeptRequest) -> Arc<Self> {
        let KeptRequest { user, request } = kept;
        let (id, files) = (request.id.clone(), request.files.len());
        Arc::new(ListedRequest { id, user, files, request: Mutex::new(Some(request)) })
    }

    fn counted(&self) -> CountedRequest<'_> {
        // A locked request is in use, so it does not count as over.
        let is_over = self.request.try_lock().is_some_and(|request| {
            request.as_ref().is_none_or(|request| request.completed_at.is_some())
        });
        CountedRequest { user: &self.user, files: self.files, is_over }
    }
}

/// Asks for files on behalf of a user, and records which are on the disk.
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
