//! An open file of the cache: kept pages, and fetches of the others.
//!
//! 1. A page is fetched once, however many readers wait for it. They get its bytes before the disk has them.
//! 2. A fetch belongs to no reader: a reader that disconnects, or is slow, delays no other. However a fetch ends, its
//!    readers are woken.
//! 3. Only requested or announced ranges are fetched, in whole pages, and of announced ones a few MiB at most.
//! 4. Bytes are returned if the origin's file had this version within a second before they were requested. They are
//!    kept only if it also had it after they had arrived.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;
use xrd::Location;

use super::header::Version;
use super::pages::{KeptPages, PAGE_BYTES, ReadMode, pages_of};
use super::parts::{fetch_of, pages_in, parts};
use super::remotes::{Remote, Remotes};
use super::room::Room;
use super::shared::Shared;
use crate::physical::fetch::Fetch;
use crate::physical::{Metadata, StorageError, StoragePath, StorageResult};

/// Bytes of an announced range that are fetched ahead of its readers.
const AHEAD_BYTES: u64 = 8 << 20;
/// How long a comparison of the version with the origin's is valid.
const COMPARED: Duration = Duration::from_secs(1);
/// Bytes of a file that was changed more recently are not kept: it may change again within the same second, without a
/// change of its time.
const SETTLED: Duration = Duration::from_secs(2);
/// KiB that each fetch counts for at least, so that the number of fetches is limited, too.
const FETCH_KIB_MIN: u64 = 64;

/// A file that at least one client has open.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub shared: Arc<Shared>,
    pub path: StoragePath,
    pub location: Location,
    pub version: Version,
    pub metadata: Metadata,
    /// The folder in which pages are kept, and the file's place in it.
    room: Arc<Room<CachedFile>>,
    stem: PathBuf,
    /// `None` if no page can be kept.
    pages: Option<KeptPages>,
    /// The origin's file, opened when it is needed.
    pub remotes: Remotes,
    /// Fetches by their first page: those in progress, and the latest ones whose pages the disk did not accept.
    fetches: Mutex<BTreeMap<u64, Arc<Fetch>>>,
    /// Whether all pages were kept when it was opened.
    pub is_whole: bool,
}

impl CachedFile {
    /// A file that is not open at the origin yet. If `is_whole`, all its pages are kept: the origin is not needed unless
    /// one is damaged.
    pub(super) fn new(
        shared: Arc<Shared>,
        (path, location): (StoragePath, Location),
        (version, metadata): (Version, Metadata),
        (room, stem, pages): (Arc<Room<CachedFile>>, PathBuf, Option<KeptPages>),
        is_whole: bool,
    ) -> Self {
        CachedFile {
            shared,
            path,
            location,
            version,
            metadata,
            room,
            stem,
            pages,
            remotes: Remotes::default(),
            fetches: Mutex::default(),
            is_whole,
        }
    }

    /// Whether later opens use another folder, since the disk of this one failed.
    pub(super) fn is_given_up(&self) -> bool {
        self.room.failure().is_some()
    }

    /// The kept pages, as long as their disk is used.
    fn pages(&self) -> Option<&KeptPages> {
        self.pages.as_ref().filter(|_| !self.is_given_up())
    }

    /// Fills a buffer with kept bytes of a range; see [`KeptPages::fill`].
    fn fill(&self, offset: u64, buffer: &mut [u8], mode: ReadMode) -> Option<Vec<Range<u64>>> {
        let Some(pages) = self.pages() else {
            return Some(vec![pages_of(offset, buffer.len() as u64)]);
        };
        let lacking = pages.fill(offset, buffer, mode);
        if let Some(error) = pages.take_refusal() {
            self.shared.rooms.note_failure(&self.room, &error);
        }
        lacking
    }

    /// The fetches of these pages: those in progress, and new ones. Pages that were kept meanwhile need none.
    fn fetches_of(self: &Arc<Self>, lacking: &[Range<u64>], reason: Lack) -> Vec<Arc<Fetch>> {
        let mut running = self.fetches.lock();
        let mut found = vec![];
        for run in lacking {
            let mut page = run.start;
            while page < run.end {
                let before = running.range(..=page).next_back();
                if let Some((_, fetch)) = before.filter(|(_, fetch)| page < pages_in(fetch).end) {
                    page = pages_in(fetch).end;
                    found.push(Arc::clone(fetch));
                    continue;
                }
                let next = running.range(page..).next().map_or(run.end, |(first, _)| *first);
                let end = next.min(run.end);
                // A fetch may have ended since the pages were found missing.
                let gap = match (self.pages(), reason) {
                    (Some(pages), Lack::Missing) => pages.lacking(page..end),
                    (Some(_), Lack::Damaged) => self.damaged_in(page..end),
                    _ => vec![page..end],
                };
                for part in gap.into_iter().flat_map(parts) {
                    let first = part.start;
                    let fetch = self.begin(part);
                    running.insert(first, Arc::clone(&fetch));
                    found.push(fetch);
                }
                page = end;
            }
        }
        found
    }

    /// The pages whose bytes differ from those that came from the origin, and those that are not kept.
    fn damaged_in(&self, pages: Range<u64>) -> Vec<Range<u64>> {
        let offset = pages.start * PAGE_BYTES;
        let mut bytes = vec![0; ((pages.end - pages.start) * PAGE_BYTES) as usize];
        let bytes = within(self.version.size, offset, &mut bytes);
        self.fill(offset, bytes, ReadMode::Blocking).unwrap_or_default()
    }

    fn begin(self: &Arc<Self>, pages: Range<u64>) -> Arc<Fetch> {
        let fetch = Arc::new(fetch_of(pages));
        let (file, fetching) = (Arc::clone(self), Arc::clone(&fetch));
        let running = RunningFetch { file, fetch: fetching, is_remembered: false };
        self.shared.origin.tasks.spawn(running.run());
        fetch
    }

    /// Removes a fetch whose pages are kept, or not needed any more.
    pub(super) fn forget(&self, fetch: &Arc<Fetch>) {
        let mut running = self.fetches.lock();
        let first = pages_in(fetch).start;
        if running.get(&first).is_some_and(|known| Arc::ptr_eq(known, fetch)) {
            running.remove(&first);
        }
    }

    async fn fetch(&self, remote: &Remote, pages: Range<u64>) -> StorageResult<Vec<u8>> {
        let offset = pages.start * PAGE_BYTES;
        let end = (pages.end * PAGE_BYTES).min(self.version.size);
        let length = end.saturating_sub(offset);
        let (begun, mut bytes) = (clock::now(), vec![0; length as usize]);
        // Sent before the read, since the origin would answer a later request only after all reads that wait there.
        remote.compare(self, begun.checked_sub(COMPARED).unwrap_or(begun)).await?;
        let reopened = remote.file.times_reopened();
        let read = self.shared.origin.read(&remote.file, offset, &mut bytes).await? as u64;
        if remote.file.times_reopened() != reopened {
            // The bytes may be those of another file, perhaps at another server.
            remote.compare(self, clock::now()).await?;
        }
        if read < length {
            remote.compare(self, begun).await?;
            let what = format!("the origin has fewer bytes of {} than it reported", self.path);
            return Err(StorageError::refused(Errno::EIO, what));
        }
        self.shared.rooms.counts.fetched.fetch_add(length, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Keeps pages; false if the disk does not.
    fn keep(&self, first: u64, bytes: &[u8]) -> bool {
        let room = &self.room;
        let Some(pages) = self.pages().filter(|_| room.has_room()) else { return false };
        if !room.is_kept(&self.stem, self) {
            return false;
        }
        match pages.keep(first, bytes) {
            Ok(disk_bytes) => {
                room.count(disk_bytes, 0);
                true
            }
            Err(error) => {
                self.shared.rooms.note_failure(room, &error);
                false
            }
        }
    }

    /// Whether any change from now on changes the file's time.
    pub(super) fn is_settled(&self) -> bool {
        let changed = Duration::from_secs(self.version.modified.max(0).cast_unsigned());
        let now = clock::utc().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.shared.is_immutable || now.saturating_sub(changed) > SETTLED
    }

    fn count_read(&self, bytes: usize) {
        self.shared.rooms.counts.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Why pages are fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The pages were not kept.
    Missing,
    /// The pages were kept, but their bytes differ from those that came from the origin.
    Damaged,
    /// Whatever is kept by now.
    Any,
}

/// A fetch that ends when it is dropped, even after a failure.
struct RunningFetch {
    file: Arc<CachedFile>,
    fetch: Arc<Fetch>,
    /// Whether it stays in memory.
    is_remembered: bool,
}

impl RunningFetch {
    /// Fetches pages, passes them to the waiting readers, and keeps them.
    async fn run(mut self) {
        let (file, fetch) = (&self.file, &self.fetch);
        let pages = pages_in(fetch);
        let kib = ((pages.end - pages.start) * PAGE_BYTES / 1024).max(FETCH_KIB_MIN);
        let on_the_way = Arc::clone(&file.shared.on_the_way);
        // Opened before the permit is taken: a fetch that waits for an unreachable server must not delay other files.
        let remote = match file.remotes.take(file).await {
            Ok(remote) => remote,
            Err(error) => return fetch.end(Err(error)),
        };
        let _permit = on_the_way.acquire_many_owned(kib as u32).await;
        let fetched = file.fetch(&remote, pages.clone()).await.map(Arc::new);
        let read = clock::now();
        fetch.end(fetched.clone());
        let Ok(bytes) = fetched else { return };
        // Bytes that may be those of another version are neither kept nor passed to later readers.
        if !file.is_settled() || remote.compare(file, read).await.is_err() {
            return;
        }
        let (keeper, first) = (Arc::clone(file), pages.start);
        let kept = tokio::task::spawn_blocking(move || keeper.keep(first, &bytes)).await;
        if !kept.unwrap_or(false) {
            // A client that announced the pages will read them a moment later.
            file.shared.remember(file, fetch);
            self.is_remembered = true;
        }
    }
}

impl Drop for RunningFetch {
    fn drop(&mut self) {
        self.fetch.end(Err(StorageError::refused(Errno::EIO, "internal error of the cache")));
        if !self.is_remembered {
            self.file.forget(&self.fetch);
        }
    }
}

impl CachedFile {
    /// Fills the buffer from `offset` on, unless the file ends before; waits for the pages that are not kept. The range
    /// `ahead` is fetched after these.
    pub(super) fn read_at(
        self: &Arc<Self>,
        offset: u64,
        buffer: &mut [u8],
        mut ahead: Option<Range<u64>>,
    ) -> StorageResult<usize> {
        let buffer = within(self.version.size, offset, buffer);
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut lacking = self.fill(offset, buffer, ReadMode::Blocking).unwrap_or_default();
        // A page that is missing now may be kept a moment later, or be damaged then: it is fetched then. A damaged one
        // may have been replaced by then.
        for reason in [Lack::Missing, Lack::Damaged, Lack::Any] {
            if reason == Lack::Damaged {
                self.count_damaged(&lacking);
            }
            let fetches = self.fetches_of(&lacking, reason);
            if let Some(ahead) = ahead.take() {
                self.will_need(ahead.start, ahead.end - ahead.start);
            }
            for fetch in &fetches {
                fetch.copy_to(&fetch.wait()?, offset, buffer);
            }
            lacking.retain(|run| !is_covered(run, &fetches));
            if lacking.is_empty() {
                break;
            }
            lacking = self.fill(offset, buffer, ReadMode::Blocking).unwrap_or_default();
        }
        self.count_read(buffer.len());
        Ok(buffer.len())
    }

    /// Fills the buffer without blocking; `None` if a page is not kept.
    pub(super) fn try_read_at(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> StorageResult<Option<usize>> {
        let buffer = within(self.version.size, offset, buffer);
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let lacking = self.fill(offset, buffer, ReadMode::NonBlocking);
        let is_there = lacking.is_some_and(|lacking| lacking.is_empty());
        if is_there {
            self.count_read(buffer.len());
        }
        Ok(is_there.then_some(buffer.len()))
    }

    /// Begins to fetch a range, or its first part.
    pub(super) fn will_need(self: &Arc<Self>, offset: u64, size: u64) {
        let size = size.min(self.version.size.saturating_sub(offset)).min(AHEAD_BYTES);
        if size == 0 || self.is_whole {
            return;
        }
        let (file, range) = (Arc::clone(self), pages_of(offset, size));
        self.shared
            .origin
            .tasks
            .spawn_blocking(move || drop(file.fetches_of(&[range], Lack::Missing)));
    }

    /// Counts kept pages whose bytes differ from those that came from the origin.
    fn count_damaged(&self, lacking: &[Range<u64>]) {
        let Some(pages) = self.pages() else { return };
        let count = |runs: &[Range<u64>]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        let missing: u64 = lacking.iter().map(|run| count(&pages.lacking(run.clone()))).sum();
        let damaged = count(lacking).saturating_sub(missing);
        if damaged > 0 {
            self.shared.rooms.counts.damaged.fetch_add(damaged, Ordering::Relaxed);
            tracing::warn!(path = %self.path, damaged, "kept pages are damaged, and fetched again");
        }
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if let Some(pages) = self.pages() {
            pages.touch();
        }
        let remotes = self.remotes.take_all();
        if !remotes.is_empty() {
            // Closing the origin's files needs a task.
            drop(self.shared.origin.tasks.spawn(async move { drop(remotes) }));
        }
        if !self.room.is_within() {
            let room = Arc::clone(&self.room);
            let tasks = &self.shared.origin.tasks;
            drop(tasks.spawn_blocking(move || room.clear_after_close()));
        }
    }
}

/// The part of a buffer that a read from `offset` on can fill.
fn within(size: u64, offset: u64, buffer: &mut [u8]) -> &mut [u8] {
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let fits = buffer.len().min(left);
    &mut buffer[..fits]
}

/// Whether fetches cover all of these pages.
fn is_covered(run: &Range<u64>, fetches: &[Arc<Fetch>]) -> bool {
    let mut pages = run.clone();
    for fetch in fetches {
        let fetched = pages_in(fetch);
        if fetched.contains(&pages.start) {
            pages.start = fetched.end;
        }
    }
    pages.start >= pages.end
}
