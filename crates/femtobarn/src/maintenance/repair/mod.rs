//! Repair: mending what a check finds, as far as nothing is lost by it.
//!
//! | module | noun |
//! |---|---|
//! | `examiner` | one version of a container, looked at by itself |
//! | `container` | a container whose newest version is damaged: a new one with what is left |
//! | `front` | a file with data where its front should be |
//!
//! Invariants:
//! 1. No byte that a version refers to is written over; a container is mended by a new version.
//!    Damage in older versions stays until a vacuum takes them away. Versions with data in place of the front
//!    refer to copies of them before the front is written.
//! 2. Without salvage no object, change or deletion is lost.
//! 3. A file that has a commit in it, or is not ours, is never removed.
//! 4. The federation is locked against vacuum: what a new version refers to is not given away.

mod container;
mod examiner;
mod front;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRecord, DatabaseRow, DatabaseState,
};
use rntuple::ByteSource;

use crate::error::{Error, ErrorKind, Result};
use crate::federation::Federation;
use crate::inventory::Inventory;
use crate::maintenance::check::{
    self, CheckLevel, CheckReport, Problem, ProblemKind, ProblemLocation, Severity,
};
use crate::progress::Watch;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::identify::{RootFileKind, identify};
use crate::storage::key_chain;
use container::{SuspectParts, Verdict};
use examiner::Examiner;

/// A file that was written to within this time may be somebody's.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(3600);
/// Bytes looked at together for any that is not zero.
const LOOK_BYTES: u64 = 1 << 20;

/// How a federation is repaired.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Takes containers whose newest version is damaged back to their newest whole version. Objects
    /// that came later are lost; their OIDs are given to no others.
    pub salvage: bool,
    /// Changes nothing, and only says what would be done.
    pub dry_run: bool,
    /// How long to wait for a vacuum, a backup, or somebody who writes a container; 10 s by default.
    pub lock_wait: Duration,
}

impl Default for RepairOptions {
    fn default() -> Self {
        RepairOptions { salvage: false, dry_run: false, lock_wait: Duration::from_secs(10) }
    }
}

/// What a repair did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What was mended, a sentence each.
    pub done: Vec<String>,
    /// What is not as it should be still, with what to do about it.
    pub left: Vec<Problem>,
}

impl Federation {
    /// Checks the federation in full, mends what can be mended without losing anything, and checks
    /// again. Others may read and write meanwhile; what they hold is left.
    ///
    /// # Errors
    /// `Busy` while a vacuum, a backup or another repair runs; `Denied` if the federation can only be
    /// read; `Closed` if `progress` stops it; as the disk. Run again, it goes on where it was.
    pub fn repair(
        &self,
        options: &RepairOptions,
        progress: &mut Watch<'_>,
    ) -> Result<RepairReport> {
        self.inner.local()?;
        let owner = self.inner.locks().owner();
        let _alone =
            if options.dry_run { None } else { Some(owner.lock_maintenance(options.lock_wait)?) };
        let found = self.checked(progress)?;
        let mut repair = Repair {
            federation: self,
            options,
            report: RepairReport::default(),
            containers: HashMap::new(),
            fronts: BTreeSet::new(),
            told: BTreeSet::new(),
        };
        repair.remove_orphans()?;
        repair.mend_fronts(&found)?;
        repair.mend_containers(&found, progress)?;
        repair.mend_chains(&found)?;
        let remaining = if options.dry_run || repair.report.done.is_empty() {
            found
        } else {
            self.checked(progress)?
        };
        repair.report_remaining(remaining)?;
        Ok(repair.report)
    }

    fn checked(&self, progress: &mut Watch<'_>) -> Result<CheckReport> {
        let report = self.check(CheckLevel::Full, progress)?;
        if report.is_complete {
            Ok(report)
        } else {
            Err(Error::Closed { what: "repairing was stopped".to_owned() })
        }
    }
}

/// What became of a container.
enum ContainerOutcome {
    /// Its newest version is whole, now at least.
    Whole,
    /// It stays damaged; what to do about it.
    Damaged(String),
}

/// A repair that is under way.
struct Repair<'a> {
    federation: &'a Federation,
    options: &'a RepairOptions,
    report: RepairReport,
    containers: HashMap<(DatabaseId, ContainerId), ContainerOutcome>,
    /// Databases whose fronts were mended.
    fronts: BTreeSet<DatabaseId>,
    /// Databases whose keys were dealt with.
    told: BTreeSet<DatabaseId>,
}

impl Repair<'_> {
    /// Removes files that no database has, and of which nothing can be wanted.
    fn remove_orphans(&mut self) -> Result<()> {
        let catalog = self.federation.inner.local()?;
        let every = catalog.every_database()?;
        let known: Vec<DatabaseRow> = every.into_iter().map(|record| record.row).collect();
        let held = catalog.locks().held()?;
        // A transaction has locked the database that it is about to create.
        let is_new = |id: DatabaseId| known.iter().all(|row| row.id != id);
        let is_creating = held.iter().filter_map(|lock| lock.target.database()).any(is_new);
        for (path, bytes) in check::orphans(&self.federation.inner, &known)? {
            let advice = if is_creating {
                Some("a transaction is creating a database; repair when it is done")
            } else {
                reason_to_keep(&path)?
            };
            let what = format!("{} ({bytes} bytes)", path.display());
            match advice {
                None => {
                    if !self.options.dry_run {
                        file::remove_if_there(&path)?;
                    }
                    self.report.done.push(format!("{what} was no database's file and is removed"));
                }
                Some(advice) => self.report_left(
                    (Severity::Notice, ProblemKind::OrphanFile, ProblemLocation::default()),
                    format!("{what} is not the file of a database"),
                    advice.to_owned(),
                ),
            }
        }
        Ok(())
    }

    fn report_left(
        &mut self,
        (severity, kind, place): (Severity, ProblemKind, ProblemLocation),
        what: String,
        advice: String,
    ) {
        self.report.left.push(Problem { severity, kind, place, what, advice });
    }

    /// Writes the fronts of files anew that have data there.
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
                front::mend(self.federation, &row, wait)
                    .map(|bytes| format!(", and {bytes} bytes that lay there are elsewhere"))
            };
            match mended {
                Ok(moved) => {
                    self.fronts.insert(row.id);
                    let what = format!("{name}: the front of its file was written anew{moved}");
                    self.report.done.push(what);
                }
                Err(error) => {
                    let place = ProblemLocation {
                        database: Some((row.id, row.name)),
                        ..ProblemLocation::default()
                    };
                    self.report_left(
                        (Severity::Damage, ProblemKind::Front, place),
                        format!("the front of its file cannot be written anew: {error}"),
                        "repair when nobody writes to it, or restore the file from a backup"
                            .to_owned(),
                    );
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
            let advice = format!("it is {}; restore its file from a backup", database.state);
            return Ok(ContainerOutcome::Damaged(advice));
        }
        let inner = &self.federation.inner;
        let path = format!("{}/{}", database.name, row.name);
        let versions = self.federation.catalog().versions(database.id, row.id)?;
        // A file that is not there is a problem of its own.
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
        let of = (database, row);
        let done = if self.options.dry_run {
            Ok(plan.done)
        } else {
            plan.carry_out(self.federation, of, newest, self.options.lock_wait, &mut examiner)
        };
        match done {
            Ok(done) => {
                self.report.done.extend(done.into_iter().map(|what| format!("{path}: {what}")));
                Ok(ContainerOutcome::Whole)
            }
            Err(error) if is_passing(error.kind()) => {
                Ok(ContainerOutcome::Damaged(format!("repair it again: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the keys of files follow each other.
    fn mend_chains(&mut self, found: &CheckReport) -> Result<()> {
        // A key whose header is too long lies over what follows.
        let is_of_keys =
            |it: &&Problem| matches!(it.kind, ProblemKind::Chain | ProblemKind::Overlap);
        let of_chains = found.problems.iter().filter(is_of_keys);
        let damaged: BTreeSet<DatabaseId> =
            of_chains.filter_map(|it| Some(it.place.database.as_ref()?.0)).collect();
        for database in self.federation.catalog().databases(Csn::MAX)? {
            if !damaged.contains(&database.id) || database.state != DatabaseState::Open {
                continue;
            }
            self.told.insert(database.id);
            match self.mend_chain(&database) {
                Ok(0) => {}
                Ok(keys) => self.report.done.push(format!(
                    "{}: the keys of its file follow each other again; {keys} were written",
                    database.name
                )),
                Err(error) => {
                    let place = ProblemLocation {
                        database: Some((database.id, database.name)),
                        ..ProblemLocation::default()
                    };
                    self.report_left(
                        (Severity::Warning, ProblemKind::Chain, place),
                        format!("the keys of its file do not follow each other: {error}"),
                        "its objects can be read; repair when nobody writes to it".to_owned(),
                    );
                }
            }
        }
        Ok(())
    }

    /// Mends the chain of keys of a database; returns how many keys were written.
    fn mend_chain(&self, database: &DatabaseRow) -> Result<u64> {
        let inner = &self.federation.inner;
        let versions = inner.local()?.all_versions(database.id)?;
        if self.options.dry_run {
            let _lock = inner.locks().lock_allocation(database.id)?;
            let survey = key_chain::survey(&DatabaseFile::open(inner.path_of(database))?)?;
            return Ok(survey.faults.len() as u64 + survey.odd_headers);
        }
        let owner = inner.locks().owner();
        let _alone = owner.lock_database_exclusive(database.id, self.options.lock_wait)?;
        inner.retire_extents(database.id)?;
        let _lock = inner.locks().lock_allocation(database.id)?;
        let file = DatabaseFile::open_to_write(inner.path_of(database))?;
        let source = DatabaseFile::open(inner.path_of(database))?;
        let live = Inventory::of(&source, &versions)?;
        let keys = key_chain::cover(&file, &live)?;
        file.sync()?;
        // Space that a writer took, whose lock on the database was lost, may hold such a key now.
        inner.local()?.raise_epoch(database.id)?;
        Ok(keys)
    }

    /// Says what is left of what a check found.
    fn report_remaining(&mut self, remaining: CheckReport) -> Result<()> {
        for mut problem in remaining.problems {
            let database = problem.place.database.as_ref().map(|it| it.0);
            let is_told = match problem.kind {
                ProblemKind::OrphanFile => true,
                // Those that could not be mended were told with the reason.
                ProblemKind::Front => {
                    self.options.dry_run || !database.is_some_and(|id| self.fronts.contains(&id))
                }
                ProblemKind::Chain => database.is_some_and(|id| self.told.contains(&id)),
                ProblemKind::Overlap if self.options.dry_run => {
                    database.is_some_and(|id| self.told.contains(&id))
                }
                _ => false,
            };
            if is_told {
                continue;
            }
            let container = database.zip(problem.place.container.as_ref().map(|it| it.0));
            match container.and_then(|key| Some((key, self.containers.get(&key)?))) {
                Some((_, ContainerOutcome::Whole)) if self.options.dry_run => continue,
                Some((key, ContainerOutcome::Whole)) if self.is_past(key, &problem)? => {
                    problem.advice = "the newest version is whole; older snapshots stay damaged \
                                      until a vacuum takes them away"
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

    /// Whether a problem is one of a version that is not the newest.
    fn is_past(
        &self,
        (database, container): (DatabaseId, ContainerId),
        problem: &Problem,
    ) -> Result<bool> {
        let newest = self.federation.catalog().version(database, container, Csn::MAX)?;
        Ok(newest.zip(problem.place.csn).is_some_and(|(newest, csn)| csn < newest.csn))
    }
}

/// What a check says of what stands beside a newest version.
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

/// Whether something may go better another time.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::Conflict)
}

/// Why a file that no database has is not removed.
fn reason_to_keep(path: &Path) -> Result<Option<&'static str>> {
    if file::age(path).is_none_or(|age| age < ORPHAN_AGE_MIN) {
        return Ok(Some("somebody wrote to it within the last hour; repair again later"));
    }
    let facts = identify(path)?;
    Ok(match facts.kind {
        RootFileKind::UnfinishedFile if facts.commits == 0 => None,
        RootFileKind::Other if is_blank(path)? => None,
        RootFileKind::OpenDatabase | RootFileKind::UnfinishedFile => {
            Some("it has commits: rebuild the catalogue if it belongs here, else move it elsewhere")
        }
        RootFileKind::SealedDatabase => Some("attach it, or move it elsewhere"),
        RootFileKind::RootFile | RootFileKind::Other => {
            Some("it is somebody else's; move it elsewhere")
        }
    })
}

/// Whether all bytes of a file are zero.
fn is_blank(path: &Path) -> Result<bool> {
    let file = DatabaseFile::open(path.to_owned())?;
    let size = file.size()?;
    let source = file;
    let mut bytes = vec![];
    for start in (0..size).step_by(LOOK_BYTES as usize) {
        bytes.resize(LOOK_BYTES.min(size - start) as usize, 0);
        source.read_at(start, &mut bytes).map_err(Error::storage(path.display().to_string()))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
