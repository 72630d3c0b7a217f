//! The file of one database at a follower: the bytes that are here, and copying the rest.
//!
//! A version refers to its envelopes, these to page lists, and these to pages. Each level is copied as a whole before
//! the next one is known. Bytes that two versions share are copied once.

use std::ops::Range;

use femtobarn_catalog::{BlobRange, EnvelopeRange, VersionRow};
use memmap2::MmapMut;
use rntuple::{
    ByteSource, CHECKSUM_SIZE, EnvelopeKind, EnvelopeLink, Footer, ReadRequest, read_envelope,
};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::inventory::{self, Inventory, Part, Ranges};
use crate::link;
use crate::storage::extent::ALIGNMENT;
use crate::storage::file::DatabaseFile;
use crate::storage::key_chain;

/// Bytes that are read from the leader at a time, about.
const CHUNK_BYTES: u64 = 8 << 20;
/// The block of a disk, of which writes past the page cache are multiples.
const BLOCK_BYTES: u64 = 4 << 10;
/// Bytes of whole blocks from which on they are written past the page cache.
const DIRECT_BYTES_MIN: u64 = 256 << 10;
/// Gaps of at most this many bytes are copied, too: mostly they are the headers of keys between extents.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Bytes that are copied before a range that begins behind a longer gap: the header of its key is among them.
const BYTES_BEFORE: u64 = 128;

/// A range of the file that has to be here.
#[derive(Clone, Debug)]
struct Wanted {
    range: Range<u64>,
    /// Whether it is a page that ends with the checksum of its preceding bytes.
    is_sealed: bool,
}

impl From<Range<u64>> for Wanted {
    fn from(range: Range<u64>) -> Self {
        Wanted { range, is_sealed: false }
    }
}

/// The file of a database, here and at the leader.
pub(super) struct CopiedFile<'a> {
    pub(super) here: &'a DatabaseFile,
    pub(super) there: &'a DatabaseFile,
    /// The bytes here that versions refer to.
    pub(super) have: &'a mut Ranges,
    pub(super) buffer: &'a mut ChunkBuffer,
    /// Bytes copied.
    pub(super) copied: u64,
    /// Pages whose checksum is wrong at the leader, too. They are copied as they are.
    pub(super) damaged_pages: u64,
}

/// The bytes of the file here that versions refer to; all of them are here.
pub(super) fn bytes_of(here: &DatabaseFile, versions: &[VersionRow]) -> Result<Ranges> {
    let mut have = Ranges::default();
    let mut inventory = Inventory::new(here);
    for version in versions {
        inventory.visit(version, &mut |_, range| {
            have.insert_with_gaps(range, ALIGNMENT - 1);
            Ok(())
        })?;
    }
    Ok(have)
}

impl CopiedFile<'_> {
    /// Copies the bytes that versions refer to and that are not here yet.
    ///
    /// # Errors
    /// `Corrupt` if metadata at the leader are damaged, or no longer belong to these versions; `Io` or `Full` if bytes
    /// cannot be read or written.
    pub(super) fn copy_versions(&mut self, versions: &[VersionRow]) -> Result<()> {
        let mut blobs = vec![];
        for version in versions {
            let envelope = |EnvelopeRange { offset, size, .. }| BlobRange { offset, size };
            let (header, footer) = (envelope(version.header), envelope(version.footer));
            for blob in [header, footer, version.record, version.annex] {
                blobs.push(inventory::blob(blob)?.into());
            }
        }
        self.copy(blobs)?;
        let mut lists = vec![];
        for version in versions {
            lists.extend(self.new_page_lists(version)?);
        }
        lists.sort_by_key(|list| list.locator.offset);
        lists.dedup_by_key(|list| list.locator.offset);
        let ranges = lists.iter().map(|list| Ok(range_of(list)?.into()));
        self.copy(ranges.collect::<Result<_>>()?)?;
        let parts = self.parts_of(versions, &lists)?;
        self.copy(parts)
    }

    /// Copies the leader's front of the file over the follower's own.
    pub(super) fn copy_front(&mut self) -> Result<()> {
        let end = key_chain::front_end(self.there)?;
        let mut front = vec![0; end as usize];
        read(self.there, 0, &mut front)?;
        self.here.write(&front, 0)
    }

    /// Copies all bytes that are not here yet: of a file that does not change any more.
    pub(super) fn copy_rest(&mut self) -> Result<()> {
        let size = size_of(self.there)?;
        let mut rest: Ranges = std::iter::once(0..size).collect();
        rest.remove_all(self.have);
        for range in rest.iter() {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min(start + CHUNK_BYTES);
                self.copy(vec![(start..end).into()])?;
                start = end;
            }
        }
        self.here.cut(size)
    }

    /// The page lists of a version that are not here yet.
    fn new_page_lists(&self, version: &VersionRow) -> Result<Vec<EnvelopeLink>> {
        let bytes =
            read_envelope(self.here, &link(&version.footer), EnvelopeKind::Footer, u64::MAX);
        let footer = bytes.and_then(|bytes| Footer::decode(&bytes));
        let footer = footer.map_err(Error::storage(format!("footer of commit {}", version.csn)))?;
        let mut lists = vec![];
        for group in footer.cluster_groups {
            if !self.have.contains(&range_of(&group.page_list)?) {
                lists.push(group.page_list);
            }
        }
        Ok(lists)
    }

    /// The pages of new page lists, and the blobs of versions, that are not here yet.
    fn parts_of(&self, versions: &[VersionRow], lists: &[EnvelopeLink]) -> Result<Vec<Wanted>> {
        let mut inventory = Inventory::new(self.here);
        let mut parts = vec![];
        let mut collect = |part: Part, range: Range<u64>| {
            let is_sealed = matches!(part, Part::Page(page, _) if page.checksum);
            parts.push(Wanted { range, is_sealed });
            Ok(())
        };
        for list in lists {
            inventory.visit_page_list(list, &mut collect)?;
        }
        for version in versions {
            inventory.visit_annex(version, &mut collect)?;
        }
        Ok(parts)
    }

    /// Copies ranges that are not here yet.
    fn copy(&mut self, mut wanted: Vec<Wanted>) -> Result<()> {
        wanted.retain(|it| !it.range.is_empty() && !self.have.contains(&it.range));
        wanted.sort_unstable_by_key(|it| (it.range.start, it.range.end));
        if let Some(end) = wanted.iter().map(|it| it.range.end).max()
            && end > size_of(self.there)?
        {
            return Err(Error::Corrupt {
                what: format!("{} ends before byte {end}", self.there.path.display()),
            });
        }
        let mut rest = &wanted[..];
        while let Some(Wanted { range: first, .. }) = rest.first() {
            let start = self.start_before(first.start);
            let mut end = first.end;
            let mut count = 1;
            while let Some(Wanted { range: next, .. }) = rest.get(count)
                && next.start <= end.saturating_add(GAP_BYTES_MAX)
                && next.end.max(end) - start <= CHUNK_BYTES
            {
                end = end.max(next.end);
                count += 1;
            }
            let (chunk, others) = rest.split_at(count);
            self.copy_chunk(start..end, chunk)?;
            rest = others;
        }
        Ok(())
    }

    /// Where the copying of a range begins: with the gap before it, or the end of that gap.
    fn start_before(&self, start: u64) -> u64 {
        let before = start.saturating_sub(GAP_BYTES_MAX).max(self.here.front_end).min(start);
        let mut gap: Ranges = std::iter::once(before..start).collect();
        gap.remove_all(self.have);
        match gap.iter().last().filter(|gap| gap.end == start) {
            Some(gap) if gap.start > before => gap.start,
            Some(gap) => gap.start.max(start.saturating_sub(BYTES_BEFORE)),
            None => start,
        }
    }

    fn copy_chunk(&mut self, chunk: Range<u64>, parts: &[Wanted]) -> Result<()> {
        let bytes = self.buffer.of(&chunk)?;
        read(self.there, chunk.start, bytes)?;
        if damaged_in(&chunk, parts, bytes) > 0 {
            read(self.there, chunk.start, bytes)?;
            self.damaged_pages += damaged_in(&chunk, parts, bytes);
        }
        // Bytes that are here are not written again: they may belong to a version that the leader has given up.
        let mut missing: Ranges = std::iter::once(chunk.clone()).collect();
        missing.remove_all(self.have);
        for range in missing.iter() {
            write(self.here, &range, bytes_in(&chunk, &range, bytes))?;
            self.copied += range.end - range.start;
        }
        for part in parts {
            self.have.insert_with_gaps(part.range.clone(), ALIGNMENT - 1);
        }
        Ok(())
    }
}

/// The size of a file at the leader; a size that no file can have is refused.
fn size_of(there: &DatabaseFile) -> Result<u64> {
    let size = there.size()?;
    match i64::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(Error::invalid(format!("{} has {size} bytes", there.path.display()))),
    }
}

/// Writes whole blocks past the page cache if there are many: copying them there costs more than all else.
fn write(here: &DatabaseFile, range: &Range<u64>, bytes: &[u8]) -> Result<()> {
    let (first, last) = (range.start.next_multiple_of(BLOCK_BYTES), range.end / BLOCK_BYTES);
    let blocks = first..last * BLOCK_BYTES;
    if blocks.end.saturating_sub(blocks.start) < DIRECT_BYTES_MIN {
        return here.write(bytes, range.start);
    }
    let (before, rest) = bytes.split_at((blocks.start - range.start) as usize);
    let (within, after) = rest.split_at((blocks.end - blocks.start) as usize);
    here.write(before, range.start)?;
    here.write_past_cache(within, blocks.start)?;
    here.write(after, blocks.end)
}

fn read(there: &DatabaseFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let read = there.read_many(&mut [ReadRequest { offset, buffer }]);
    read.map_err(Error::storage(there.path.display().to_string()))
}

/// Memory for chunks, in which a byte of the file lies at its offset modulo the size of a block, as writes past the
/// page cache require.
#[derive(Default)]
pub(super) struct ChunkBuffer {
    memory: Option<MmapMut>,
}

impl ChunkBuffer {
    fn of(&mut self, chunk: &Range<u64>) -> Result<&mut [u8]> {
        let start = (chunk.start % BLOCK_BYTES) as usize;
        let size = usize::try_from(chunk.end - chunk.start).ok();
        let end = size.and_then(|size| size.checked_add(start));
        let refused = |source: std::io::Error| Error::Io {
            what: format!("cannot get memory for a page of {} bytes", chunk.end - chunk.start),
            source,
        };
        let end = end.ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = match self.memory.take().filter(|memory| memory.len() >= end) {
            Some(memory) => memory,
            None => MmapMut::map_anon(end.max(CHUNK_BYTES as usize)).map_err(refused)?,
        };
        Ok(&mut self.memory.insert(memory)[start..end])
    }
}

/// The number of pages in a chunk whose checksum is wrong.
fn damaged_in(chunk: &Range<u64>, parts: &[Wanted], buffer: &[u8]) -> u64 {
    let sealed = parts.iter().filter(|part| part.is_sealed);
    let is_damaged = |part: &&Wanted| {
        let bytes = bytes_in(chunk, &part.range, buffer);
        let split = bytes.split_last_chunk::<CHECKSUM_SIZE>();
        split.is_none_or(|(page, sum)| XxHash3_64::oneshot(page).to_le_bytes() != *sum)
    };
    sealed.filter(is_damaged).count() as u64
}

fn bytes_in<'b>(chunk: &Range<u64>, range: &Range<u64>, buffer: &'b [u8]) -> &'b [u8] {
    &buffer[(range.start - chunk.start) as usize..(range.end - chunk.start) as usize]
}

fn range_of(list: &EnvelopeLink) -> Result<Range<u64>> {
    let locator = &list.locator;
    Ok(inventory::blob(BlobRange { offset: locator.offset, size: locator.size })?)
}
