//! Synthesis of the parts that make an open database a complete ROOT file: its front, and an end with anchors, list of
//! keys, streamer information, and the metadata that plain RNTuple readers need.
//!
//! ```text
//! front | key  | stored ... | key  | stored ... | key: page lists, footers | anchors, list of keys, ...
//! synth.  synth. the file     synth. the file     synthesised                synthesised
//! ```
//!
//! 1. Bytes that the versions refer to are read from the file, at the same offsets. Everything between them is zero,
//!    since transactions may be writing there, except for synthesised keys that keep the chain of keys complete.
//! 2. The synthesised parts depend only on the file's path and the versions of its containers. These are the key of the cache.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
use super::error::synthesis_error;
use super::source::StoredFileSource;
use crate::physical::{Metadata, StorageResult, StoredFile};

/// Blobs start at multiples of this.
const ALIGNMENT: u64 = 8;
/// The most bytes that are synthesised for one database: page lists, and pages of columns whose representation changed.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Bytes that are synthesised for all open files together.
const ALL_BYTES_MAX: u64 = 1 << 30;
/// The number of databases that the cache is sized for; the limit is in bytes.
const CACHED_EXPECTED: usize = 256;

/// Synthesises the missing parts of databases, and caches them.
pub(super) struct FileSynthesizer {
    cache: Cache<SynthesisKey, Arc<SynthesizedFile>, ByMemory>,
    budget: Arc<Budget>,
}

/// The synthesised parts of a database, with the layout of the complete file.
#[derive(Debug)]
pub(super) struct SynthesizedFile {
    pub(super) layout: CompositeLayout,
    /// The time of the newest commit, in microseconds since 1970.
    time_us: i64,
    /// A hash of the versions of containers, which makes the file's id: other versions give another id.
    number: u64,
    _share: Share,
}

/// The versions that determine the synthesised parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SynthesisKey {
    database: DatabaseId,
    path: String,
    /// Name, commit and footer of each container.
    containers: Vec<(String, Csn, u64)>,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<SynthesisKey, Arc<SynthesizedFile>> for ByMemory {
    fn weight(&self, _versions: &SynthesisKey, parts: &Arc<SynthesizedFile>) -> u64 {
        parts.layout.memory() + size_of::<SynthesizedFile>() as u64
    }
}

impl FileSynthesizer {
    pub(super) fn new(memory: u64) -> Self {
        let cache = Cache::with_weighter(CACHED_EXPECTED, memory, ByMemory);
        FileSynthesizer { cache, budget: Budget::new(ALL_BYTES_MAX) }
    }

    /// The parts of a database with these versions. Of concurrent calls for the same versions one synthesises, and the
    /// others wait for its result.
    pub(super) fn synthesize(
        &self,
        catalogue: &dyn Catalogue,
        row: &DatabaseRow,
        versions: &[(ContainerRow, VersionRow)],
        file: &Arc<dyn StoredFile>,
    ) -> StorageResult<Arc<SynthesizedFile>> {
        let container = |(container, version): &(ContainerRow, VersionRow)| {
            (container.name.clone(), version.csn, version.footer.offset)
        };
        let key = SynthesisKey {
            database: row.id,
            path: row.path.clone(),
            containers: versions.iter().map(container).collect(),
        };
        self.cache.get_or_insert_with(&key, || {
            let parts = synthesize(catalogue, row, versions, file, self.budget.share());
            let parts = parts.map_err(|error| synthesis_error(row, error))?;
            Ok(Arc::new(SynthesizedFile { number: number_of(&key), ..parts }))
        })
    }
}

impl SynthesizedFile {
    /// The metadata of the complete file, from those of the file on disk.
    pub(super) fn metadata(&self, metadata: Metadata) -> Metadata {
        let time = time_of(self.time_us);
        Metadata {
            id: metadata.id ^ self.number,
            size: self.layout.size(),
            modified: time,
            changed: time,
            accessed: time,
            ..metadata
        }
    }
}

fn number_of(versions: &SynthesisKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    versions.hash(&mut hasher);
    hasher.finish()
}

fn synthesize(
    catalogue: &dyn Catalogue,
    row: &DatabaseRow,
    versions: &[(ContainerRow, VersionRow)],
    file: &Arc<dyn StoredFile>,
    share: Share,
) -> femtobarn_format::Result<SynthesizedFile> {
    let source: Arc<dyn ByteSource> = Arc::new(StoredFileSource(Arc::clone(file)));
    let storage = |source| Error::Storage { what: format!("database {}", row.name), source };
    let identity = FileIdentity::read(&*source).map_err(storage)?;
    let newest = versions.iter().map(|(_, version)| version.csn).max().unwrap_or(row.created);
    let time_us = catalogue.commit_by_csn(newest)?.time_us;
    let modified = Timestamp::from_unix(time_us.div_euclid(1_000_000));

    let live = live(&*source, row, versions, &identity)?;
    let front_size = identity.front_size();
    let end = live.iter().last().map_or(front_size, |range| range.end);
    let mut parts = keys(&live, front_size..end, modified).map_err(storage)?;

    let mut tail = FileTail::new(end, share);
    let anchors = completion::complete(catalogue, row, versions, &source, &mut tail)?;
    let (mut tail, share) = tail.finish(modified).map_err(storage)?;
    let end_of_blobs = end + tail.len() as u64;
    let sealing =
        Sealing { identity: &identity, end: end_of_blobs, anchors: &anchors, gaps: &[], modified };
    let sealed = tfile::seal(&sealing).map_err(storage)?;
    tail.extend_from_slice(&sealed.tail);
    parts.extend([(0, sealed.front), (end, tail)]);
    Ok(SynthesizedFile {
        layout: CompositeLayout::new(live.iter(), parts),
        time_us,
        number: 0,
        _share: share,
    })
}

/// The ranges of the file that the versions refer to, including the alignment gaps between blobs.
///
/// # Errors
/// [`Error::Corrupt`] if a range lies in the file's front or past its end.
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
            what: format!("database {}: bytes {range:?} lie outside {possible:?}", row.name),
        }),
    }
}

/// A chain of as few keys as possible that spans `range`, with headers outside the live ranges; empty if there is no
/// space for it. RNTuple readers do not follow the chain.
fn keys(
    live: &Ranges,
    range: Range<u64>,
    written: Timestamp,
) -> rntuple::Result<Vec<(u64, Vec<u8>)>> {
    const ROOM: u64 = RBLOB_KEY_LENGTH as u64;
    let ends = live.iter().map(|range| range.end);
    let starts = live.iter().map(|range| range.start);
    let dead = [range.start].into_iter().chain(ends).zip(starts);
    let starts_of_gaps: Vec<_> =
        dead.filter(|(start, end)| end - start >= ROOM).map(|(start, _)| start).collect();
    let mut keys = vec![];
    let mut at = range.start;
    while at < range.end {
        let reach = at + KEY_SIZE_MAX;
        let next = if range.end <= reach {
            Some(range.end)
        } else {
            starts_of_gaps.iter().rev().copied().find(|start| *start <= reach)
        };
        let Some(next) = next.filter(|next| *next > at && starts_of_gaps.contains(&at)) else {
            return Ok(vec![]);
        };
        keys.push((at, rblob_key_header(at, next - at - ROOM, written)?.to_vec()));
        at = next;
    }
    Ok(keys)
}

/// The synthesised end of a file: a key that holds all new blobs.
struct FileTail {
    at: u64,
    bytes: Vec<u8>,
    share: Share,
}

impl FileTail {
    fn new(at: u64, share: Share) -> Self {
        FileTail { at, bytes: vec![0; RBLOB_KEY_LENGTH], share }
    }

    /// The key with all blobs, and its header filled in.
    fn finish(mut self, written: Timestamp) -> rntuple::Result<(Vec<u8>, Share)> {
        let payload = self.bytes.len() - RBLOB_KEY_LENGTH;
        let header = rblob_key_header(self.at, payload as u64, written)?;
        self.bytes[..RBLOB_KEY_LENGTH].copy_from_slice(&header);
        Ok((self.bytes, self.share))
    }
}

impl BlobSink for FileTail {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        let end = self.at + self.bytes.len() as u64;
        let offset = end.next_multiple_of(ALIGNMENT);
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.len() + size > FILE_BYTES_MAX {
            return Err(rntuple::Error::Io {
                what: format!(
                    "present the open database: more than {} MiB would have to be rewritten (page lists of \
                     changed clusters, 32-bit offsets of early containers); seal it and read the sealed file",
                    FILE_BYTES_MAX >> 20
                ),
                source: Errno::EFBIG.into(),
            });
        }
        if !self.share.grow(size as u64) {
            return Err(rntuple::Error::Io {
                what: "too many open databases are being presented; try again later".to_owned(),
                source: Errno::EAGAIN.into(),
            });
        }
        self.bytes.resize(self.bytes.len() + (offset - end) as usize, 0);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(offset)
    }
}

/// A time of the catalogue, in microseconds since 1970.
pub(super) fn time_of(time_us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(time_us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rntuple::tfile::decode_key_header;

    use super::*;

    /// Fails unless the keys cover the range without a gap, and none overwrites live bytes.
    fn assert_chain(keys: &[(u64, Vec<u8>)], range: Range<u64>, live: &Ranges) {
        let mut end = range.start;
        for (at, header) in keys {
            let key = decode_key_header(header).unwrap();
            assert_eq!((*at, key.position), (end, end));
            assert!(key.size <= KEY_SIZE_MAX);
            let occupied = *at..at + header.len() as u64;
            assert!(
                live.iter().all(|range| range.end <= occupied.start || occupied.end <= range.start)
            );
            end = at + key.size;
        }
        assert_eq!(end, range.end);
    }

    #[test]
    fn keys_of_a_large_file_overwrite_no_live_bytes() {
        const EXTENT: u64 = 300 << 20;
        let extents = (0..20).map(|n| 1000 + n * EXTENT + 42..1000 + (n + 1) * EXTENT);
        let live: Ranges = extents.collect();
        let range = 1000..1000 + 20 * EXTENT;
        let keys = keys(&live, range.clone(), Timestamp::default()).unwrap();
        assert_chain(&keys, range, &live);
        assert_eq!(keys.len(), 7, "as few keys as possible");
    }

    #[test]
    fn a_range_without_space_for_a_key_gets_none() {
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
