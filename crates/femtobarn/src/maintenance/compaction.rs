//! Compaction: fewer and larger clusters, without the values of deleted objects. OIDs stay.
//!
//! 1. The container is locked as by any writer. Readers and older snapshots keep their pages until a vacuum.
//! 2. Indexes and statistics stay valid: they refer to entries, and the values of live objects do not change.
//! 3. The annex lists the objects whose values are gone, so that the next compaction does not rewrite the
//!    same clusters.

use std::ops::Range;
use std::time::Duration;

use femtobarn_catalog::{ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState};
use nix::sys::statvfs::statvfs;
use rntuple::{Compaction, Reader};

use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Federation;
use crate::inventory::{Inventory, Ranges};
use crate::maintenance::republication::{Republication, Revision};
use crate::maintenance::vacuum::{VacuumOptions, VacuumReport};
use crate::progress::{Progress, Watch};
use crate::storage::file::DatabaseFile;
use crate::transaction::range;
use crate::{ContainerOptions, Profile};
use femtobarn_format::link;

/// Options of a compaction.
#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// Rewrites all clusters, even if only their compression changes.
    pub all: bool,
    /// Compression of the new pages; by default that of the container.
    pub compression: Option<Profile>,
    /// How long to wait for the container's lock; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for CompactOptions {
    fn default() -> Self {
        let lock_wait = Duration::from_secs(10);
        CompactOptions { all: false, compression: None, lock_wait }
    }
}

/// The result of compacting one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Its path, such as `run7/events`.
    pub path: String,
    /// The commit of its new version; `None` if compaction would gain nothing.
    pub csn: Option<Csn>,
    /// Clusters before.
    pub clusters_before: u64,
    /// Clusters now.
    pub clusters: u64,
    /// Bytes that the version used before.
    pub bytes_before: u64,
    /// Bytes that the version uses now. Vacuum frees those of the old one.
    pub bytes: u64,
    /// Deleted objects whose values were removed.
    pub forgotten: u64,
}

/// The result of tidying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidyReport {
    /// The compacted containers.
    pub containers: Vec<Compacted>,
    /// The vacuum that followed.
    pub vacuum: VacuumReport,
}

impl Federation {
    /// Compacts a container, such as `run7/events`, or all containers of a database, such as `run7`. Each
    /// container that gains by it gets a new version in a commit of its own.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Closed` for a database that takes no changes, or if `progress` stops
    /// the compaction; `Busy` if a transaction writes a container; `Full`, with the bytes needed and, for a
    /// local disk, free, if the disk cannot hold the old and the new version; `Io` if a file cannot be read
    /// or written.
    pub fn compact(
        &self,
        path: &str,
        options: &CompactOptions,
        progress: &mut Watch<'_>,
    ) -> Result<Vec<Compacted>> {
        let (database, container) = match path.split_once('/') {
            Some((database, container)) => (database, Some(container)),
            None => (path, None),
        };
        let database = self.catalog().database(database, Csn::MAX)?;
        if database.state != DatabaseState::Open {
            let (name, state) = (&database.name, database.state);
            return Err(Error::Closed {
                what: format!("database {name:?} is {state} and read-only"),
            });
        }
        let containers: Vec<ContainerRow> = match container {
            Some(name) => vec![self.catalog().container(database.id, name, Csn::MAX)?],
            None => self.catalog().containers(database.id, Csn::MAX)?,
        };
        let one = |row: &ContainerRow| {
            let compacted = self.compact_one(database.id, row.id, options, progress);
            compacted.map_err(|error| self.with_disk_space(&database, row, error))
        };
        containers.iter().map(one).collect()
    }

    /// Adds to the error of a full disk the bytes that are needed and free.
    fn with_disk_space(&self, database: &DatabaseRow, row: &ContainerRow, error: Error) -> Error {
        // The catalogue may be on another disk.
        if error.kind() != ErrorKind::Full || matches!(error, Error::Catalogue(_)) {
            return error;
        }
        let version = self.catalog().version(database.id, row.id, Csn::MAX).ok().flatten();
        let needed = version.map_or(0, |version| version.bytes);
        let path = self.inner.path_of(database);
        // For a federation on a server, its disk is unknown here.
        let free = statvfs(&path).map(|disk| disk.blocks_available() * disk.fragment_size());
        let free = free.map_or_else(|_| "is full".to_owned(), |bytes| format!("has {bytes} free"));
        let what = format!(
            "compacting {}/{} needs about {needed} bytes, and the disk of {} {free}; the container did not \
             change. Vacuum frees the bytes written and those that no snapshot needs; compact one container \
             at a time, each followed by a vacuum",
            database.name,
            row.name,
            path.display()
        );
        let source = std::io::Error::new(std::io::ErrorKind::StorageFull, error.to_string());
        Error::Io { what, source }
    }

    /// Compacts all containers of one database, or of all databases that take commits, then vacuums.
    ///
    /// # Errors
    /// The errors of [`compact`](Self::compact) and [`vacuum`](Self::vacuum).
    pub fn tidy(
        &self,
        database: Option<&str>,
        compact: &CompactOptions,
        vacuum: &VacuumOptions,
        progress: &mut Watch<'_>,
    ) -> Result<TidyReport> {
        let names: Vec<String> = match database {
            Some(name) => vec![name.to_owned()],
            None => {
                let mut rows = self.catalog().databases(Csn::MAX)?;
                rows.retain(|row| row.state == DatabaseState::Open);
                rows.into_iter().map(|row| row.name).collect()
            }
        };
        let mut containers = vec![];
        for name in names {
            containers.extend(self.compact(&name, compact, progress)?);
        }
        Ok(TidyReport { containers, vacuum: self.vacuum(vacuum, progress)? })
    }

    fn compact_one(
        &self,
        database: DatabaseId,
        container: ContainerId,
        options: &CompactOptions,
        progress: &mut Watch<'_>,
    ) -> Result<Compacted> {
        let mut publishing = Republication::begin(self, database, container, options.lock_wait)?;
        let (path, base) = (publishing.path(), publishing.base);
        let extents = publishing.extents()?;
        let source = extents.file().clone();
        let reader = Reader::from_links(source.clone(), &link(&base.header), &link(&base.footer))
            .map_err(Error::storage(&path))?;
        let mut annex = Annex::read(&*source, base.annex)?;
        let dead = dead_entries(&source, &annex, base.entries)?;
        let mut layout = ContainerOptions::from_json(&publishing.container.options)?;
        layout.compression = options.compression.unwrap_or(layout.compression);
        let compaction =
            Compaction { options: layout.write_options(), dead: &dead, all: options.all };
        let mut is_stopped = false;
        let mut report_progress = |done: u64| {
            let doing = "compacting";
            let now = Progress { doing, of: path.clone(), done, total: base.entries };
            is_stopped |= !progress(&now);
        };
        let extents = publishing.extents()?;
        let current = link(&base.footer);
        let revised =
            rntuple::compact(&reader, extents, current, &compaction, &mut report_progress)
                .map_err(Error::storage(&path))?;
        if is_stopped {
            return Err(Error::Closed { what: format!("compacting {path} was stopped") });
        }
        let forgotten = dead.iter().map(|range| range.end - range.start).sum();
        let mut report = Compacted {
            path: path.clone(),
            csn: None,
            clusters_before: revised.clusters_before,
            clusters: revised.clusters,
            bytes_before: base.bytes,
            bytes: base.bytes,
            forgotten: 0,
        };
        if revised.footer == current && dead.is_empty() {
            return Ok(report);
        }
        annex.forgotten.clone_from(&annex.deletions);
        let extents = publishing.extents()?;
        let written = annex.write(extents).map_err(Error::storage(&path))?;
        extents.flush()?;
        let mut row = base;
        (row.footer, row.annex) = (range(&revised.footer), written);
        row.record = Default::default();
        row.bytes = Inventory::of(&*source, &[row])?.total();
        report.csn = Some(publishing.commit(Revision::of(&row), &format!("compact {path}"))?);
        report.bytes = row.bytes;
        report.forgotten = forgotten;
        Ok(report)
    }
}

/// The deleted entries whose values are still stored.
fn dead_entries(source: &DatabaseFile, annex: &Annex, entries: u64) -> Result<Vec<Range<u64>>> {
    let live_of = |listed: &[crate::annex::DeletionChunk]| {
        let count = listed.iter().map(|chunk| chunk.count).sum();
        Deletions::new(listed, count, entries)?.live(source, 0..entries)
    };
    let whole = || std::iter::once(0..entries).collect::<Ranges>();
    let mut dead = whole();
    live_of(&annex.deletions)?.into_iter().for_each(|range| dead.remove(range));
    let mut forgotten = whole();
    live_of(&annex.forgotten)?.into_iter().for_each(|range| forgotten.remove(range));
    dead.remove_all(&forgotten);
    Ok(dead.iter().collect())
}
