//! Check: whether catalogue and files agree, and whether everything committed can be read.
//!
//! | module | noun |
//! |---|---|
//! | `problem` | what was found: [`Problem`], [`CheckReport`] |
//! | `database` | one database: its file, the chain of its keys, what lies where |
//! | `container` | one container: its versions against the catalogue, its pages |
//! | `objects` | the newest version of a container, object by object |
//! | `links` | where the links of objects lead |
//!
//! Invariants:
//! 1. A check changes nothing, and holds nobody up but for the moment in which a chain of keys is
//!    walked.
//! 2. What several versions share is read once.
//! 3. Memory is bounded by the metadata of one database and a few mebibytes of objects.

mod container;
mod database;
mod front;
mod links;
mod objects;
mod page;
mod problem;

use std::collections::HashSet;
use std::path::PathBuf;

use femtobarn_catalog::{Csn, DatabaseRow};

pub(crate) use page::{PageBuffer, read_page};
pub use problem::{CheckReport, Problem, ProblemKind, ProblemLocation, Severity};

use crate::error::Result;
use crate::federation::{Federation, Inner};
use crate::progress::{Progress, Watch};
use crate::storage::file::DatabaseFile;
use crate::storage::places;
use links::LinkTargetCache;

/// How much a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckLevel {
    /// Catalogue against files: that every file is there, and that the metadata of every newest and
    /// every tagged version can be read and agrees with the catalogue. Takes milliseconds.
    Quick,
    /// Also every page of every version, every object and every link. Reads everything once.
    Full,
}

impl Federation {
    /// Checks the federation. `progress` hears of every few mebibytes, and stops the check by
    /// answering no; the report then says that it is not complete.
    ///
    /// # Errors
    /// As the catalogue. What is wrong with files is in the report.
    pub fn check(&self, level: CheckLevel, progress: &mut Watch<'_>) -> Result<CheckReport> {
        let catalog = self.inner.local()?;
        let head = catalog.head()?;
        // Snapshots before have databases that were dropped since.
        let every = catalog.every_database()?;
        let known: Vec<DatabaseRow> = every.iter().map(|record| record.row.clone()).collect();
        // What was detached is where its new owner wants it.
        let ours = every.into_iter().filter(|it| it.dropped.is_none() || !it.keeps_file);
        let databases: Vec<DatabaseRow> = ours.map(|record| record.row).collect();
        let tags = catalog.tags()?.into_iter().map(|tag| tag.csn).collect();
        let total = databases.iter().map(|row| bytes_of(&self.inner, row)).sum();
        let mut checking = Check {
            inner: &self.inner,
            head,
            tags,
            level,
            report: CheckReport { is_complete: true, ..CheckReport::default() },
            targets: LinkTargetCache::new(head),
            progress,
            done: 0,
            total,
        };
        checking.orphans(&known)?;
        for row in &databases {
            if checking.report.is_complete {
                checking.database(row)?;
            }
        }
        Ok(checking.report)
    }
}

fn bytes_of(inner: &Inner, row: &DatabaseRow) -> u64 {
    DatabaseFile::open(inner.path_of(row)).and_then(|file| file.size()).unwrap_or(0)
}

/// A check that is under way.
struct Check<'a, 'p> {
    inner: &'a Inner,
    /// The commit that is checked as the newest.
    head: Csn,
    /// Older snapshots that have a name.
    tags: Vec<Csn>,
    level: CheckLevel,
    report: CheckReport,
    targets: LinkTargetCache,
    progress: &'a mut Watch<'p>,
    done: u64,
    total: u64,
}

impl Check<'_, '_> {
    /// Notes that bytes of a database were dealt with.
    fn advance(&mut self, of: &str, bytes: u64) {
        self.done += bytes;
        self.report.bytes += bytes;
        let progress =
            Progress { doing: "checking", of: of.to_owned(), done: self.done, total: self.total };
        if !(self.progress)(&progress) {
            self.report.is_complete = false;
        }
    }

    /// Files that no database of the catalogue has.
    fn orphans(&mut self, databases: &[DatabaseRow]) -> Result<()> {
        for (path, bytes) in orphans(self.inner, databases)? {
            self.report.orphan_bytes += bytes;
            self.report.add(Problem {
                severity: Severity::Notice,
                kind: ProblemKind::OrphanFile,
                place: ProblemLocation::default(),
                what: format!("{} ({bytes} bytes) is not the file of a database", path.display()),
                advice: "a transaction that was killed left it; repair removes it".to_owned(),
            });
        }
        Ok(())
    }
}

/// Files where databases lie that none of these databases has.
pub(crate) fn orphans(inner: &Inner, databases: &[DatabaseRow]) -> Result<Vec<(PathBuf, u64)>> {
    let known: HashSet<PathBuf> = databases.iter().map(|row| inner.path_of(row)).collect();
    let files = places::files(inner.catalog.folder())?.into_iter();
    let unknown = files.filter(|found| !known.contains(&found.path));
    Ok(unknown.map(|found| (found.path, found.size)).collect())
}
