//! The commit records of a database file, found without a catalogue.
//!
//! Blobs start at multiples of 8 bytes. The search tries all of these offsets, so a damaged chain of keys hides no
//! record. Records of other databases are left out, such as those in a copy of a file that is stored as the content of
//! an object.

use std::collections::BTreeMap;
use std::ops::Range;

use femtobarn_catalog::{BlobRange, ContainerId};
use rntuple::ByteSource;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::frame::PREAMBLE;
use crate::storage::commit_record::{CommitRecord, MAGIC, RecordedVersion};

/// Bytes searched at a time.
const SEARCH_BYTES: u64 = 1 << 20;
/// The length of the longest commit record that is accepted.
const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Records start at multiples of this.
const ALIGNMENT: usize = 8;

/// A commit record and its range in the file.
#[derive(Clone, Debug)]
pub(crate) struct FoundRecord {
    pub range: BlobRange,
    pub record: CommitRecord,
}

/// The records of a database in its file, by offset. `searched` is called with the size of each searched piece, and
/// stops the search by returning false.
pub(crate) fn records(
    source: &dyn ByteSource,
    database: Uuid,
    searched: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<FoundRecord>> {
    let size = source.size().map_err(Error::storage("file"))?;
    let mut found = vec![];
    records_in(source, 0..size, searched, &mut |record| found.push(record))?;
    found.retain(|found| found.record.database == database);
    Ok(found)
}

/// Calls `each` with every record that starts in a range of bytes.
pub(crate) fn records_in(
    source: &dyn ByteSource,
    range: Range<u64>,
    searched: &mut dyn FnMut(u64) -> bool,
    each: &mut dyn FnMut(FoundRecord),
) -> Result<()> {
    let mut start = range.start.next_multiple_of(ALIGNMENT as u64);
    let mut bytes = vec![];
    while start < range.end {
        let size = SEARCH_BYTES.min(range.end - start);
        bytes.resize(size as usize, 0);
        source.read_at(start, &mut bytes).map_err(Error::storage("commit records"))?;
        for (at, word) in bytes.chunks_exact(ALIGNMENT).enumerate() {
            if word == MAGIC
                && let Some(found) = record_at(source, start + (at * ALIGNMENT) as u64)?
            {
                each(found);
            }
        }
        if !searched(size) {
            return Ok(());
        }
        start += size;
    }
    Ok(())
}

/// The record at an offset, if its checksum holds.
fn record_at(source: &dyn ByteSource, offset: u64) -> Result<Option<FoundRecord>> {
    let size = source.size().map_err(Error::storage("file"))?;
    let mut preamble = [0; PREAMBLE];
    if offset.saturating_add(PREAMBLE as u64) > size {
        return Ok(None);
    }
    source.read_at(offset, &mut preamble).map_err(Error::storage("commit record"))?;
    let length = preamble[MAGIC.len()..].first_chunk().copied().map_or(0, u64::from_le_bytes);
    let left = size - offset - PREAMBLE as u64;
    if length > left.min(RECORD_BYTES_MAX) {
        return Ok(None);
    }
    let range = BlobRange { offset, size: PREAMBLE as u64 + length };
    // A record whose checksum does not hold was never finished, or is damaged.
    Ok(CommitRecord::at(source, range).ok().map(|record| FoundRecord { range, record }))
}

/// The newest state of a database, according to its commit records.
#[derive(Clone, Debug)]
pub(crate) struct NewestState {
    /// The newest record.
    pub last: CommitRecord,
    /// The newest version of each container.
    pub containers: BTreeMap<ContainerId, RecordedVersion>,
    /// Number of records of the federation that the database was in last.
    pub records: u64,
}

impl NewestState {
    /// The state after all records; `None` without records.
    ///
    /// One file cannot tell whether a transaction also wrote its records into its other databases, and was
    /// committed. Of two records with the same base the later one counts: a container is locked from the lookup
    /// of the base on, so the earlier one was never committed.
    pub(crate) fn of(mut found: Vec<FoundRecord>) -> Option<Self> {
        found.sort_by_key(|it| (it.record.time_us, it.range.offset));
        let federation = found.last()?.record.federation;
        found.retain(|it| it.record.federation == federation);
        found.sort_by_key(|it| (it.record.after, it.record.time_us, it.range.offset));
        let records = found.len() as u64;
        let mut containers: BTreeMap<ContainerId, RecordedVersion> = BTreeMap::new();
        for FoundRecord { record, .. } in &found {
            if record.is_whole {
                containers.clear();
            }
            for container in &record.containers {
                let known = containers.get(&container.id);
                if known.is_none_or(|known| known.base <= container.base) {
                    containers.insert(container.id, container.clone());
                }
            }
            for (id, name) in &record.renamed {
                if let Some(container) = containers.get_mut(id) {
                    container.name.clone_from(name);
                }
            }
            record.dropped.iter().for_each(|id| drop(containers.remove(id)));
        }
        Some(NewestState { last: found.pop()?.record, containers, records })
    }
}
