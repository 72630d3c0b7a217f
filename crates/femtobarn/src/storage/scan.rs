//! Finding commit records in a database file, without a catalogue.
//!
//! Blobs start at multiples of 8 bytes, so records are looked for there, in the whole file, whatever
//! the chain of keys is like. A record of another database, such as in a copy of a file that is kept
//! as somebody's bytes, is passed over.

use std::collections::BTreeMap;
use std::ops::Range;

use femtobarn_catalog::{BlobRange, ContainerId};
use rntuple::ByteSource;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::frame::PREAMBLE;
use crate::storage::commit_record::{CommitRecord, ContainerRecord, MAGIC};

/// Bytes searched at a time.
const SEARCH_BYTES: u64 = 1 << 20;
/// Longest commit record that is believed.
const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Records start at multiples of this.
const ALIGNMENT: usize = 8;

/// A commit record, and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub range: BlobRange,
    pub record: CommitRecord,
}

/// The records of a database in its file, in the order in which they lie there. `searched` hears of
/// every few bytes and stops the search by answering no.
pub(crate) fn records(
    source: &dyn ByteSource,
    database: Uuid,
    searched: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Found>> {
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
    each: &mut dyn FnMut(Found),
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

/// The record at a position, if there is one and it is whole.
fn record_at(source: &dyn ByteSource, offset: u64) -> Result<Option<Found>> {
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
    // What is not whole was never finished, or is damaged; then what it says is not known.
    Ok(CommitRecord::at(source, range).ok().map(|record| Found { range, record }))
}

/// A database as its own commit records tell it.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    /// The newest record.
    pub last: CommitRecord,
    /// The newest version of each container.
    pub containers: BTreeMap<ContainerId, ContainerRecord>,
    /// Records of the federation that the database was in last.
    pub records: u64,
}

impl Newest {
    /// The state that records lead to; none if there are none.
    ///
    /// Whether a transaction also reached its other databases, and was committed, one file cannot
    /// tell. Of two records with the same base the later one counts: containers are locked from the
    /// time that the base is looked up, so the earlier one was never committed.
    pub fn of(mut found: Vec<Found>) -> Option<Self> {
        found.sort_by_key(|it| (it.record.time_us, it.range.offset));
        let federation = found.last()?.record.federation;
        found.retain(|it| it.record.federation == federation);
        found.sort_by_key(|it| (it.record.after, it.record.time_us, it.range.offset));
        let records = found.len() as u64;
        let mut containers: BTreeMap<ContainerId, ContainerRecord> = BTreeMap::new();
        for Found { record, .. } in &found {
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
        Some(Newest { last: found.pop()?.record, containers, records })
    }
}
