//! The disk cache: bytes of a server's files on a local disk, shared by the processes of this machine.
//!
//! 1. A mirror holds bytes of one file in one epoch, at the offsets that they have in the file. Bytes that a commit
//!    refers to are written once and never changed within an epoch, so nothing is compared with the server.
//!    Restoring or rebuilding a catalogue begins new epochs.
//! 2. The record of a range is written after its bytes are durable; only then other processes use it. Records
//!    after a damaged one are ignored.
//! 3. A record names the commit that refers to the bytes. If the federation does not have the newest of these
//!    commits, as after restoring an older copy, the mirror is removed.
//! 4. When all mirrors exceed their limit, the least recently used ones are removed.
//! 5. Bytes may be damaged on the disk. Readers verify them, and replace damaged ones (see `tier`).
//! 6. A user who may read the cache may read bytes that the server shows only to the cache's user. So a folder that is
//!    created is private to that user; an existing one is shared as its owner has set it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use femtobarn_catalog::{Csn, DatabaseRow, clock};
use parking_lot::Mutex;
use rangemap::RangeSet;
use rntuple::ReadRequest;
use twox_hash::XxHash3_64;
use uuid::Uuid;

use super::history::CommitMark;
use super::tier::{FileTier, TierCounts};

/// Bytes that a mirror adds before it makes them durable and records them.
const UNRECORDED_MAX: u64 = 32 << 20;
/// Start and end of a range, number and time of its commit, and the XXH3 of these, each 8 bytes, little-endian.
const RECORD_BYTES: usize = 40;
const BYTES: &str = "bytes";
/// The extension names the version of the records, so that other versions are ignored.
const RANGES: &str = "ranges-1";

/// The mirrors of one federation.
#[derive(Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    bytes_max: u64,
    open: Mutex<HashMap<PathBuf, Weak<Mirror>>>,
    counts: TierCounts,
}

/// The cached bytes of one file in one epoch.
#[derive(Debug)]
pub(crate) struct Mirror {
    cache: Arc<DiskCache>,
    bytes: File,
    ranges: File,
    /// Whether its files were removed to make room. It can still be read.
    is_removed: AtomicBool,
    state: Mutex<MirrorState>,
}

#[derive(Debug, Default)]
struct MirrorState {
    ranges: RangeSet<u64>,
    /// Ranges without a record yet.
    unrecorded: Vec<(Range<u64>, CommitMark)>,
    unrecorded_bytes: u64,
}

impl DiskCache {
    /// Opens the cache of a federation in `folder`, and removes mirrors until there are `bytes_max` at most.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn open(folder: &Path, federation: Uuid, bytes_max: u64) -> io::Result<Arc<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let folder = folder.join(federation.to_string());
        fs::create_dir_all(&folder)?;
        let (open, counts) = (Mutex::default(), TierCounts::default());
        let cache = DiskCache { folder, bytes_max, open, counts };
        cache.make_room();
        Ok(Arc::new(cache))
    }

    /// The mirror of a database's file; `None` if it cannot be opened. `has_commit` returns whether the federation has
    /// a commit.
    pub(crate) fn mirror(
        self: &Arc<Self>,
        database: &DatabaseRow,
        has_commit: impl Fn(CommitMark) -> bool,
    ) -> Option<Arc<Mirror>> {
        // A database that was detached and attached again has another number.
        let DatabaseRow { uuid, id, epoch, .. } = database;
        let stem = self.folder.join(format!("{uuid}-{id}-{epoch}"));
        let mut open = self.open.lock();
        if let Some(mirror) = open.get(&stem).and_then(Weak::upgrade)
            && !mirror.is_removed.load(Ordering::Relaxed)
        {
            return Some(mirror);
        }
        let mirror = Mirror::open(self.clone(), &stem, has_commit).ok()?;
        open.retain(|_, mirror| mirror.strong_count() > 0);
        open.insert(stem, Arc::downgrade(&mirror));
        Some(mirror)
    }

    /// The reads from all mirrors.
    pub(crate) fn counts(&self) -> &TierCounts {
        &self.counts
    }

    /// Records the ranges in all open mirrors, for other processes.
    pub(crate) fn publish(&self) {
        let open: Vec<_> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|mirror| mirror.publish());
    }

    /// Removes the least recently used mirrors until the rest is within the limit.
    fn make_room(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut mirrors: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let metadata = fs::metadata(&path).ok()?;
                let is_mirror = path.extension().is_some_and(|extension| extension == BYTES);
                // `st_blocks` counts units of 512 bytes, whatever the file system's block size is.
                is_mirror.then(|| (metadata.modified().ok(), metadata.blocks() * 512, path))
            })
            .filter_map(|(modified, size, path)| Some((modified?, size, path)))
            .filter(|(_, size, _)| *size > 0)
            .collect();
        mirrors.sort();
        let mut total: u64 = mirrors.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in mirrors {
            if total <= self.bytes_max {
                return;
            }
            self.remove(&path.with_extension(""));
            total -= size;
        }
    }

    fn remove(&self, stem: &Path) {
        if let Some(mirror) = self.open.lock().remove(stem).and_then(|mirror| mirror.upgrade()) {
            mirror.is_removed.store(true, Ordering::Relaxed);
        }
        remove(stem);
    }
}

/// Removes the files of a mirror. The records go first, since bytes without a record are never used.
fn remove(stem: &Path) {
    for extension in [RANGES, BYTES] {
        // Another process may have removed it.
        drop(fs::remove_file(stem.with_extension(extension)));
    }
}

impl Mirror {
    fn open(
        cache: Arc<DiskCache>,
        stem: &Path,
        has_commit: impl Fn(CommitMark) -> bool,
    ) -> io::Result<Arc<Self>> {
        let records = fs::read(stem.with_extension(RANGES)).unwrap_or_default();
        let records: Vec<_> = records.chunks(RECORD_BYTES).map_while(decode).collect();
        let newest = records.iter().map(|(_, mark)| *mark).max_by_key(|mark| mark.csn);
        let mut state = MirrorState::default();
        if newest.is_none_or(has_commit) {
            state.ranges.extend(records.into_iter().map(|(range, _)| range));
        } else {
            remove(stem);
        }
        let open = |extension| {
            let mut options = OpenOptions::new();
            options.read(true).create(true);
            if extension == RANGES {
                options.append(true)
            } else {
                options.write(true)
            };
            options.open(stem.with_extension(extension))
        };
        let (bytes, ranges) = (open(BYTES)?, open(RANGES)?);
        // The time of modification is that of the last use.
        bytes.set_modified(clock::utc())?;
        let (is_removed, state) = (AtomicBool::new(false), Mutex::new(state));
        Ok(Arc::new(Mirror { cache, bytes, ranges, is_removed, state }))
    }

    /// Fills the parts of a request that the mirror has; returns the ranges that it lacks.
    fn read(&self, request: &mut ReadRequest<'_>) -> Vec<Range<u64>> {
        let whole = request.offset..request.offset.saturating_add(request.buffer.len() as u64);
        if whole.is_empty() {
            return vec![];
        }
        let known: Vec<_> = self.state.lock().ranges.overlapping(&whole).cloned().collect();
        let mut lacking = RangeSet::new();
        lacking.insert(whole.clone());
        for range in known {
            let range = range.start.max(whole.start)..range.end.min(whole.end);
            let start = (range.start - whole.start) as usize;
            let part = &mut request.buffer[start..][..(range.end - range.start) as usize];
            if self.bytes.read_exact_at(part, range.start).is_ok() {
                lacking.remove(range);
            } else {
                // The file is shorter than its records claim, or the disk is damaged.
                self.state.lock().ranges.remove(range);
                self.cache.counts.add_damaged(1);
            }
        }
        lacking.into_iter().collect()
    }

    /// Adds bytes that a commit refers to.
    fn add(&self, offset: u64, bytes: &[u8], mark: CommitMark) {
        if bytes.is_empty() {
            return;
        }
        let range = offset..offset + bytes.len() as u64;
        // If they replace damaged ones, and cannot be written, these must not be read again.
        self.state.lock().ranges.remove(range.clone());
        if self.is_removed.load(Ordering::Relaxed)
            || self.bytes.write_all_at(bytes, offset).is_err()
        {
            return;
        }
        let mut state = self.state.lock();
        state.ranges.insert(range.clone());
        state.unrecorded.push((range, mark));
        state.unrecorded_bytes += bytes.len() as u64;
        if state.unrecorded_bytes >= UNRECORDED_MAX {
            drop(state);
            self.publish();
            self.cache.make_room();
        }
    }

    /// Makes the bytes without a record durable, and records them.
    fn publish(&self) {
        let (ranges, _) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.unrecorded), std::mem::take(&mut state.unrecorded_bytes))
        };
        let is_linked = self.bytes.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        if !is_linked {
            // Another process removed the files to make room. No process would find the records.
            self.is_removed.store(true, Ordering::Relaxed);
        }
        if !is_linked || ranges.is_empty() || self.bytes.sync_data().is_err() {
            return;
        }
        let records: Vec<u8> = ranges.iter().flat_map(encode).collect();
        // A lost record only means another fetch.
        drop((&self.ranges).write_all(&records));
    }
}

impl FileTier for Mirror {
    fn counts(&self) -> &TierCounts {
        &self.cache.counts
    }

    fn fill(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Vec<Range<u64>>> {
        requests.iter_mut().map(|request| self.read(request)).collect()
    }

    fn insert(&self, requests: &[ReadRequest<'_>], commit: CommitMark) {
        requests.iter().for_each(|request| self.add(request.offset, request.buffer, commit));
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.publish();
    }
}

fn encode((range, mark): &(Range<u64>, CommitMark)) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let numbers = [range.start, range.end, mark.csn.0, mark.time_us as u64];
    for (place, number) in record.chunks_exact_mut(size_of::<u64>()).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let (numbers, checksum) = record.split_at_mut(RECORD_BYTES - size_of::<u64>());
    checksum.copy_from_slice(&XxHash3_64::oneshot(numbers).to_le_bytes());
    record
}

/// Decodes a record; `None` if it is cut off, or its checksum does not match.
fn decode(record: &[u8]) -> Option<(Range<u64>, CommitMark)> {
    let (numbers, checksum) = record.split_at_checked(RECORD_BYTES - size_of::<u64>())?;
    if XxHash3_64::oneshot(numbers).to_le_bytes() != checksum {
        return None;
    }
    let mut words = numbers
        .chunks_exact(size_of::<u64>())
        .flat_map(<[u8; 8]>::try_from)
        .map(u64::from_le_bytes);
    let mut next = || words.next();
    let range = next()?..next()?;
    let mark = CommitMark { csn: Csn(next()?), time_us: next()? as i64 };
    (!range.is_empty()).then_some((range, mark))
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::{DatabaseId, DatabaseState};

    use super::*;

    const MARK: CommitMark = CommitMark { csn: Csn(7), time_us: 1234 };
    const MIB: u64 = 1 << 20;

    fn cache(folder: &Path, bytes_max: u64) -> Arc<DiskCache> {
        DiskCache::open(folder, Uuid::nil(), bytes_max).unwrap()
    }

    fn open_mirror(cache: &Arc<DiskCache>, number: u32) -> Arc<Mirror> {
        let database = DatabaseRow {
            id: DatabaseId(number),
            uuid: Uuid::nil(),
            name: "run7".to_owned(),
            path: "databases/run7.root".to_owned(),
            state: DatabaseState::Open,
            created: Csn(1),
            epoch: 3,
        };
        cache.mirror(&database, |mark| mark == MARK).unwrap()
    }

    fn read(mirror: &Mirror, range: Range<u64>) -> Option<Vec<u8>> {
        let mut buffer = vec![0; (range.end - range.start) as usize];
        let lacking = mirror.read(&mut ReadRequest { offset: range.start, buffer: &mut buffer });
        lacking.is_empty().then_some(buffer)
    }

    #[test]
    fn inserted_ranges_are_read_by_a_later_process() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = open_mirror(&cache(folder.path(), MIB), 1);
        mirror.add(1000, b"abcdef", MARK);
        mirror.add(1006, b"gh", MARK);
        mirror.add(2000, b"xyz", MARK);
        drop(mirror);
        let mirror = open_mirror(&cache(folder.path(), MIB), 1);
        assert_eq!(read(&mirror, 1002..1008).as_deref(), Some(&b"cdefgh"[..]));
        assert_eq!(read(&mirror, 1500..1500).as_deref(), Some(&b""[..]));
        assert_eq!(read(&mirror, 999..1003), None);
        assert_eq!(read(&mirror, 1000..2003), None, "a part of the range is missing");
        assert_eq!(read(&mirror, u64::MAX - 1..u64::MAX), None);
    }

    #[test]
    fn records_after_a_damaged_one_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = open_mirror(&cache(folder.path(), MIB), 1);
        (0..10).for_each(|at| mirror.add(at * 100, &[at as u8; 10], MARK));
        drop(mirror);
        let cache = cache(folder.path(), MIB);
        let path = cache.folder.join(format!("{}-1-3.{RANGES}", Uuid::nil()));
        let whole = fs::read(&path).unwrap();
        let known = |records: &[u8]| {
            fs::write(&path, records).unwrap();
            let mirror = open_mirror(&cache, 1);
            let known = (0..10).take_while(|at| read(&mirror, at * 100..at * 100 + 10).is_some());
            known.count()
        };
        assert_eq!(known(&whole), 10);
        assert_eq!(known(&whole[..3 * RECORD_BYTES + 1]), 3);
        for bit in 0..RECORD_BYTES * 8 {
            let mut flipped = whole.clone();
            flipped[5 * RECORD_BYTES + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(known(&flipped), 5);
        }
    }

    #[test]
    fn a_mirror_is_removed_if_the_federation_lacks_its_newest_commit() {
        let folder = tempfile::tempdir().unwrap();
        open_mirror(&cache(folder.path(), MIB), 1).add(0, b"before", MARK);
        let other = CommitMark { time_us: 99, ..MARK };
        open_mirror(&cache(folder.path(), MIB), 1).add(10, b"beside", other);
        let mirror = open_mirror(&cache(folder.path(), MIB), 1);
        assert_eq!(read(&mirror, 0..6), None);
        assert_eq!(read(&mirror, 10..16), None);
        drop(mirror);
        assert_eq!(
            read(&open_mirror(&cache(folder.path(), MIB), 1), 0..6),
            None,
            "the mirror is deleted"
        );
    }

    #[test]
    fn the_least_recently_used_mirror_is_removed_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), 3 * UNRECORDED_MAX);
        let full = vec![1; UNRECORDED_MAX as usize];
        let mirrors: Vec<_> = (0..5).map(|database| open_mirror(&cache, database)).collect();
        for mirror in &mirrors {
            mirror.add(0, &full, MARK);
        }
        let has = |mirror: &Arc<Mirror>| !mirror.is_removed.load(Ordering::Relaxed);
        assert!(!has(&mirrors[0]) && has(&mirrors[4]));
        assert!(read(&mirrors[0], 0..10).is_some(), "an open mirror can be read after its removal");
        let sizes = fs::read_dir(&cache.folder)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512);
        assert!(sizes.sum::<u64>() <= 4 * UNRECORDED_MAX);
        drop(mirrors);
        assert_eq!(read(&open_mirror(&cache, 0), 0..10), None);
        assert!(read(&open_mirror(&cache, 4), 0..10).is_some());
    }
}
