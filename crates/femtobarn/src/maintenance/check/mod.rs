//! Check: whether catalogue and files agree, and whether everything committed can be read.
//!
//! | module | contents |
//! |---|---|
//! | `problem` | findings: [`Problem`], [`CheckReport`] |
//! | `database` | one database: its file, the chain of its keys, overlaps; `front`, the database that its front names |
//! | `container` | one container: its versions against the catalogue; `records`, commit records; `page`, one page |
//! | `objects` | the newest version of a container, object by object |
//! | `links` | the targets of links |
//! | `uniqueness` | the items of sets, and the keys of dictionaries |
//! | `walk` | the values of objects, along their types |
//!
//! 1. A check changes nothing, and blocks writers only while it walks a chain of keys.
//! 2. Bytes that several versions share are read once.
//! 3. Memory is bounded by the metadata of one database and a few MiB of objects.

mod container;
mod database;
mod front;
mod links;
mod objects;
mod page;
mod problem;
mod records;
mod uniqueness;
mod walk;

use std::collections::HashSet;
use std::path::PathBuf;

use femtobarn_catalog::{Csn, DatabaseId, DatabaseRecord, DatabaseRow};

pub(crate) use page::{PageBuffer, StoredPage, read_page};
pub use problem::{CheckReport, Problem, ProblemKind, ProblemLocation, Severity};

use crate::error::Result;
use crate::federation::{Federation, Inner};
use crate::progress::{Progress, Watch};
use crate::storage::file::DatabaseFile;
use crate::storage::places;
use links::LinkTargetCache;

/// How often a database is checked again because it has moved, or one to which its objects link.
const AGAIN_MAX: u32 = 2;

/// The depth of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckLevel {
    /// Every file exists, and the metadata of every newest and every tagged version can be read and agrees
    /// with the catalogue. Takes milliseconds.
    Quick,
    /// Also every page of every version, every object and every link. Reads everything once.
    Full,
}

impl Federation {
    /// Checks the federation; of a federation with several servers, the databases whose home has this folder.
    /// `progress` is called every few MiB and stops the check by returning false; the report is then marked incomplete.
    ///
    /// # Errors
    /// `Unsupported` if the federation is on a server, or if it has several servers and none has named the storage of
    /// this folder; `Io` or `Corrupt` if its catalogue cannot be read. Damage in files is in the report.
    pub fn check(&self, level: CheckLevel, progress: &mut Watch<'_>) -> Result<CheckReport> {
        let catalog = self.inner.local()?;
        let head = catalog.head()?;
        let elsewhere = databases_elsewhere(&self.inner)?;
        // Older snapshots include databases that were dropped since.
        let every = catalog.every_database()?;
        let known: Vec<DatabaseRow> = every.iter().map(|record| record.row.clone()).collect();
        // A detached file belongs to its new owner and may have been moved.
        let ours = every.into_iter().filter(|it| it.dropped.is_none() || !it.keeps_file);
        let databases: Vec<DatabaseRecord> = ours.collect();
        let tags = catalog.tags()?.into_iter().map(|tag| tag.csn).collect();
        let total = databases.iter().map(|it| bytes_of(&self.inner, &it.row)).sum();
        let mut checking = Check {
            inner: &self.inner,
            head,
            tags,
            level,
            report: CheckReport { is_complete: true, ..CheckReport::default() },
            targets: LinkTargetCache::new(head, elsewhere.clone()),
            elsewhere,
            progress,
            done: 0,
            total,
        };
        checking.orphans(&known)?;
        for record in &databases {
            if checking.report.is_complete {
                checking.database_if_here(record)?;
            }
        }
        Ok(checking.report)
    }
}

/// The databases whose files are at other servers.
fn databases_elsewhere(inner: &Inner) -> Result<HashSet<DatabaseId>> {
    let catalog = inner.local()?;
    let elsewhere = catalog.databases_elsewhere()?;
    if !elsewhere.is_empty() {
        catalog.check_storage_is_named()?;
    }
    Ok(elsewhere)
}

fn bytes_of(inner: &Inner, row: &DatabaseRow) -> u64 {
    DatabaseFile::open(inner.path_of(row)).and_then(|file| file.size()).unwrap_or(0)
}

/// A running check.
struct Check<'a, 'p> {
    inner: &'a Inner,
    /// The commit that the check regards as the newest.
    head: Csn,
    /// Commits of tags, in ascending order.
    tags: Vec<Csn>,
    level: CheckLevel,
    report: CheckReport,
    targets: LinkTargetCache,
    /// Databases whose files are at other servers.
    elsewhere: HashSet<DatabaseId>,
    progress: &'a mut Watch<'p>,
    done: u64,
    total: u64,
}

impl Check<'_, '_> {
    /// Reports progress by some bytes of a database.
    fn advance(&mut self, of: &str, bytes: u64) {
        self.done += bytes;
        self.report.bytes += bytes;
        let progress =
            Progress { doing: "checking", of: of.to_owned(), done: self.done, total: self.total };
        if !(self.progress)(&progress) {
            self.report.is_complete = false;
        }
    }

    /// Checks a database, unless its file is at another server. Before it reports damage, it looks whether the file, or
    /// a file to which its objects link, has moved to another server meanwhile; if so, it checks the database again, at
    /// most [`AGAIN_MAX`] times. If links led to databases that moved each time, a notice says so.
    fn database_if_here(&mut self, record: &DatabaseRecord) -> Result<()> {
        let mut again = 0;
        loop {
            if self.elsewhere.contains(&record.row.id) {
                self.report.elsewhere += 1;
                return Ok(());
            }
            let (before, done) = (self.report.clone(), self.done);
            let checked = self.database(record);
            let is_suspect = checked.is_err() || self.report.has_more_than(&before);
            if !(self.report.is_complete && is_suspect && self.has_moved_meanwhile(record.row.id)) {
                return checked;
            }
            if again == AGAIN_MAX && !self.elsewhere.contains(&record.row.id) {
                self.report.add(Problem {
                    severity: Severity::Notice,
                    kind: ProblemKind::Disagreement,
                    place: ProblemLocation {
                        database: Some((record.row.id, record.row.name.clone())),
                        ..ProblemLocation::default()
                    },
                    what: "databases to which its objects link moved to other servers during the check, \
                           so that its dangling links may not be dangling"
                        .to_owned(),
                    advice: "check it again when they have moved".to_owned(),
                });
                return checked;
            }
            (self.report, self.done) = (before, done);
            again += 1;
        }
    }

    /// Looks again which databases are at other servers; whether one of those that moved there explains a problem of
    /// `database`: itself, or one whose objects its links did not find.
    fn has_moved_meanwhile(&mut self, database: DatabaseId) -> bool {
        let now = match databases_elsewhere(self.inner) {
            Ok(now) => now,
            Err(error) => {
                self.report.add(Problem {
                    severity: Severity::Notice,
                    kind: ProblemKind::Disagreement,
                    place: ProblemLocation::default(),
                    what: format!("whether databases moved during the check is not known: {error}"),
                    advice: "check again before you repair".to_owned(),
                });
                return false;
            }
        };
        let moved: HashSet<_> = now.difference(&self.elsewhere).copied().collect();
        let explains = moved.contains(&database) || self.targets.has_missed_any(&moved);
        if now != self.elsewhere {
            self.targets = LinkTargetCache::new(self.head, now.clone());
            self.elsewhere = now;
        }
        explains
    }

    /// Reports files in the folder of databases that the catalogue does not name.
    fn orphans(&mut self, databases: &[DatabaseRow]) -> Result<()> {
        for (path, bytes) in orphans(self.inner, databases)? {
            self.report.orphan_bytes += bytes;
            self.report.add(Problem {
                severity: Severity::Notice,
                kind: ProblemKind::OrphanFile,
                place: ProblemLocation::default(),
                what: format!("{} ({bytes} bytes) belongs to no database", path.display()),
                advice: "a killed transaction left it; repair removes it".to_owned(),
            });
        }
        Ok(())
    }
}

/// Files in the folder of databases that belong to none of `databases`.
pub(crate) fn orphans(inner: &Inner, databases: &[DatabaseRow]) -> Result<Vec<(PathBuf, u64)>> {
    let known: HashSet<PathBuf> = databases.iter().map(|row| inner.path_of(row)).collect();
    let files = places::files(inner.catalog.folder())?.into_iter();
    let unknown = files.filter(|found| !known.contains(&found.path));
    Ok(unknown.map(|found| (found.path, found.size)).collect())
}
