//! Rewriting the front of a database's file after moving the bytes that lie there.
//!
//! A server of an earlier version allocated the first bytes of a new file as an extent, if the call that
//! lengthens the file overtook the write of its front. A front holds the file's name and the database's UUID;
//! the catalogue has both, and the place of every version.
//!
//! 1. Versions keep their commits, objects and entries; only their ranges change. Snapshots opened later, in
//!    any process, use the new ranges, since the database gets a new epoch. Views opened before keep the old
//!    ones, of which the front overwrites the first bytes.
//! 2. Each step is durable before the next: the bytes are copied, the catalogue refers to the copies, commit
//!    records with old ranges are wiped, the front is written. A repair that was killed in between is
//!    continued by the next one.
//! 3. The exclusive lock keeps writers out, not readers.
//! 4. A rebuild of the catalogue finds each transaction once in the file.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{BlobRange, DatabaseId, DatabaseRow, EnvelopeRange, VersionRow};
use rntuple::tfile::{FileIdentity, RBLOB_KEY_LENGTH};
use rntuple::{BlobSink, EnvelopeKind, EnvelopeLink, Footer, Locator, PageList, read_envelope};

use super::lock_to_mend;
use crate::annex::{self, Annex};
use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::inventory::{self, Inventory};
use crate::storage::commit_record::MAGIC;
use crate::storage::extent::ExtentWriter;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::key_chain;
use crate::storage::scan::{self, FoundRecord};
use crate::transaction::range;
use femtobarn_format::link;

/// Moves the bytes that lie in place of a file's front, and writes the front. Returns how many bytes were
/// moved.
///
/// # Errors
/// `Busy` if a transaction writes to the database; `Closed` if it takes no commits any more; `Corrupt` if a version's
/// metadata cannot be read, so that its bytes are unknown; `Io` or `Full` if the file cannot be written. The next
/// repair continues.
pub(super) fn mend(
    federation: &Federation,
    database: DatabaseId,
    lock_wait: Duration,
) -> Result<u64> {
    let inner = &federation.inner;
    let (_alone, row) = &lock_to_mend(inner, database, lock_wait)?;
    let path = inner.path_of(row);
    let file = Arc::new(DatabaseFile::open_to_write(path.clone())?);
    let identity = identity_of(row, &path)?;
    // The first key follows the front.
    let end = identity.front_size() + RBLOB_KEY_LENGTH as u64;
    let extents = ExtentWriter::new(file.clone(), row.id, row.epoch, inner.catalog.clone())?;
    let mut moving = Relocation {
        source: file.clone(),
        extents: extents.skipping_free(),
        end,
        blobs: HashMap::new(),
        page_lists: HashMap::new(),
        footers: HashMap::new(),
        annexes: HashMap::new(),
        bytes: 0,
    };
    let versions = moving.versions(inner.local()?.all_versions(row.id)?, row)?;
    inner.local()?.relocate(row.id, end, &versions)?;
    wipe_old_records(&file, row, &versions)?;
    write_front(inner, row, &file, &identity)?;
    // Open versions of this process refer to the old ranges.
    inner.versions().clear();
    Ok(moving.bytes)
}

fn identity_of(row: &DatabaseRow, path: &std::path::Path) -> Result<FileIdentity> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    FileIdentity::new(&name, *row.uuid.as_bytes(), file::now())
        .map_err(Error::storage(path.display().to_string()))
}

/// Writes the front, and closes the chain of keys after it.
fn write_front(
    inner: &Inner,
    row: &DatabaseRow,
    file: &DatabaseFile,
    identity: &FileIdentity,
) -> Result<()> {
    let versions = inner.local()?.all_versions(row.id)?;
    let source = Arc::new(DatabaseFile::open(PathBuf::from(&file.path))?);
    let live = Inventory::of(&source, &versions)?;
    let _lock = inner.locks().lock_allocation(row.id)?;
    file.write(&identity.front(), 0)?;
    key_chain::cover(file, &live)?;
    file.sync()
}

/// Overwrites the magic of each commit record that was copied, so that a rebuild finds every transaction
/// once.
fn wipe_old_records(file: &DatabaseFile, row: &DatabaseRow, versions: &[VersionRow]) -> Result<()> {
    let current: HashSet<u64> = versions.iter().map(|version| version.record.offset).collect();
    let source = Arc::new(DatabaseFile::open(file.path.clone())?);
    let found = scan::records(&source, row.uuid, &mut |_| true)?;
    let is_current = |it: &&FoundRecord| current.contains(&it.range.offset);
    let recorded: HashSet<_> =
        found.iter().filter(is_current).map(|it| it.record.transaction).collect();
    for old in found.iter().filter(|it| !is_current(it)) {
        if recorded.contains(&old.record.transaction) {
            file.write(&[0; MAGIC.len()], old.range.offset)?;
        }
    }
    file.sync()
}

/// Moves ranges of versions out of the first `end` bytes of a file.
struct Relocation {
    source: Arc<DatabaseFile>,
    extents: ExtentWriter,
    end: u64,
    /// New ranges by old offset: of blobs, whose bytes stay the same, and of page lists, footers and annexes,
    /// which contain other ranges.
    blobs: HashMap<u64, u64>,
    page_lists: HashMap<u64, EnvelopeLink>,
    footers: HashMap<u64, EnvelopeRange>,
    annexes: HashMap<u64, BlobRange>,
    bytes: u64,
}

impl Relocation {
    /// Copies the ranges of versions before `end`, and returns the versions with their new ranges. All of it
    /// is durable.
    fn versions(
        &mut self,
        mut versions: Vec<VersionRow>,
        row: &DatabaseRow,
    ) -> Result<Vec<VersionRow>> {
        for version in &mut versions {
            version.header.offset = self.blob(version.header.offset, version.header.size)?;
            version.footer = self.footer(version.footer)?;
            version.annex = self.annex(version.annex)?;
        }
        let current = versions.iter().map(|version| version.record.offset).collect();
        let records = self.records(row, &current)?;
        for version in &mut versions {
            version.record = *records.get(&version.record.offset).unwrap_or(&version.record);
        }
        self.extents.flush()?;
        self.extents.sync()?;
        self.extents.trim()?;
        Ok(versions)
    }

    /// The new offset of bytes that contain no ranges.
    fn blob(&mut self, offset: u64, size: u64) -> Result<u64> {
        if offset >= self.end || size == 0 {
            return Ok(offset);
        }
        if let Some(&moved) = self.blobs.get(&offset) {
            return Ok(moved);
        }
        let what = format!("{size} bytes at byte {offset}");
        let bytes = annex::read_bytes(&self.source, offset, size, &what)?;
        let moved = self.write(&bytes)?;
        self.blobs.insert(offset, moved);
        Ok(moved)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<u64> {
        self.bytes += bytes.len() as u64;
        self.extents.write_blob(&[bytes]).map_err(Error::storage("what lies in the front"))
    }

    fn envelope(&mut self, bytes: &[u8]) -> Result<EnvelopeLink> {
        let length = bytes.len() as u64;
        let locator = Locator { offset: self.write(bytes)?, size: length };
        Ok(EnvelopeLink { length, locator })
    }

    fn page_list(&mut self, old: EnvelopeLink) -> Result<EnvelopeLink> {
        if let Some(&known) = self.page_lists.get(&old.locator.offset) {
            return Ok(known);
        }
        let bytes = read_envelope(&self.source, &old, EnvelopeKind::PageList, u64::MAX);
        let list = bytes.and_then(|bytes| PageList::decode(&bytes));
        let mut list = list.map_err(Error::storage("page list"))?;
        let mut is_changed = old.locator.offset < self.end;
        let columns = list.clusters.iter_mut().flat_map(|cluster| &mut cluster.columns);
        for page in columns.flat_map(|column| &mut column.pages) {
            let stored = inventory::page_range(page)?;
            let moved = self.blob(stored.start, stored.end - stored.start)?;
            is_changed |= moved != page.locator.offset;
            page.locator.offset = moved;
        }
        let new = if is_changed { self.envelope(&list.encode())? } else { old };
        self.page_lists.insert(old.locator.offset, new);
        Ok(new)
    }

    fn footer(&mut self, old: EnvelopeRange) -> Result<EnvelopeRange> {
        if let Some(&known) = self.footers.get(&old.offset) {
            return Ok(known);
        }
        let bytes = read_envelope(&self.source, &link(&old), EnvelopeKind::Footer, u64::MAX);
        let footer = bytes.and_then(|bytes| Footer::decode(&bytes));
        let mut footer = footer.map_err(Error::storage("footer"))?;
        let mut is_changed = old.offset < self.end;
        for group in &mut footer.cluster_groups {
            let moved = self.page_list(group.page_list)?;
            is_changed |= moved != group.page_list;
            group.page_list = moved;
        }
        let new = if is_changed { range(&self.envelope(&footer.encode())?) } else { old };
        self.footers.insert(old.offset, new);
        Ok(new)
    }

    fn annex(&mut self, old: BlobRange) -> Result<BlobRange> {
        if let Some(&known) = self.annexes.get(&old.offset) {
            return Ok(known);
        }
        let mut annex = Annex::read(&self.source, old)?;
        let mut is_changed = old.size > 0 && old.offset < self.end;
        for blob in annex.blobs_mut() {
            let moved = self.blob(blob.offset, blob.size)?;
            is_changed |= moved != blob.offset;
            blob.offset = moved;
        }
        let mut written = || annex.write(&mut self.extents).map_err(Error::storage("annex"));
        let new = if is_changed { written()? } else { old };
        self.annexes.insert(old.offset, new);
        Ok(new)
    }

    /// Copies the commit records before `end`, and those of versions (`current`) that state old ranges; returns the new
    /// ranges by old offset. A record beyond `end` that vacuum kept without its version stays, since no version would
    /// distinguish the copy from the original.
    fn records(
        &mut self,
        row: &DatabaseRow,
        current: &HashSet<u64>,
    ) -> Result<HashMap<u64, BlobRange>> {
        let mut moved = HashMap::new();
        for FoundRecord { range, mut record } in
            scan::records(&self.source, row.uuid, &mut |_| true)?
        {
            if range.offset >= self.end && !current.contains(&range.offset) {
                continue;
            }
            let mut is_changed = range.offset < self.end;
            for container in &mut record.containers {
                let before = (container.header, container.footer, container.annex);
                let header = &mut container.header;
                header.offset = *self.blobs.get(&header.offset).unwrap_or(&header.offset);
                let footer = self.footers.get(&container.footer.offset);
                container.footer = *footer.unwrap_or(&container.footer);
                let annex = self.annexes.get(&container.annex.offset);
                container.annex = *annex.unwrap_or(&container.annex);
                is_changed |= before != (container.header, container.footer, container.annex);
            }
            if is_changed {
                let bytes = record.encode();
                let size = bytes.len() as u64;
                moved.insert(range.offset, BlobRange { offset: self.write(&bytes)?, size });
            }
        }
        Ok(moved)
    }
}
