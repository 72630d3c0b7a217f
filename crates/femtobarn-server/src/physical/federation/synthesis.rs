//! What makes a database that is being written a complete ROOT file: its front, and an end with anchors,
//! list of keys, streamer information, and what readers other than Femtobarn need besides.
//!
//! ```text
//! front | key | stored ... | key | stored ... | key: page lists, footers | anchors, list of keys, ...
//! made    made  the file     made  the file     made                       made
//! ```
//!
//! 1. Bytes that the versions refer to are those of the file, at the same place. Between them others may
//!    be writing: what nobody refers to is zero here, but for the keys that the file's own are replaced
//!    by, so that the chain of keys is whole.
//! 2. All is made of the file's identity and the versions alone. So what is made is known by them, and
//!    kept for the next who asks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, ContainerRow, Csn, DatabaseId, DatabaseRow, VersionRow};
use femtobarn_format::inventory::{Inventory, Ranges};
use femtobarn_format::{Error, completion};
use nix::errno::Errno;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rntuple::tfile::{
    self, FileIdentity, KEY_SIZE_MAX, RBLOB_KEY_LENGTH, Sealing, Timestamp, rblob_key_header,
};
use rntuple::{BlobSink, ByteSource};

use super::budget::{Budget, Share};
use super::composite::CompositeLayout;
use super::source::Source;
use super::time_of;
use crate::physical::{Metadata, StorageError, StorageResult, StoredFile};

/// Blobs start at multiples of this.
const ALIGNMENT: u64 = 8;
/// Bytes that are made up for one database at most: page lists and, of columns whose representation
/// changed, pages.
const MADE_BYTES_MAX: usize = 256 << 20;
/// Bytes that are made up for all that are open.
const ALL_BYTES_MAX: u64 = 1 << 30;
/// When to come again if others have all that.
const LATER: Duration = Duration::from_secs(5);
/// Entries of the cache, about.
const KEPT_MAX: usize = 256;

/// Makes databases complete, and keeps what it made.
pub(super) struct FileSynthesizer {
    kept: Cache<Versions, Arc<MadeUp>, ByMemory>,
    budget: Arc<Budget>,
}

/// A database as a complete file.
#[derive(Debug)]
pub(super) struct MadeUp {
    pub(super) mosaic: CompositeLayout,
    /// When it was committed, in microseconds since 1970.
    time_us: i64,
    /// Tells it from the same database with other versions.
    number: u64,
    _share: Share,
}

/// What decides what is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Versions {
    database: DatabaseId,
    path: String,
    /// Name, commit and footer of each container.
    containers: Vec<(String, Csn, u64)>,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<Versions, Arc<MadeUp>> for ByMemory {
    fn weight(&self, _versions: &Versions, made: &Arc<MadeUp>) -> u64 {
        made.mosaic.memory() + size_of::<MadeUp>() as u64
    }
}

impl FileSynthesizer {
    pub(super) fn new(memory: u64) -> Self {
        let kept = Cache::with_weighter(KEPT_MAX, memory, ByMemory);
        FileSynthesizer { kept, budget: Budget::new(ALL_BYTES_MAX) }
    }

    /// A database with these versions; those who ask for the same at once wait for one of them.
    pub(super) fn make(
        &self,
        catalogue: &dyn Catalogue,
        row: &DatabaseRow,
        versions: &[(ContainerRow, VersionRow)],
        file: &Arc<dyn StoredFile>,
    ) -> StorageResult<Arc<MadeUp>> {
        let container = |(container, version): &(ContainerRow, VersionRow)| {
            (container.name.clone(), version.csn, version.footer.offset)
        };
        let known = Versions {
            database: row.id,
            path: row.path.clone(),
            containers: versions.iter().map(container).collect(),
        };
        self.kept.get_or_insert_with(&known, || {
            let made = make(catalogue, row, versions, file, self.budget.share());
            let made = made.map_err(|error| trouble(row, error))?;
            Ok(Arc::new(MadeUp { number: number_of(&known), ..made }))
        })
    }
}

impl MadeUp {
    /// What is known of it, where `metadata` are those of the file.
    pub(super) fn metadata(&self, metadata: Metadata) -> Metadata {
        let time = time_of(self.time_us);
        Metadata {
            id: metadata.id ^ self.number,
            size: self.mosaic.size(),
            modified: time,
            changed: time,
            accessed: time,
            ..metadata
        }
    }
}

fn number_of(versions: &Versions) -> u64 {
    let mut hasher = DefaultHasher::new();
    versions.hash(&mut hasher);
    hasher.finish()
}

fn make(
    catalogue: &dyn Catalogue,
    row: &DatabaseRow,
    versions: &[(ContainerRow, VersionRow)],
    file: &Arc<dyn StoredFile>,
    share: Share,
) -> femtobarn_format::Result<MadeUp> {
    let source: Arc<dyn ByteSource> = Arc::new(Source(Arc::clone(file)));
    let storage = |source| Error::Storage { what: format!("database {}", row.name), source };
    let identity = FileIdentity::read(&*source).map_err(storage)?;
    let newest = versions.iter().map(|(_, version)| version.csn).max().unwrap_or(row.created);
    let time_us = catalogue.commit_by_csn(newest)?.time_us;
    let modified = Timestamp::from_unix(time_us.div_euclid(1_000_000));

    let live = live(&*source, row, versions, &identity)?;
    let front_size = identity.front_size();
    let end = live.iter().last().map_or(front_size, |range| range.end);
    let mut made = keys(&live, front_size..end, modified).map_err(storage)?;

    let mut tail = Tail::new(end, share);
    let anchors = completion::complete(catalogue, row, versions, &source, &mut tail)?;
    let (mut tail, share) = tail.finish(modified).map_err(storage)?;
    let end_of_blobs = end + tail.len() as u64;
    let sealing =
        Sealing { identity: &identity, end: end_of_blobs, anchors: &anchors, gaps: &[], modified };
    let sealed = tfile::seal(&sealing).map_err(storage)?;
    tail.extend_from_slice(&sealed.tail);
    made.extend([(0, sealed.front), (end, tail)]);
    Ok(MadeUp {
        mosaic: CompositeLayout::new(live.iter(), made),
        time_us,
        number: 0,
        _share: share,
    })
}

/// The bytes of the file that the versions refer to, which all lie behind its front, and what is between
/// blobs for alignment.
fn live(
    source: &dyn ByteSource,
    row: &DatabaseRow,
    versions: &[(ContainerRow, VersionRow)],
    identity: &FileIdentity,
) -> femtobarn_format::Result<Ranges> {
    let (mut live, mut inventory) = (Ranges::default(), Inventory::new(source));
    for (_, version) in versions {
        inventory.visit(version, &mut |_, range| {
            live.insert_with_gaps(range, ALIGNMENT - 1);
            Ok(())
        })?;
    }
    let size = source.size();
    let size = size.map_err(|source| Error::Storage { what: row.name.clone(), source })?;
    let possible = identity.front_size()..size;
    let is_beyond = |range: &Range<u64>| range.start < possible.start || range.end > possible.end;
    let beyond = live.iter().find(is_beyond);
    match beyond {
        None => Ok(live),
        Some(range) => Err(Error::Corrupt {
            what: format!("database {}: bytes {range:?} of it are not in {possible:?}", row.name),
        }),
    }
}

/// Keys that follow each other through `range`, where nothing is alive, few and long; none if there is
/// no room for them, which no reader of RNTuples minds.
fn keys(
    live: &Ranges,
    range: Range<u64>,
    written: Timestamp,
) -> rntuple::Result<Vec<(u64, Vec<u8>)>> {
    const ROOM: u64 = RBLOB_KEY_LENGTH as u64;
    let ends = live.iter().map(|range| range.end);
    let starts = live.iter().map(|range| range.start);
    let dead = [range.start].into_iter().chain(ends).zip(starts);
    let places: Vec<_> =
        dead.filter(|(start, end)| end - start >= ROOM).map(|(start, _)| start).collect();
    let mut keys = vec![];
    let mut at = range.start;
    while at < range.end {
        let reach = at + KEY_SIZE_MAX;
        let next = match range.end <= reach {
            true => Some(range.end),
            false => places.iter().rev().copied().find(|place| *place <= reach),
        };
        let Some(next) = next.filter(|next| *next > at && places.contains(&at)) else {
            return Ok(vec![]);
        };
        keys.push((at, rblob_key_header(at, next - at - ROOM, written)?.to_vec()));
        at = next;
    }
    Ok(keys)
}

/// The made-up end of a file, which begins as a key that holds blobs.
struct Tail {
    at: u64,
    bytes: Vec<u8>,
    share: Share,
}

impl Tail {
    fn new(at: u64, share: Share) -> Self {
        Tail { at, bytes: vec![0; RBLOB_KEY_LENGTH], share }
    }

    /// The key with all blobs.
    fn finish(mut self, written: Timestamp) -> rntuple::Result<(Vec<u8>, Share)> {
        let payload = self.bytes.len() - RBLOB_KEY_LENGTH;
        let header = rblob_key_header(self.at, payload as u64, written)?;
        self.bytes[..RBLOB_KEY_LENGTH].copy_from_slice(&header);
        Ok((self.bytes, self.share))
    }
}

impl BlobSink for Tail {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        let end = self.at + self.bytes.len() as u64;
        let offset = end.next_multiple_of(ALIGNMENT);
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.len() + size > MADE_BYTES_MAX {
            return Err(rntuple::Error::Io {
                what: format!(
                    "show it while it is open: over {} MiB would have to be written anew (page lists of what \
                     has changed, 32-bit offsets of early containers); seal it and read it as a sealed file",
                    MADE_BYTES_MAX >> 20
                ),
                source: Errno::EFBIG.into(),
            });
        }
        if !self.share.grow(size as u64) {
            return Err(rntuple::Error::Io {
                what: "too much else is shown at this moment".to_owned(),
                source: Errno::EAGAIN.into(),
            });
        }
        self.bytes.resize(self.bytes.len() + (offset - end) as usize, 0);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(offset)
    }
}

/// Why a database cannot be shown.
pub(super) fn trouble(row: &DatabaseRow, error: Error) -> StorageError {
    let shown = format!("database {}", row.name);
    let errno = match error {
        Error::Catalogue(error) => return super::trouble("open", &shown, error),
        Error::Storage { source: rntuple::Error::Io { ref source, .. }, .. } => {
            source.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
        }
        _ => Errno::EIO,
    };
    let what = format!("cannot open {shown}: {error}");
    match errno {
        Errno::EAGAIN => StorageError::NotBefore(LATER, what),
        _ => StorageError::refused(errno, what),
    }
}

#[cfg(test)]
mod tests {
    use rntuple::tfile::decode_key_header;

    use super::*;

    /// Fails unless keys cover a range without a hole, and none lies where something is alive.
    fn assert_chain(keys: &[(u64, Vec<u8>)], range: Range<u64>, live: &Ranges) {
        let mut end = range.start;
        for (at, header) in keys {
            let key = decode_key_header(header).unwrap();
            assert_eq!((*at, key.position), (end, end));
            assert!(key.size <= KEY_SIZE_MAX);
            let place = *at..at + header.len() as u64;
            assert!(live.iter().all(|range| range.end <= place.start || place.end <= range.start));
            end = at + key.size;
        }
        assert_eq!(end, range.end);
    }

    #[test]
    fn keys_of_a_large_file_begin_where_nothing_is_alive() {
        const EXTENT: u64 = 300 << 20;
        let extents = (0..20).map(|n| 1000 + n * EXTENT + 42..1000 + (n + 1) * EXTENT);
        let live: Ranges = extents.collect();
        let range = 1000..1000 + 20 * EXTENT;
        let keys = keys(&live, range.clone(), Timestamp::default()).unwrap();
        assert_chain(&keys, range, &live);
        assert_eq!(keys.len(), 7, "as few as there can be");
    }

    #[test]
    fn where_there_is_no_room_for_keys_there_are_none() {
        let none = |live: Option<Range<u64>>, range: Range<u64>| {
            let live = live.into_iter().collect();
            assert_eq!(keys(&live, range, Timestamp::default()).unwrap(), []);
        };
        none(Some(1000..5000), 1000..5000);
        none(Some(1041..5000), 1000..5000);
        none(Some(1042..3 << 30), 1000..3 << 30);
        none(None, 1000..1000);
        let live: Ranges = std::iter::once(1042..5000).collect();
        let keys = keys(&live, 1000..5000, Timestamp::default()).unwrap();
        assert_chain(&keys, 1000..5000, &live);
    }
}
