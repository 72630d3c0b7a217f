//! Vacuum: taking versions away that nobody needs, and giving their space back.
//!
//! First round, for all databases at once and beside writers:
//! 1. the horizon is raised, and what must be kept is asked for;
//! 2. the catalogue forgets the other versions, and notes the ranges that only they had;
//! 3. holes are punched there, and the ranges are released to writers in a new epoch.
//!
//! Second round, for each database that no transaction has open: what no version refers to is freed
//! in the same way. That is what transactions left that were killed or rolled back.
//!
//! Invariants:
//! 1. What a kept version refers to is in no range that is freed. A database with a kept version
//!    whose metadata cannot be read is left alone.
//! 2. Beside writers only ranges of versions are freed: what they write is no version's yet.
//! 3. Killed at any step, a vacuum is continued by the next one: what was noted and not released is
//!    punched again and released.
//! 4. The commit record of a version that goes stays if it follows a kept version, or if a kept
//!    version was made by the same commit: a catalogue is rebuilt from these.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use femtobarn_catalog::{
    BlobRange, ContainerId, Csn, DatabaseId, DatabaseRow, DatabaseState, KeptSnapshots, LockOwner,
    Purgeable, Vacuumed, VersionRow,
};

use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::inventory::{self, Inventory, Ranges};
use crate::progress::{Progress, Watch};
use crate::storage::commit_record::CommitRecord;
use crate::storage::extent::{ALIGNMENT, FREE_BYTES_MIN};
use crate::storage::file::{self, DatabaseFile};
use crate::storage::key_chain;
use crate::storage::scan;

/// How a vacuum goes about it.
#[derive(Clone, Debug)]
pub struct VacuumOptions {
    /// Changes nothing, and only says what would be done.
    pub dry_run: bool,
    /// The first commit whose snapshot is kept, besides tagged and pinned ones; what retention says
    /// if none is given.
    pub keep_from: Option<Csn>,
    /// How long to wait for another vacuum or a backup; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for VacuumOptions {
    fn default() -> Self {
        VacuumOptions { dry_run: false, keep_from: None, lock_wait: Duration::from_secs(10) }
    }
}

/// What a vacuum did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// The first commit from which on all snapshots are kept.
    pub horizon: Csn,
    /// Snapshots before it that are kept, because they are tagged or being read.
    pub kept: Vec<Csn>,
    /// Versions of containers that went.
    pub versions: u64,
    /// Dropped containers and databases that went altogether.
    pub containers: u64,
    /// Dropped databases that went altogether.
    pub databases: u64,
    /// Bytes that only these versions had.
    pub version_bytes: u64,
    /// Bytes that were nobody's: of transactions that were killed or rolled back.
    pub garbage_bytes: u64,
    /// Files of dropped databases that were removed.
    pub files: Vec<PathBuf>,
    /// Databases that somebody writes to; what is nobody's in them was not looked for.
    pub busy: Vec<String>,
    /// Databases that were left alone, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Whether the vacuum went to its end.
    pub is_complete: bool,
}

impl Federation {
    /// Takes away the versions that neither retention nor a tag nor a reader needs, and gives their
    /// space back: to the file system, and to writers. Others may read and write meanwhile.
    ///
    /// # Errors
    /// `Busy` while another vacuum or a backup runs; `Denied` if the federation can only be read; as
    /// the disk. Run again, it goes on where it was.
    pub fn vacuum(
        &self,
        options: &VacuumOptions,
        progress: &mut Watch<'_>,
    ) -> Result<VacuumReport> {
        let catalog = self.inner.local()?;
        let owner = self.inner.locks().owner();
        let _alone = owner.lock_maintenance(options.lock_wait)?;
        let rows: Vec<DatabaseRow> =
            catalog.every_database()?.into_iter().map(|record| record.row).collect();
        let mut vacuum = Vacuum {
            inner: &self.inner,
            options,
            total: 2 * rows.len() as u64,
            report: VacuumReport { is_complete: true, ..VacuumReport::default() },
            progress,
            done: 0,
        };
        if !options.dry_run {
            for row in &rows {
                vacuum.release(row)?;
            }
        }
        let kept = vacuum.kept()?;
        vacuum.report.horizon = kept.horizon;
        vacuum.report.kept.clone_from(&kept.csns);
        let left = vacuum.first_round(&rows, kept)?;
        for row in &left {
            if vacuum.report.is_complete && row.state == DatabaseState::Open {
                vacuum.second_round(row, &owner)?;
            }
            vacuum.advance(row);
        }
        Ok(vacuum.report)
    }
}

/// A vacuum that is under way.
struct Vacuum<'a, 'p> {
    inner: &'a Inner,
    options: &'a VacuumOptions,
    report: VacuumReport,
    progress: &'a mut Watch<'p>,
    done: u64,
    total: u64,
}

/// What becomes of the versions of one database.
struct DatabaseVersions {
    row: DatabaseRow,
    kept: Vec<VersionRow>,
    dropped: Vec<VersionRow>,
}

impl Vacuum<'_, '_> {
    fn advance(&mut self, row: &DatabaseRow) {
        self.done += 1;
        let progress = Progress {
            doing: "vacuuming",
            of: row.name.clone(),
            done: self.done,
            total: self.total,
        };
        if !(self.progress)(&progress) {
            self.report.is_complete = false;
        }
    }

    fn kept(&self) -> Result<KeptSnapshots> {
        let catalog = self.inner.local()?;
        let from = match self.options.keep_from {
            Some(from) => from,
            None => catalog.retained_from()?,
        };
        if !self.options.dry_run {
            return Ok(catalog.raise_horizon(from)?);
        }
        let horizon = catalog.horizon()?.max(from.min(catalog.head()?));
        let csns = catalog.tags()?.into_iter().map(|tag| tag.csn).filter(|csn| *csn < horizon);
        let mut csns: Vec<Csn> = csns.collect();
        csns.dedup();
        Ok(KeptSnapshots { horizon, csns })
    }

    /// Punches and releases what an earlier vacuum noted, or this one.
    fn release(&self, row: &DatabaseRow) -> Result<()> {
        let catalog = self.inner.local()?;
        let mut waiting = catalog.free_extents(row.id)?;
        waiting.retain(|extent| !extent.is_released);
        if waiting.is_empty() {
            return Ok(());
        }
        let file = DatabaseFile::open_to_write(self.inner.path_of(row))?;
        for extent in waiting {
            file.punch(inventory::blob(extent.range)?)?;
        }
        file.sync()?;
        catalog.release_freed(row.id)?;
        Ok(())
    }

    /// Takes versions away; returns the databases that are left.
    fn first_round(
        &mut self,
        rows: &[DatabaseRow],
        kept: KeptSnapshots,
    ) -> Result<Vec<DatabaseRow>> {
        let purgeable = self.inner.local()?.purgeable(&kept)?;
        let is_purged = |id: DatabaseId| purgeable.databases.iter().any(|it| it.row.id == id);
        let databases = rows.iter().filter(|row| !is_purged(row.id));
        let databases = databases
            .map(|row| self.partition_versions(row, &kept, &purgeable))
            .collect::<Result<Vec<_>>>()?;
        let made: HashSet<Csn> = databases
            .iter()
            .flat_map(|database| &database.kept)
            .map(|version| version.csn)
            .collect();
        let mut vacuumed = Vacuumed {
            kept,
            versions: vec![],
            freed: vec![],
            purged_databases: purgeable.databases.iter().map(|it| it.row.id).collect(),
            purged_containers: vec![],
        };
        for database in &databases {
            let Some(freed) = self.freed(database, &made)? else { continue };
            let of_this = purgeable.containers.iter().filter(|(id, _)| *id == database.row.id);
            vacuumed.purged_containers.extend(of_this);
            let purged = |version: &&VersionRow| {
                !purgeable.containers.contains(&(version.database, version.container))
            };
            let dropped = database.dropped.iter().filter(purged);
            vacuumed.versions.extend(dropped.map(|it| (it.database, it.container, it.csn)));
            self.report.versions += database.dropped.len() as u64;
            self.report.version_bytes += freed.total();
            vacuumed.freed.push((database.row.id, worth_giving(&freed)));
        }
        self.report.databases = vacuumed.purged_databases.len() as u64;
        self.report.containers = vacuumed.purged_containers.len() as u64;
        self.remember_files(&purgeable);
        if !self.options.dry_run {
            self.inner.local()?.vacuum(&vacuumed)?;
            for path in &self.report.files {
                file::remove_if_there(path)?;
            }
            databases.iter().try_for_each(|database| self.release(&database.row))?;
        }
        Ok(databases.into_iter().map(|database| database.row).collect())
    }

    fn remember_files(&mut self, purgeable: &Purgeable) {
        for record in &purgeable.databases {
            let path = self.inner.path_of(&record.row);
            let is_ours = path.starts_with(self.inner.catalog.folder());
            if is_ours && !record.keeps_file && record.row.state != DatabaseState::Attached {
                self.report.files.push(path);
            }
        }
    }

    fn partition_versions(
        &self,
        row: &DatabaseRow,
        kept: &KeptSnapshots,
        purgeable: &Purgeable,
    ) -> Result<DatabaseVersions> {
        let catalog = self.inner.local()?;
        let mut going: HashSet<(ContainerId, Csn)> = HashSet::new();
        for container in catalog.every_container(row.id)? {
            let id = container.row.id;
            let dropped = if purgeable.containers.contains(&(row.id, id)) {
                catalog.versions(row.id, id)?
            } else {
                catalog.versions_to_drop(row.id, id, kept)?
            };
            going.extend(dropped.iter().map(|version| (id, version.csn)));
        }
        let goes = |version: &VersionRow| going.contains(&(version.container, version.csn));
        let (dropped, kept) = catalog.all_versions(row.id)?.into_iter().partition(goes);
        Ok(DatabaseVersions { row: row.clone(), kept, dropped })
    }

    /// The bytes that only dropped versions have; none if the database is left alone.
    fn freed(
        &mut self,
        database: &DatabaseVersions,
        made: &HashSet<Csn>,
    ) -> Result<Option<Ranges>> {
        self.advance(&database.row);
        if !self.report.is_complete {
            return Ok(None);
        }
        if database.dropped.is_empty() || database.row.state != DatabaseState::Open {
            return Ok(Some(Ranges::default()));
        }
        match self.only_dropped(database, made) {
            Ok(ranges) => Ok(Some(ranges)),
            Err(error) => {
                self.skip(&database.row, &error);
                Ok(None)
            }
        }
    }

    fn skip(&mut self, row: &DatabaseRow, error: &Error) {
        self.report.skipped.push((row.name.clone(), error.to_string()));
    }

    fn only_dropped(&self, database: &DatabaseVersions, made: &HashSet<Csn>) -> Result<Ranges> {
        let (file, live) = self.live(&database.row, &database.kept)?;
        let source = file;
        let mut freed = Ranges::default();
        // One inventory for all: versions share most of their page lists.
        let mut inventory = Inventory::new(&source);
        for version in &database.dropped {
            // What a damaged version had cannot be told, and stays.
            drop(inventory.visit(version, &mut |_, range| {
                freed.insert(range);
                Ok(())
            }));
        }
        freed.remove_all(&live);
        for record in records_to_keep(database, made) {
            freed.remove(inventory::blob(record)?);
        }
        Ok(freed.aligned(ALIGNMENT))
    }

    /// What must not be touched in a file: what kept versions refer to, the front and the headers of
    /// keys, and what is free already.
    fn live(&self, row: &DatabaseRow, kept: &[VersionRow]) -> Result<(DatabaseFile, Ranges)> {
        let file = DatabaseFile::open(self.inner.path_of(row))?;
        let source = DatabaseFile::open(self.inner.path_of(row))?;
        let mut live = Inventory::of(&source, kept)?;
        let survey = {
            let _lock = self.inner.locks().lock_allocation(row.id)?;
            key_chain::survey(&file)?
        };
        survey.headers.into_iter().chain(survey.faults).for_each(|range| live.insert(range));
        for extent in self.inner.local()?.free_extents(row.id)? {
            live.insert(inventory::blob(extent.range)?);
        }
        Ok((file, live))
    }

    /// Frees what is nobody's.
    fn second_round(&mut self, row: &DatabaseRow, owner: &LockOwner) -> Result<()> {
        let catalog = self.inner.local()?;
        let lock = if self.options.dry_run {
            None
        } else {
            match owner.try_exclusive_database(row.id)? {
                Some(lock) => Some(lock),
                None => {
                    self.report.busy.push(row.name.clone());
                    return Ok(());
                }
            }
        };
        let garbage = match self.garbage(row) {
            Ok(garbage) => garbage,
            Err(error) => {
                self.skip(row, &error);
                return Ok(());
            }
        };
        let freed = worth_giving(&garbage);
        let bytes: u64 = freed.iter().map(|range| range.size).sum();
        if self.options.dry_run {
            self.report.garbage_bytes += bytes.saturating_sub(self.report.version_bytes);
            return Ok(());
        }
        if bytes > 0 {
            let kept = catalog.raise_horizon(Csn::ZERO)?;
            catalog.vacuum(&Vacuumed {
                kept,
                versions: vec![],
                freed: vec![(row.id, freed)],
                purged_databases: vec![],
                purged_containers: vec![],
            })?;
            self.release(row)?;
        }
        self.report.garbage_bytes += bytes;
        drop(lock);
        Ok(())
    }

    /// What no version refers to, but for commit records that a rebuilt catalogue needs.
    fn garbage(&self, row: &DatabaseRow) -> Result<Ranges> {
        let versions = self.inner.local()?.all_versions(row.id)?;
        let (file, live) = self.live(row, &versions)?;
        let mut garbage: Ranges = std::iter::once(0..file.size()?).collect();
        garbage.remove_all(&live);
        let source = file;
        let mut found = vec![];
        for range in garbage.iter() {
            scan::records_in(&source, range, &mut |_| true, &mut |record| found.push(record))?;
        }
        for found in found {
            if self.is_needed(row, &found.record, &versions)? {
                garbage.remove(inventory::blob(found.range)?);
            }
        }
        Ok(garbage.aligned(ALIGNMENT))
    }

    /// Whether a commit record tells what no kept version's own record tells.
    fn is_needed(
        &self,
        row: &DatabaseRow,
        record: &CommitRecord,
        kept: &[VersionRow],
    ) -> Result<bool> {
        let catalog = &self.inner.catalog;
        if record.database != row.uuid || record.federation != catalog.uuid() {
            return Ok(false);
        }
        let Some(csn) = catalog.find_commit(record.transaction, record.after)? else {
            return Ok(false);
        };
        let follows = |(container, base): (ContainerId, Option<Csn>)| {
            kept.iter().any(|it| it.container == container && Some(it.csn) == base)
        };
        let is_alone = record.containers.is_empty()
            || record.is_whole
            || record.end.is_some()
            || !record.renamed.is_empty()
            || !record.dropped.is_empty();
        Ok(is_alone
            || record.containers.iter().any(|it| follows((it.id, it.base)))
            || self.is_made_by(csn, record)?)
    }

    /// Whether a version that a commit made, in any of its databases, is kept.
    fn is_made_by(&self, csn: Csn, record: &CommitRecord) -> Result<bool> {
        let catalog = self.inner.local()?;
        for uuid in &record.databases {
            let Some(database) = catalog.database_by_uuid(*uuid)? else { continue };
            let versions = catalog.all_versions(database.id)?;
            if versions.iter().any(|version| version.csn == csn) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The records of dropped versions that follow a kept one, or were made together with one.
fn records_to_keep(database: &DatabaseVersions, made: &HashSet<Csn>) -> Vec<BlobRange> {
    let mut all: Vec<(&VersionRow, bool)> = database.kept.iter().map(|it| (it, true)).collect();
    all.extend(database.dropped.iter().map(|it| (it, false)));
    all.sort_by_key(|(it, _)| (it.container, it.csn));
    let mut last: HashMap<ContainerId, bool> = HashMap::new();
    let mut records = vec![];
    for (version, is_kept) in all {
        let follows_kept = last.insert(version.container, is_kept) == Some(true);
        if !is_kept && (follows_kept || made.contains(&version.csn)) {
            records.push(version.record);
        }
    }
    records
}

/// The ranges that are worth the trouble.
fn worth_giving(ranges: &Ranges) -> Vec<BlobRange> {
    let large = ranges.iter().filter(|range| range.end - range.start >= FREE_BYTES_MIN);
    large.map(|range| BlobRange { offset: range.start, size: range.end - range.start }).collect()
}
