//! Bytes of a server's files that are kept on a disk here, also for later processes.
//!
//! 1. A mirror has bytes of one file in one epoch, at the places where the file has them: what a commit
//!    refers to is written once and never changed within an epoch. So nothing is compared with the server.
//!    A catalogue that was restored or made again has begun new epochs.
//! 2. A range counts for other processes once its bytes are durable: its record comes after that. What comes
//!    behind a record that does not hold is left out. A record names the commit that refers to the bytes; if
//!    the federation has another one in place of the newest, as a copy that went another way, the mirror goes.
//! 3. Mirrors that were used least recently go first when all have more bytes than they may.
//! 4. Whatever fails here fails no read: the server has the bytes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use femtobarn_catalog::{Csn, DatabaseRow};
use rangemap::RangeSet;
use rntuple::ReadRequest;
use twox_hash::XxHash3_64;
use uuid::Uuid;

use crate::storage::remote::prefetch_buffer::lock;

/// Bytes that are kept before they are made durable and known to others.
const UNSYNCED_MAX: u64 = 32 << 20;
/// Where a range begins and ends, its commit's number and time, and the checksum of these.
const RECORD_BYTES: usize = 40;
const BYTES: &str = "bytes";
/// With the version of the records: those of another one are not looked at.
const RANGES: &str = "ranges-1";

/// A commit, so that another one of the same number is told from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitMark {
    pub csn: Csn,
    pub time_us: i64,
}

/// A folder of mirrors, for one federation.
#[derive(Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    bytes_max: u64,
    open: Mutex<HashMap<PathBuf, Weak<Mirror>>>,
}

/// What is kept of one file in one epoch.
#[derive(Debug)]
pub(crate) struct Mirror {
    cache: Arc<DiskCache>,
    bytes: File,
    ranges: File,
    /// Whether it was removed to make room.
    is_gone: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    have: RangeSet<u64>,
    /// What others do not know of yet.
    unsynced: Vec<(Range<u64>, CommitMark)>,
    unsynced_bytes: u64,
}

impl DiskCache {
    /// The mirrors of a federation, of so many bytes at most.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn open(folder: &Path, federation: Uuid, bytes_max: u64) -> io::Result<Arc<Self>> {
        let folder = folder.join(federation.to_string());
        fs::create_dir_all(&folder)?;
        let cache = DiskCache { folder, bytes_max, open: Mutex::default() };
        cache.make_room();
        Ok(Arc::new(cache))
    }

    /// The mirror of a database's file; `is_known` tells whether the federation has a commit. None if it
    /// cannot be made.
    pub fn mirror(
        self: &Arc<Self>,
        database: &DatabaseRow,
        is_known: impl Fn(CommitMark) -> bool,
    ) -> Option<Arc<Mirror>> {
        // One that was attached again has another number.
        let DatabaseRow { uuid, id, epoch, .. } = database;
        let stem = self.folder.join(format!("{uuid}-{id}-{epoch}"));
        let mut open = lock(&self.open);
        if let Some(mirror) = open.get(&stem).and_then(Weak::upgrade)
            && !mirror.is_gone.load(Ordering::Relaxed)
        {
            return Some(mirror);
        }
        let mirror = Mirror::open(self.clone(), &stem, is_known).ok()?;
        open.retain(|_, mirror| mirror.strong_count() > 0);
        open.insert(stem, Arc::downgrade(&mirror));
        Some(mirror)
    }

    /// Tells other processes what is in all mirrors.
    pub fn publish(&self) {
        let open: Vec<_> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        open.iter().for_each(|mirror| mirror.publish());
    }

    /// Removes mirrors until there are no more bytes than there may be.
    fn make_room(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut mirrors: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let facts = fs::metadata(&path).ok()?;
                let is_mirror = path.extension().is_some_and(|extension| extension == BYTES);
                // Blocks are of 512 bytes, whatever the file system's are.
                is_mirror.then(|| (facts.modified().ok(), facts.blocks() * 512, path))
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
        if let Some(mirror) = lock(&self.open).remove(stem).and_then(|mirror| mirror.upgrade()) {
            mirror.is_gone.store(true, Ordering::Relaxed);
        }
        remove(stem);
    }
}

/// The records first: without them, the bytes are none.
fn remove(stem: &Path) {
    for extension in [RANGES, BYTES] {
        // Another process may have done it.
        drop(fs::remove_file(stem.with_extension(extension)));
    }
}

impl Mirror {
    fn open(
        cache: Arc<DiskCache>,
        stem: &Path,
        is_known: impl Fn(CommitMark) -> bool,
    ) -> io::Result<Arc<Self>> {
        let records = fs::read(stem.with_extension(RANGES)).unwrap_or_default();
        let records: Vec<_> = records.chunks(RECORD_BYTES).map_while(decoded).collect();
        let newest = records.iter().map(|(_, mark)| *mark).max_by_key(|mark| mark.csn);
        let mut state = State::default();
        match newest.is_none_or(is_known) {
            true => state.have.extend(records.into_iter().map(|(range, _)| range)),
            false => remove(stem),
        }
        let open = |extension| {
            let mut options = OpenOptions::new();
            options.read(true).create(true);
            match extension == RANGES {
                true => options.append(true),
                false => options.write(true),
            };
            options.open(stem.with_extension(extension))
        };
        let (bytes, ranges) = (open(BYTES)?, open(RANGES)?);
        // It is used now, whether or not anything is added.
        bytes.set_modified(SystemTime::now())?;
        let (is_gone, state) = (AtomicBool::new(false), Mutex::new(state));
        Ok(Arc::new(Mirror { cache, bytes, ranges, is_gone, state }))
    }

    /// Fills a request; false if not all of it is here.
    pub fn read(&self, request: &mut ReadRequest<'_>) -> bool {
        let range = request.offset..request.offset.saturating_add(request.buffer.len() as u64);
        let has_all = range.is_empty() || lock(&self.state).have.gaps(&range).next().is_none();
        has_all && self.bytes.read_exact_at(request.buffer, request.offset).is_ok()
    }

    /// Keeps bytes that a commit refers to.
    pub fn keep(&self, offset: u64, bytes: &[u8], mark: CommitMark) {
        if bytes.is_empty() || self.is_gone.load(Ordering::Relaxed) {
            return;
        }
        if self.bytes.write_all_at(bytes, offset).is_err() {
            // Part of it may be there; nobody knows of that.
            return;
        }
        let range = offset..offset + bytes.len() as u64;
        let mut state = lock(&self.state);
        state.have.insert(range.clone());
        state.unsynced.push((range, mark));
        state.unsynced_bytes += bytes.len() as u64;
        if state.unsynced_bytes >= UNSYNCED_MAX {
            drop(state);
            self.publish();
            self.cache.make_room();
        }
    }

    /// Tells other processes what was kept, once that is durable.
    fn publish(&self) {
        let (ranges, _) = {
            let mut state = lock(&self.state);
            (std::mem::take(&mut state.unsynced), std::mem::take(&mut state.unsynced_bytes))
        };
        let is_there = self.bytes.metadata().is_ok_and(|facts| facts.nlink() > 0);
        if !is_there {
            // Another process made room: what nobody finds is not worth the disk.
            self.is_gone.store(true, Ordering::Relaxed);
        }
        if !is_there || ranges.is_empty() || self.bytes.sync_data().is_err() {
            return;
        }
        let records: Vec<u8> = ranges.iter().flat_map(encoded).collect();
        // What is lost is fetched again.
        drop((&self.ranges).write_all(&records));
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.publish();
    }
}

fn encoded((range, mark): &(Range<u64>, CommitMark)) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let numbers = [range.start, range.end, mark.csn.0, mark.time_us as u64];
    for (place, number) in record.chunks_exact_mut(size_of::<u64>()).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let (told, checksum) = record.split_at_mut(RECORD_BYTES - size_of::<u64>());
    checksum.copy_from_slice(&XxHash3_64::oneshot(told).to_le_bytes());
    record
}

/// None if the record is not whole, or not what was written.
fn decoded(record: &[u8]) -> Option<(Range<u64>, CommitMark)> {
    let (told, checksum) = record.split_at_checked(RECORD_BYTES - size_of::<u64>())?;
    if XxHash3_64::oneshot(told).to_le_bytes() != checksum {
        return None;
    }
    let mut numbers =
        told.chunks_exact(size_of::<u64>()).flat_map(<[u8; 8]>::try_from).map(u64::from_le_bytes);
    let mut next = || numbers.next();
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

    fn mirror(cache: &Arc<DiskCache>, number: u32) -> Arc<Mirror> {
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
        let is_here = mirror.read(&mut ReadRequest { offset: range.start, buffer: &mut buffer });
        is_here.then_some(buffer)
    }

    #[test]
    fn what_is_kept_is_there_for_who_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        let kept = mirror(&cache(folder.path(), MIB), 1);
        kept.keep(1000, b"abcdef", MARK);
        kept.keep(1006, b"gh", MARK);
        kept.keep(2000, b"xyz", MARK);
        drop(kept);
        let kept = mirror(&cache(folder.path(), MIB), 1);
        assert_eq!(read(&kept, 1002..1008).as_deref(), Some(&b"cdefgh"[..]));
        assert_eq!(read(&kept, 1500..1500).as_deref(), Some(&b""[..]));
        assert_eq!(read(&kept, 999..1003), None);
        assert_eq!(read(&kept, 1000..2003), None, "not all of it is there");
        assert_eq!(read(&kept, u64::MAX - 1..u64::MAX), None);
    }

    #[test]
    fn records_that_do_not_hold_end_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let kept = mirror(&cache(folder.path(), MIB), 1);
        (0..10).for_each(|at| kept.keep(at * 100, &[at as u8; 10], MARK));
        drop(kept);
        let cache = cache(folder.path(), MIB);
        let path = cache.folder.join(format!("{}-1-3.{RANGES}", Uuid::nil()));
        let whole = fs::read(&path).unwrap();
        let known = |records: &[u8]| {
            fs::write(&path, records).unwrap();
            let kept = mirror(&cache, 1);
            let known = (0..10).take_while(|at| read(&kept, at * 100..at * 100 + 10).is_some());
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
    fn a_mirror_goes_if_the_federation_has_another_commit_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        mirror(&cache(folder.path(), MIB), 1).keep(0, b"before", MARK);
        let other = CommitMark { time_us: 99, ..MARK };
        mirror(&cache(folder.path(), MIB), 1).keep(10, b"beside", other);
        let kept = mirror(&cache(folder.path(), MIB), 1);
        assert_eq!(read(&kept, 0..6), None);
        assert_eq!(read(&kept, 10..16), None);
        drop(kept);
        assert_eq!(read(&mirror(&cache(folder.path(), MIB), 1), 0..6), None, "for good");
    }

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), 3 * UNSYNCED_MAX);
        let full = vec![1; UNSYNCED_MAX as usize];
        let mirrors: Vec<_> = (0..5).map(|database| mirror(&cache, database)).collect();
        for mirror in &mirrors {
            mirror.keep(0, &full, MARK);
        }
        let has = |mirror: &Arc<Mirror>| !mirror.is_gone.load(Ordering::Relaxed);
        assert!(!has(&mirrors[0]) && has(&mirrors[4]));
        assert!(read(&mirrors[0], 0..10).is_some(), "who has it open may read it to the end");
        let sizes = fs::read_dir(&cache.folder)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512);
        assert!(sizes.sum::<u64>() <= 4 * UNSYNCED_MAX);
        drop(mirrors);
        assert_eq!(read(&mirror(&cache, 0), 0..10), None);
        assert!(read(&mirror(&cache, 4), 0..10).is_some());
    }
}
