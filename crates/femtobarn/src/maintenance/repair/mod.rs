//! Repair: mends what a check finds, without losing data.
//!
//! | module | contents |
//! |---|---|
//! | `examiner` | reads one version of a container by itself |
//! | `container` | gives a damaged container a new version with its intact parts |
//! | `front` | rewrites a file's front where other bytes lie there |
//! | `orphans` | removes files that no database has |
//!
//! 1. No byte that a version refers to is overwritten; a container is mended by a new version, and damage in
//!    older versions stays until a vacuum. Bytes that lie in place of a front are copied, and the versions
//!    refer to the copies, before the front is written.
//! 2. Without `salvage` no object, change or deletion is lost.
//! 3. A file with a commit record, or of another program, is never removed.
//! 4. The maintenance lock excludes vacuum, so that no byte of a new version is freed.

mod container;
mod examiner;
mod front;
mod orphans;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::federation::{Federation, Inner};
use crate::inventory::Inventory;
use crate::maintenance::check::{
    CheckLevel, CheckReport, Problem, ProblemKind, ProblemLocation, Severity,
};
use crate::progress::Watch;
use crate::storage::file::DatabaseFile;
use crate::storage::key_chain;
use container::{SuspectParts, Verdict};
use examiner::Examiner;
use femtobarn_catalog::{
    ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRecord, DatabaseRow, DatabaseState,
    LockGuard,
};

/// Options of a repair.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Reverts containers whose newest version is damaged to their newest intact version. Later objects are lost; their
    /// OIDs are never reused.
    pub salvage: bool,
    /// Changes nothing, and only reports the intended changes.
    pub dry_run: bool,
    /// How long to wait for a vacuum, a backup, or a container's writer; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for RepairOptions {
    fn default() -> Self {
        RepairOptions { salvage: false, dry_run: false, lock_wait: Duration::from_secs(10) }
    }
}

/// The changes of a repair, made or intended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The changes, a sentence each.
    pub done: Vec<String>,
    /// The remaining problems.
    pub left: Vec<Problem>,
}

impl Federation {
    /// Checks the federation in full, mends damage that can be mended without losing data, and checks again. Other
    /// processes may read and write meanwhile; databases and containers that they hold are skipped.
    ///
    /// # Errors
    /// `Busy` while a vacuum, a backup or another repair runs; `Denied` if the federation is read-only;
    /// `Closed` if `progress` stops it; `Unsupported` if it is on a server; `Io` if a file cannot be read or
    /// written. The next repair continues.
    pub fn repair(
        &self,
        options: &RepairOptions,
        progress: &mut Watch<'_>,
    ) -> Result<RepairReport> {
        self.inner.local()?;
        if !options.dry_run {
            self.inner.check_writable()?;
        }
        let owner = self.inner.locks().owner();
        let _alone =
            if options.dry_run { None } else { Some(owner.lock_maintenance(options.lock_wait)?) };
        let found = self.check_in_full(progress)?;
        let mut repair = Repair {
            federation: self,
            options,
            report: RepairReport::default(),
            containers: HashMap::new(),
            fronts: BTreeSet::new(),
            chains_reported: BTreeSet::new(),
        };
        repair.remove_orphans()?;
        repair.mend_fronts(&found)?;
        repair.mend_containers(&found, progress)?;
        repair.mend_chains(&found)?;
        let remaining = if options.dry_run || repair.report.done.is_empty() {
            found
        } else {
            self.check_in_full(progress)?
        };
        repair.report_remaining(remaining)?;
        Ok(repair.report)
    }

    fn check_in_full(&self, progress: &mut Watch<'_>) -> Result<CheckReport> {
        let report = self.check(CheckLevel::Full, progress)?;
        if report.is_complete {
            Ok(report)
        } else {
            Err(Error::Closed { what: "repairing was stopped".to_owned() })
        }
    }
}

/// The result of repairing a container.
enum ContainerOutcome {
    /// Its newest version is intact, by itself or after the repair.
    Whole,
    /// It stays damaged; the text has a remedy.
    Damaged(String),
}

/// A running repair.
struct Repair<'a> {
    federation: &'a Federation,
    options: &'a RepairOptions,
    report: RepairReport,
    containers: HashMap<(DatabaseId, ContainerId), ContainerOutcome>,
    /// Databases whose front was rewritten.
    fronts: BTreeSet<DatabaseId>,
    /// Databases whose chain of keys was mended or reported.
    chains_reported: BTreeSet<DatabaseId>,
}

impl Repair<'_> {
    /// Rewrites the front of each file where other bytes lie there.
    fn mend_fronts(&mut self, found: &CheckReport) -> Result<()> {
        let damaged = found.problems.iter().filter(|it| it.kind == ProblemKind::Front);
        let damaged: BTreeSet<DatabaseId> =
            damaged.filter_map(|it| Some(it.place.database.as_ref()?.0)).collect();
        let mut every = self.federation.inner.local()?.every_database()?;
        every.retain(|record| damaged.contains(&record.row.id));
        for DatabaseRecord { row, .. } in every {
            let (name, wait) = (&row.name, self.options.lock_wait);
            let mended = if self.options.dry_run {
                Ok(String::new())
            } else {
                front::mend(self.federation, row.id, wait)
                    .map(|bytes| format!(", and {bytes} bytes were moved from there"))
            };
            match mended {
                Ok(moved) => {
                    self.fronts.insert(row.id);
                    let what = format!("{name}: the front of its file was rewritten{moved}");
                    self.report.done.push(what);
                }
                Err(error) => {
                    let place = ProblemLocation {
                        database: Some((row.id, row.name)),
                        ..ProblemLocation::default()
                    };
                    self.report.left.push(Problem {
                        severity: Severity::Damage,
                        kind: ProblemKind::Front,
                        place,
                        what: format!("the front of its file cannot be rewritten: {error}"),
                        advice:
                            "repair again when no transaction has it open, or restore the file from a backup"
                                .to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    fn mend_containers(&mut self, found: &CheckReport, progress: &mut Watch<'_>) -> Result<()> {
        let catalog = self.federation.catalog();
        let is_mendable = |it: &&Problem| {
            let is_beside = matches!(it.kind, ProblemKind::Statistics | ProblemKind::Index);
            it.severity == Severity::Damage || is_beside
        };
        let damaged = found.problems.iter().filter(is_mendable);
        let named: BTreeSet<(DatabaseId, ContainerId)> = damaged
            .filter_map(|it| Some((it.place.database.as_ref()?.0, it.place.container.as_ref()?.0)))
            .collect();
        for database in catalog.databases(Csn::MAX)? {
            for row in catalog.containers(database.id, Csn::MAX)? {
                if named.contains(&(database.id, row.id)) || found.more_problems > 0 {
                    let fate = self.mend_container(&database, &row, found, progress)?;
                    self.containers.insert((database.id, row.id), fate);
                }
            }
        }
        Ok(())
    }

    fn mend_container(
        &mut self,
        database: &DatabaseRow,
        row: &ContainerRow,
        found: &CheckReport,
        progress: &mut Watch<'_>,
    ) -> Result<ContainerOutcome> {
        if database.state != DatabaseState::Open {
            let advice =
                format!("the database is {}; restore its file from a backup", database.state);
            return Ok(ContainerOutcome::Damaged(advice));
        }
        let inner = &self.federation.inner;
        let path = format!("{}/{}", database.name, row.name);
        let versions = self.federation.catalog().versions(database.id, row.id)?;
        // A missing file is reported for its database.
        let Ok(file) = DatabaseFile::open(inner.path_of(database)) else {
            return Ok(ContainerOutcome::Damaged("restore its file from a backup".to_owned()));
        };
        let source = Arc::new(file);
        let mut examiner = Examiner::new(inner, &path, row, source, progress);
        let newest = versions.last().map_or(Csn::ZERO, |version| version.csn);
        let suspects = suspects(found, (database.id, row.id), newest);
        let plan = match examiner.verdict(&versions, suspects, self.options.salvage)? {
            Verdict::Whole => return Ok(ContainerOutcome::Whole),
            Verdict::Lost(what, advice) => {
                return Ok(ContainerOutcome::Damaged(format!("{what}: {advice}")));
            }
            Verdict::Mend(plan) => plan,
        };
        let done = if self.options.dry_run {
            Ok(plan.done)
        } else {
            let wait = self.options.lock_wait;
            plan.carry_out(self.federation, database, row, newest, wait, &mut examiner)
        };
        match done {
            Ok(done) => {
                self.report.done.extend(done.into_iter().map(|what| format!("{path}: {what}")));
                Ok(ContainerOutcome::Whole)
            }
            Err(error) if is_transient(error.kind()) => {
                Ok(ContainerOutcome::Damaged(format!("repair it again: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Closes the gaps in the chains of keys.
    fn mend_chains(&mut self, found: &CheckReport) -> Result<()> {
        // A key whose header states too many bytes overlaps the next one.
        let is_of_keys =
            |it: &&Problem| matches!(it.kind, ProblemKind::Chain | ProblemKind::Overlap);
        let of_chains = found.problems.iter().filter(is_of_keys);
        let damaged: BTreeSet<DatabaseId> =
            of_chains.filter_map(|it| Some(it.place.database.as_ref()?.0)).collect();
        for database in self.federation.catalog().databases(Csn::MAX)? {
            if !damaged.contains(&database.id) || database.state != DatabaseState::Open {
                continue;
            }
            self.chains_reported.insert(database.id);
            match self.mend_chain(&database) {
                Ok(0) => {}
                Ok(keys) => self.report.done.push(format!(
                    "{}: {keys} keys were written to close gaps in the chain of its file",
                    database.name
                )),
                Err(error) => {
                    let place = ProblemLocation {
                        database: Some((database.id, database.name)),
                        ..ProblemLocation::default()
                    };
                    self.report.left.push(Problem {
                        severity: Severity::Warning,
                        kind: ProblemKind::Chain,
                        place,
                        what: format!("the chain of keys in its file has gaps: {error}"),
                        advice:
                            "its objects can be read; repair again when no transaction has it open"
                                .to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Mends the chain of keys of a database; returns how many keys were written.
    fn mend_chain(&self, database: &DatabaseRow) -> Result<u64> {
        let inner = &self.federation.inner;
        if self.options.dry_run {
            let _lock = inner.locks().lock_allocation(database.id)?;
            let survey = key_chain::survey(&DatabaseFile::open(inner.path_of(database))?)?;
            return Ok(survey.faults.len() as u64 + survey.odd_headers);
        }
        let (_alone, database) = lock_to_mend(inner, database.id, self.options.lock_wait)?;
        let _lock = inner.locks().lock_allocation(database.id)?;
        let file = DatabaseFile::open_to_write(inner.path_of(&database))?;
        let source = DatabaseFile::open(inner.path_of(&database))?;
        let live = Inventory::of(&source, &inner.local()?.all_versions(database.id)?)?;
        let keys = key_chain::cover(&file, &live)?;
        file.sync()?;
        // A writer that lost its lock on the database may still hold an extent that contains such a key.
        inner.local()?.raise_epoch(database.id)?;
        Ok(keys)
    }

    /// Adds the remaining problems of a check to the report.
    fn report_remaining(&mut self, remaining: CheckReport) -> Result<()> {
        for mut problem in remaining.problems {
            let database = problem.place.database.as_ref().map(|it| it.0);
            let is_reported = match problem.kind {
                ProblemKind::OrphanFile => true,
                // Fronts that could not be rewritten are in the report already.
                ProblemKind::Front => {
                    self.options.dry_run || !database.is_some_and(|id| self.fronts.contains(&id))
                }
                ProblemKind::Chain => database.is_some_and(|id| self.chains_reported.contains(&id)),
                ProblemKind::Overlap if self.options.dry_run => {
                    database.is_some_and(|id| self.chains_reported.contains(&id))
                }
                _ => false,
            };
            if is_reported {
                continue;
            }
            let container = database.zip(problem.place.container.as_ref().map(|it| it.0));
            match container.and_then(|key| Some((key, self.containers.get(&key)?))) {
                Some((_, ContainerOutcome::Whole)) if self.options.dry_run => continue,
                Some((key, ContainerOutcome::Whole))
                    if self.is_in_older_version(key, &problem)? =>
                {
                    problem.advice = "the newest version is intact; older snapshots stay damaged \
                                      until a vacuum deletes them"
                        .to_owned();
                }
                Some((_, ContainerOutcome::Damaged(advice)))
                    if problem.severity == Severity::Damage =>
                {
                    problem.advice.clone_from(advice);
                }
                _ => {}
            }
            self.report.left.push(problem);
        }
        Ok(())
    }

    /// Whether a problem is in a version that is not the newest.
    fn is_in_older_version(
        &self,
        (database, container): (DatabaseId, ContainerId),
        problem: &Problem,
    ) -> Result<bool> {
        let newest = self.federation.catalog().version(database, container, Csn::MAX)?;
        Ok(newest.zip(problem.place.csn).is_some_and(|(newest, csn)| csn < newest.csn))
    }
}

/// Takes the exclusive lock of a database whose file is going to be mended, and returns its row as of now. What was read
/// before is out of date: a transaction that had a lock may have committed, and the database may have been sealed.
///
/// # Errors
/// `Busy` if a transaction writes to the database; `Closed` if it takes no commits any more.
fn lock_to_mend(
    inner: &Inner,
    database: DatabaseId,
    wait: Duration,
) -> Result<(LockGuard, DatabaseRow)> {
    let lock = inner.lock_alone(database, wait)?;
    let row = inner.local()?.any_database_by_id(database)?;
    if row.state != DatabaseState::Open {
        let what = format!("database {:?} is {} and read-only", row.name, row.state);
        return Err(Error::Closed { what });
    }
    inner.retire_extents(database)?;
    Ok((lock, row))
}

/// The parts of a newest version's annex that the check found wrong.
fn suspects(found: &CheckReport, of: (DatabaseId, ContainerId), newest: Csn) -> SuspectParts {
    let has = |kind: ProblemKind| {
        found.problems.iter().any(|it| {
            let place = &it.place;
            let database = place.database.as_ref().map(|it| it.0);
            let container = database.zip(place.container.as_ref().map(|it| it.0));
            it.kind == kind && place.csn == Some(newest) && container == Some(of)
        })
    };
    SuspectParts { statistics: has(ProblemKind::Statistics), indexes: has(ProblemKind::Index) }
}

/// Whether a retry may succeed.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::Conflict)
}
