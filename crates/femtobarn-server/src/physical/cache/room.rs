//! A folder in which files are kept, and its limit.
//!
//! 1. Above the limit, and when the disk is full, the files that were closed or first read the longest ago are evicted,
//!    except open ones, until a tenth is free.
//! 2. If open files alone exceed the limit, no more pages are kept until some of them are closed.
//! 3. If the settings say so, unused files are evicted after a time, too.
//! 4. One process keeps files in a folder. Files of other kinds in it are not touched.
//! 5. The folder is read for the list of the next files to be evicted at most every few seconds.
//! 6. A folder whose disk has failed is given up: nothing is looked up in it any more, or removed from it.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use femtobarn_catalog::clock;
use md5::{Digest, Md5};
use parking_lot::Mutex;

use super::header::TABLE;
use super::pages::{self, BYTES, KeptPages};

/// The pause after a failed attempt to free space; and, on a full disk, the pause after a successful one.
const CLEAR_AGAIN: Duration = Duration::from_secs(1);
/// How long the list of the next files to be evicted is reused.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The length of the list of the next files to be evicted.
pub(super) const LEAVING_MAX: usize = 20;
/// The file that is locked by the process which keeps files here.
const LOCK: &str = "lock";
/// Letters of a kept file's name.
const NAME_LETTERS: usize = 32;

/// A folder of kept files; `F` is an open file.
#[derive(Debug)]
pub(super) struct Room<F> {
    folder: PathBuf,
    bytes_max: u64,
    /// Bytes on the disk, as far as known: counted at the start and when files are evicted, estimated in between.
    used: AtomicU64,
    open: Mutex<HashMap<PathBuf, Weak<F>>>,
    /// The time of the last failed attempt to free space. Held while space is freed.
    cleared: Mutex<Option<Instant>>,
    /// When files left last to make room.
    made_room: Mutex<Option<Instant>>,
    /// The list of the next files to be evicted, and its time. Held while the folder is read for it.
    looked: Mutex<Option<(Instant, LeavingFiles)>>,
    /// Why the folder is not used any more.
    failure: OnceLock<String>,
    /// The counts of all folders of the cache.
    counts: Arc<CacheCounts>,
    _lock: File,
}

/// Sums over a cache since the server started.
#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Bytes that readers got.
    pub read: AtomicU64,
    /// Bytes that came from the origin.
    pub fetched: AtomicU64,
    /// Bytes of files that left to make room.
    pub evicted: AtomicU64,
    /// Pages whose checksum did not match the bytes on the disk.
    pub damaged: AtomicU64,
    /// How many times a disk refused to store or to return pages.
    pub failures: AtomicU64,
}

/// The usage of a disk by a cache, or of all its disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Bytes on the disk.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
}

/// The files of a cache that leave next.
#[derive(Clone, Debug, Default)]
pub struct LeavingFiles {
    /// The number of all kept files.
    pub kept: u64,
    /// The next files to be evicted. Open ones are last: they stay until they are closed.
    pub first: Vec<LeavingFile>,
}

/// A kept file in the order of eviction.
#[derive(Clone, Debug)]
pub struct LeavingFile {
    /// The origin, and the path there: `host:1094/store/run7.root`. Empty if the file's header is damaged.
    pub name: Vec<u8>,
    /// Bytes on the disk.
    pub bytes: u64,
    /// When the file was closed or first read.
    pub used: SystemTime,
    /// Whether the file is open.
    pub is_open: bool,
}

impl<F> Room<F> {
    /// Opens the folder.
    ///
    /// # Errors
    /// If it cannot be read, or another process keeps files in it.
    pub(super) fn open(
        folder: &Path,
        bytes_max: u64,
        counts: Arc<CacheCounts>,
    ) -> io::Result<Self> {
        let lock = File::options().append(true).create(true).open(folder.join(LOCK))?;
        lock.try_lock().map_err(|_| io::Error::other("another server keeps files in it"))?;
        let used = kept_files(folder)?.iter().map(|(_, bytes, _)| bytes).sum();
        Ok(Room {
            folder: folder.to_owned(),
            bytes_max,
            used: AtomicU64::new(used),
            open: Mutex::default(),
            cleared: Mutex::default(),
            made_room: Mutex::default(),
            looked: Mutex::default(),
            failure: OnceLock::new(),
            counts,
            _lock: lock,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Why the folder is not used any more; `None` while it is used.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Gives the folder up; the first given reason is kept.
    pub(super) fn give_up(&self, why: String) {
        let _ = self.failure.set(why);
    }

    /// The path of a kept file, without the extension. Its header has the whole name.
    pub(super) fn stem(&self, name: &[u8]) -> PathBuf {
        let digest = Md5::digest(name);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(digits)
    }

    /// The open file at a path if it is the expected one, or else a new one.
    pub(super) fn open_file(
        &self,
        stem: &Path,
        is_meant: impl Fn(&F) -> bool,
        new: impl FnOnce() -> F,
    ) -> Arc<F> {
        let mut open = self.open.lock();
        let found = open.get(stem).and_then(Weak::upgrade);
        if let Some(file) = found.filter(|file| is_meant(file)) {
            return file;
        }
        let before = taken(stem);
        let file = Arc::new(new());
        self.count(taken(stem), before);
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(stem.to_owned(), Arc::downgrade(&file));
        file
    }

    /// Counts bytes that the disk has more, and less.
    pub(super) fn count(&self, more: u64, less: u64) {
        // The closure always returns a value, so this cannot fail.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some((used + more).saturating_sub(less))
        });
    }

    /// Whether pages may be kept, after evictions if necessary.
    pub(super) fn has_room(&self) -> bool {
        if self.failure().is_some() {
            return false;
        }
        if !self.is_within() {
            self.clear(self.bytes_max, || !self.is_within());
        }
        self.is_within()
    }

    /// Frees space above the limit after a file was closed, which may be evicted now.
    pub(super) fn clear_after_close(&self) {
        *self.cleared.lock() = None;
        self.has_room();
    }

    /// Frees space on a disk that is full below the limit; false if too few files can be evicted. Of many concurrent
    /// writes that the disk refused, one frees space.
    pub(super) fn shrink(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let is_needed = || self.made_room.lock().is_none_or(|when| when.elapsed() >= CLEAR_AGAIN);
        used > 0 && self.clear(used.min(self.bytes_max), is_needed)
    }

    pub(super) fn is_within(&self) -> bool {
        self.used.load(Ordering::Relaxed) <= self.bytes_max
    }

    pub(super) fn usage(&self) -> CacheUse {
        CacheUse { used: self.used.load(Ordering::Relaxed), limit: self.bytes_max }
    }

    /// The next files to be evicted: a list of the last seconds, or a new one from the whole folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn leaving(&self) -> io::Result<LeavingFiles> {
        let mut looked = self.looked.lock();
        if let Some((when, found)) = &*looked
            && when.elapsed() < LOOK_AGAIN
        {
            return Ok(found.clone());
        }
        let found = self.find_leaving()?;
        *looked = Some((clock::now(), found.clone()));
        Ok(found)
    }

    fn open_stems(&self) -> HashSet<PathBuf> {
        let open = self.open.lock();
        let used = open.iter().filter(|(_, file)| file.strong_count() > 0);
        used.map(|(stem, _)| stem.clone()).collect()
    }

    fn find_leaving(&self) -> io::Result<LeavingFiles> {
        let open = self.open_stems();
        let (mut kept, mut first) = (0, BinaryHeap::new());
        for found in kept_stems(&self.folder)? {
            let (used, stem) = found?;
            kept += 1;
            first.push((open.contains(&stem), used, stem));
            if first.len() > LEAVING_MAX {
                first.pop();
            }
        }
        let told = |(is_open, used, stem): (bool, SystemTime, PathBuf)| LeavingFile {
            // A file that has left meanwhile has no name any more.
            name: KeptPages::name(&stem).ok().flatten().unwrap_or_default(),
            bytes: taken(&stem),
            used,
            is_open,
        };
        Ok(LeavingFiles { kept, first: first.into_sorted_vec().into_iter().map(told).collect() })
    }

    /// Removes the kept pages of a file. Clients that have it open can continue to read, but keep no more pages.
    pub(super) fn remove(&self, stem: &Path) {
        let mut open = self.open.lock();
        open.remove(stem);
        let before = taken(stem);
        pages::remove(stem);
        self.count(taken(stem), before);
    }

    /// Whether a file is the one that is kept at a path.
    pub(super) fn is_kept(&self, stem: &Path, file: &F) -> bool {
        self.open.lock().get(stem).is_some_and(|kept| std::ptr::eq(kept.as_ptr(), file))
    }

    /// Removes the files that were unused for this time.
    pub(super) fn clear_idle(&self, idle: Duration) {
        let Ok(kept) = kept_files(&self.folder) else { return };
        let since = clock::utc().checked_sub(idle);
        let is_idle = |used: SystemTime| since.is_some_and(|since| used < since);
        for (_, _, stem) in kept.into_iter().filter(|(used, ..)| is_idle(*used)) {
            // The file may have been used since it was listed.
            self.count(0, self.leave(&stem, || last_use(&stem).is_ok_and(is_idle)));
        }
    }

    /// Removes a file, unless it is open or `may_leave` returns false. Returns the freed bytes of the disk.
    fn leave(&self, stem: &Path, may_leave: impl Fn() -> bool) -> u64 {
        // Held during the removal, so that no thread begins to use the file.
        let open = self.open.lock();
        if open.get(stem).is_some_and(|file| file.strong_count() > 0) || !may_leave() {
            return 0;
        }
        let before = taken(stem);
        pages::remove(stem);
        let freed = before.saturating_sub(taken(stem));
        self.counts.evicted.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// Removes files until nine tenths of `most` bytes are left, if that is still needed when the lock is held. Returns
    /// whether that succeeded; a failure is remembered for a second.
    fn clear(&self, most: u64, is_needed: impl Fn() -> bool) -> bool {
        let mut last = self.cleared.lock();
        if !is_needed() {
            return true;
        }
        if last.is_some_and(|last| last.elapsed() < CLEAR_AGAIN) {
            return false;
        }
        let Ok(mut kept) = kept_files(&self.folder) else { return false };
        kept.sort();
        let before: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        let mut used = before;
        for (_, _, stem) in kept {
            if used <= most - most / 10 {
                break;
            }
            used = used.saturating_sub(self.leave(&stem, || true));
        }
        self.used.store(used, Ordering::Relaxed);
        if used < before {
            *self.made_room.lock() = Some(clock::now());
        }
        let has_room = used <= most - most / 10;
        *last = (!has_room).then(clock::now);
        has_room
    }
}

/// Makes the folder of a cache. Only the server's user may read it, and its files: the origin may admit fewer users
/// than this machine has.
///
/// # Errors
/// If it cannot be made.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The last use, the bytes on the disk and the stem of each kept file.
fn kept_files(folder: &Path) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
    let with_bytes = |found: io::Result<(SystemTime, PathBuf)>| {
        found.map(|(used, stem)| (used, taken(&stem), stem))
    };
    kept_stems(folder)?.map(with_bytes).collect()
}

/// The last use and the stem of each kept file.
fn kept_stems(
    folder: &Path,
) -> io::Result<impl Iterator<Item = io::Result<(SystemTime, PathBuf)>> + use<>> {
    let kept = |path: PathBuf| {
        let stem = path.with_extension("");
        let name = stem.file_name().unwrap_or_default().as_encoded_bytes();
        let is_kept = path.extension().is_some_and(|extension| extension == BYTES)
            && name.len() == NAME_LETTERS
            && name.iter().all(u8::is_ascii_hexdigit);
        is_kept.then(|| last_use(&stem).ok()).flatten().map(|used| (used, stem))
    };
    let entries = fs::read_dir(folder)?;
    Ok(entries.filter_map(move |entry| entry.map(|entry| kept(entry.path())).transpose()))
}

/// When a file was closed or first read last.
fn last_use(stem: &Path) -> io::Result<SystemTime> {
    fs::metadata(stem.with_extension(BYTES)).and_then(|found| found.modified())
}

/// Bytes on the disk.
fn taken(stem: &Path) -> u64 {
    let of = |extension| pages::blocks(fs::metadata(stem.with_extension(extension)));
    [TABLE, BYTES].map(of).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::super::header::Version;
    use super::*;

    #[test]
    fn the_next_files_to_be_evicted_are_listed_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::<()>::open(folder.path(), 1 << 20, Arc::default()).unwrap();
        let keep = |number: u64| {
            let name = format!("host:1094/run{number}");
            let stem = room.stem(name.as_bytes());
            let version = Version { id: 1, size: 5, modified: 2 };
            KeptPages::open(&stem, name.as_bytes(), version, |_| true)
                .unwrap()
                .keep(0, b"12345")
                .unwrap();
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - number);
            File::open(stem.with_extension(BYTES)).unwrap().set_modified(used).unwrap();
            stem
        };
        let stems: Vec<_> = (0..30).map(keep).collect();
        let open = room.open_file(&stems[29], |()| true, || ());
        fs::write(stems[28].with_extension(TABLE), b"damaged").unwrap();
        fs::write(folder.path().join("notes.bytes"), b"not ours").unwrap();
        let told = room.leaving().unwrap();
        assert_eq!((told.kept, told.first.len()), (30, LEAVING_MAX));
        let names: Vec<_> = told
            .first
            .iter()
            .map(|file| String::from_utf8_lossy(&file.name).into_owned())
            .collect();
        assert_eq!(names[..3], ["", "host:1094/run27", "host:1094/run26"], "what is open stays");
        assert!(told.first.iter().all(|file| file.bytes > 0 && !file.is_open));
        drop(open);
        keep(31);
        assert_eq!(room.leaving().unwrap().kept, 30, "nobody looks again at once");
        *room.looked.lock() = None;
        assert_eq!(room.leaving().unwrap().first[0].name, b"host:1094/run31");
    }
}
