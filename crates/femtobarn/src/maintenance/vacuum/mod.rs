//! Vacuum: deletes versions that no retained snapshot needs, and frees their space.
//!
//! The first round handles all databases at once, beside writers: it plans the deletions; it raises the horizon and
//! reads the pins; the catalogue deletes the unneeded versions and records the ranges that only they used; holes are
//! punched there; the ranges are released to writers in a new epoch. The second round handles each database that no
//! transaction has open, and frees in the same way the bytes that no version refers to: the remains of killed or
//! rolled-back transactions.
//!
//! 1. No byte of a kept version is freed. A database is skipped if the metadata of a kept version cannot be
//!    read.
//! 2. Beside writers only ranges of deleted versions are freed: new bytes belong to no version yet.
//! 3. A vacuum that is killed at any step is continued by the next one, which punches and releases the recorded ranges.
//! 4. A vacuum that is stopped before its plan is complete has changed nothing: all snapshots can still be read.
//! 5. The commit record of a deleted version stays if it follows a kept version, or if its commit made a kept
//!    version: rebuilding the catalogue needs it.

mod free_ranges;
mod other_servers;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use femtobarn_archive::remove_staged;
use femtobarn_catalog::{
    BlobRange, Catalogue, Csn, DatabaseId, DatabaseRow, DatabaseState, DiskState, KeptSnapshots,
    LockOwner, Purgeable, Vacuumed, VersionRow,
};

use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::inventory::{self, Ranges};
use crate::progress::{Progress, Watch};
use crate::storage::extent::FREE_BYTES_MIN;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::nearline;

/// Options of a vacuum.
#[derive(Clone, Debug)]
pub struct VacuumOptions {
    /// Changes nothing, and only reports the intended changes.
    pub dry_run: bool,
    /// The first commit whose snapshot is kept, besides tagged and pinned ones; by default the retention decides.
    pub keep_from: Option<Csn>,
    /// How long to wait for another vacuum or a backup; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for VacuumOptions {
    fn default() -> Self {
        VacuumOptions { dry_run: false, keep_from: None, lock_wait: Duration::from_secs(10) }
    }
}

/// The changes of a vacuum, made or intended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// The horizon: all snapshots from this commit on are kept.
    pub horizon: Csn,
    /// Older snapshots that are kept because they are tagged or pinned.
    pub kept: Vec<Csn>,
    /// Deleted versions of containers.
    pub versions: u64,
    /// Dropped containers whose last version was deleted.
    pub containers: u64,
    /// Dropped databases whose last version was deleted.
    pub databases: u64,
    /// Bytes that only deleted versions used.
    pub version_bytes: u64,
    /// Bytes that killed or rolled-back transactions left.
    pub garbage_bytes: u64,
    /// Files of dropped databases that were removed.
    pub files: Vec<PathBuf>,
    /// Databases with open transactions, which the second round skipped.
    pub busy: Vec<String>,
    /// Databases that were skipped, and lock files that could not be removed, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Whether the vacuum was completed.
    pub is_complete: bool,
}

impl Federation {
    /// Deletes the versions that neither retention nor a tag nor a reader needs, and releases their space to
    /// the file system and to writers. Other processes may read and write meanwhile.
    ///
    /// # Errors
    /// `Busy` while another vacuum or a backup runs; `Denied` if the federation is read-only; `Unsupported`
    /// if it is on a server; `Io` if a file cannot be read or written. The next vacuum continues.
    pub fn vacuum(
        &self,
        options: &VacuumOptions,
        progress: &mut Watch<'_>,
    ) -> Result<VacuumReport> {
        let catalog = self.inner.local()?;
        let owner = self.inner.locks().owner();
        let _alone = owner.lock_maintenance(options.lock_wait)?;
        let elsewhere = catalog.databases_elsewhere()?;
        let rows = catalog.every_database()?.into_iter().map(|record| record.row);
        let rows: Vec<DatabaseRow> = rows.filter(|row| !elsewhere.contains(&row.id)).collect();
        let servers = other_servers::connect(catalog)?;
        let writers = servers.as_ref().map(|servers| servers.locks().owner());
        let mut vacuum = Vacuum {
            inner: &self.inner,
            elsewhere,
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
        let Some(FirstRound { databases, made, .. }) = vacuum.first_round(&rows)? else {
            // `is_complete` is false.
            return Ok(VacuumReport { horizon: catalog.horizon()?, ..VacuumReport::default() });
        };
        for DatabaseVersions { row, .. } in &databases {
            if vacuum.report.is_complete && row.state == DatabaseState::Open {
                // Of several servers, the home of the database has the locks of its writers.
                vacuum.second_round(row, &made, writers.as_ref().unwrap_or(&owner))?;
            }
            vacuum.advance(row);
        }
        if vacuum.report.is_complete && !options.dry_run {
            vacuum.remove_lock_files()?;
        }
        Ok(vacuum.report)
    }
}

/// A running vacuum.
struct Vacuum<'a, 'p> {
    inner: &'a Inner,
    /// Databases whose files are at other servers, which vacuum them.
    elsewhere: HashSet<DatabaseId>,
    options: &'a VacuumOptions,
    report: VacuumReport,
    progress: &'a mut Watch<'p>,
    done: u64,
    total: u64,
}

/// The deletions of the first round, and the versions that stay.
struct FirstRound {
    vacuumed: Vacuumed,
    purgeable: Purgeable,
    /// The databases that stay.
    databases: Vec<DatabaseVersions>,
    /// The commits of all versions that stay.
    made: HashSet<Csn>,
}

/// The versions of one database, partitioned.
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

    /// The snapshots that would be kept if the horizon were raised now.
    fn expected(&self) -> Result<KeptSnapshots> {
        let catalog = self.inner.local()?;
        let from = match self.options.keep_from {
            Some(from) => from,
            None => catalog.retained_from()?,
        };
        other_servers::with_their_pins(catalog, catalog.kept_from(from)?)
    }

    /// Punches and releases the ranges that the catalogue notes as freed.
    fn release(&self, row: &DatabaseRow) -> Result<()> {
        let catalog = self.inner.local()?;
        let mut waiting = catalog.free_extents(row.id)?;
        waiting.retain(|extent| !extent.is_released);
        if waiting.is_empty() {
            return Ok(());
        }
        // Bytes written back after this point lie in no free range.
        catalog.write_back()?;
        check_disjoint(row, waiting.iter().map(|extent| extent.range).collect())?;
        // A database that is in stores alone has no holes and takes no writes.
        if !nearline::is_nearline(&*self.inner.catalog, row)? {
            let file = DatabaseFile::open_to_write(self.inner.path_of(row))?;
            for extent in waiting {
                file.punch(inventory::blob(extent.range)?)?;
            }
            file.sync()?;
        }
        catalog.release_freed(row.id)?;
        Ok(())
    }

    /// Deletes versions; `None` if the vacuum was stopped before.
    fn first_round(&mut self, rows: &[DatabaseRow]) -> Result<Option<FirstRound>> {
        let catalog = self.inner.local()?;
        let expected = self.expected()?;
        let Some(mut plan) = self.plan(rows, expected, true)? else { return Ok(None) };
        if !self.options.dry_run {
            let kept = catalog.raise_horizon(plan.vacuumed.kept.horizon)?;
            let kept = other_servers::with_their_pins(catalog, kept)?;
            if kept != plan.vacuumed.kept {
                // Pins or tags have changed since. From here on the vacuum cannot be stopped.
                let Some(anew) = self.plan(rows, kept, false)? else { return Ok(None) };
                plan = anew;
            }
            self.delete(&plan.vacuumed, &plan.purgeable)?;
            plan.databases.iter().try_for_each(|database| self.release(&database.row))?;
        }
        Ok(Some(plan))
    }

    /// Plans the deletion of everything that only snapshots outside `kept` need. With `reports_progress`, progress is
    /// reported, and the plan is `None` if the vacuum is stopped.
    fn plan(
        &mut self,
        rows: &[DatabaseRow],
        kept: KeptSnapshots,
        reports_progress: bool,
    ) -> Result<Option<FirstRound>> {
        self.report = VacuumReport {
            horizon: kept.horizon,
            kept: kept.csns.clone(),
            is_complete: true,
            ..VacuumReport::default()
        };
        let mut purgeable = self.inner.local()?.purgeable(&kept)?;
        purgeable.databases.retain(|record| !self.elsewhere.contains(&record.row.id));
        purgeable.containers.retain(|(database, _)| !self.elsewhere.contains(database));
        let purged: HashSet<_> = purgeable.databases.iter().map(|it| it.row.id).collect();
        let rows = rows.iter().filter(|row| !purged.contains(&row.id));
        let databases = rows.map(|row| self.partition_versions(row.clone(), &kept));
        let databases = databases.collect::<Result<Vec<_>>>()?;
        let kept_rows = databases.iter().flat_map(|database| &database.kept);
        let mut made: HashSet<Csn> = kept_rows.map(|version| version.csn).collect();
        let mut vacuumed = Vacuumed {
            kept,
            versions: vec![],
            freed: vec![],
            purged_databases: purgeable.databases.iter().map(|it| it.row.id).collect(),
            purged_containers: vec![],
        };
        // Includes the versions of purged databases and containers; otherwise one transaction would delete all of them.
        let key = |it: &VersionRow| (it.database, it.container, it.csn);
        for record in &purgeable.databases {
            let versions = self.inner.local()?.all_versions(record.row.id)?;
            vacuumed.versions.extend(versions.iter().map(key));
        }
        let mut emptied = HashSet::new();
        for database in &databases {
            if reports_progress {
                self.advance(&database.row);
            }
            if !self.report.is_complete {
                return Ok(None);
            }
            let Some(freed) = self.freed(database, &made)? else {
                made.extend(database.dropped.iter().map(|version| version.csn));
                continue;
            };
            emptied.insert(database.row.id);
            vacuumed.versions.extend(database.dropped.iter().map(key));
            self.report.versions += database.dropped.len() as u64;
            self.report.version_bytes += freed.total();
            vacuumed.freed.push((database.row.id, large_enough(&freed)));
        }
        let of_emptied = purgeable.containers.iter().filter(|(id, _)| emptied.contains(id));
        vacuumed.purged_containers.extend(of_emptied);
        self.report.databases = vacuumed.purged_databases.len() as u64;
        self.report.containers = vacuumed.purged_containers.len() as u64;
        self.remember_files(&purgeable);
        Ok(Some(FirstRound { vacuumed, purgeable, databases, made }))
    }

    /// Deletes rows, and the files of purged databases.
    fn delete(&self, vacuumed: &Vacuumed, purgeable: &Purgeable) -> Result<()> {
        let absent = self.absent_places(purgeable)?;
        if !purgeable.databases.is_empty() {
            // Otherwise a process that writes back now could write to a new file of that name, and delete a new row of
            // that number.
            self.inner.local()?.write_back()?;
        }
        self.inner.local()?.vacuum(vacuumed)?;
        for path in &self.report.files {
            file::remove_if_there(path)?;
        }
        absent.iter().try_for_each(|path| Ok(remove_staged(path)?))
    }

    /// Removes the lock files of databases that are not in the catalogue any more, or never came into it.
    fn remove_lock_files(&mut self) -> Result<()> {
        let all = self.inner.local()?.every_database()?;
        let known = all.iter().map(|record| record.row.id).collect();
        let failed = self.inner.locks().remove_unused_files(&known)?;
        let skipped =
            failed.into_iter().map(|(name, e)| (format!("lock file {name}"), e.to_string()));
        self.report.skipped.extend(skipped);
        Ok(())
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

    /// The places of purged files that are not on the disk, where staging may have left a part.
    fn absent_places(&self, purgeable: &Purgeable) -> Result<Vec<PathBuf>> {
        let mut found = vec![];
        for record in &purgeable.databases {
            if self.inner.local()?.residence(record.row.id)?.disk != DiskState::Online {
                found.push(self.inner.path_of(&record.row));
            }
        }
        Ok(found)
    }

    fn partition_versions(
        &self,
        row: DatabaseRow,
        kept: &KeptSnapshots,
    ) -> Result<DatabaseVersions> {
        let (kept, dropped) = self.inner.local()?.versions_by_need(row.id, kept)?;
        Ok(DatabaseVersions { row, kept, dropped })
    }

    /// The bytes that only dropped versions use; `None` if the database is skipped.
    fn freed(
        &mut self,
        database: &DatabaseVersions,
        made: &HashSet<Csn>,
    ) -> Result<Option<Ranges>> {
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

    /// Frees the bytes that no version refers to.
    fn second_round(
        &mut self,
        row: &DatabaseRow,
        made: &HashSet<Csn>,
        owner: &LockOwner,
    ) -> Result<()> {
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
        // A commit of a process that has just died must not refer to what is garbage without it.
        let ended = if lock.is_some() { catalog.end_lost_commits() } else { Ok(()) };
        let garbage = match ended.map_err(Error::from).and_then(|()| self.garbage(row, made)) {
            Ok(garbage) => garbage,
            Err(error) => {
                self.skip(row, &error);
                return Ok(());
            }
        };
        let freed = large_enough(&garbage);
        let bytes: u64 = freed.iter().map(|range| range.size).sum();
        self.report.garbage_bytes += bytes;
        if bytes > 0 && !self.options.dry_run {
            catalog.note_garbage(row.id, &freed)?;
            self.release(row)?;
        }
        drop(lock);
        Ok(())
    }
}

/// Checks that no byte is recorded twice: two writers would get it.
fn check_disjoint(row: &DatabaseRow, mut ranges: Vec<BlobRange>) -> Result<()> {
    ranges.sort_by_key(|range| range.offset);
    let overlap =
        |pair: &&[BlobRange]| pair[0].offset.saturating_add(pair[0].size) > pair[1].offset;
    match ranges.windows(2).find(overlap) {
        None => Ok(()),
        Some(pair) => Err(Error::Corrupt {
            what: format!(
                "database {:?}: free extents at bytes {} and {} overlap; check the federation",
                row.name, pair[0].offset, pair[1].offset
            ),
        }),
    }
}

/// The ranges of at least [`FREE_BYTES_MIN`].
fn large_enough(ranges: &Ranges) -> Vec<BlobRange> {
    let large = ranges.iter().filter(|range| range.end - range.start >= FREE_BYTES_MIN);
    large.map(|range| BlobRange { offset: range.start, size: range.end - range.start }).collect()
}
