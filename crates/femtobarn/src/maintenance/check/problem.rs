//! Problems: the findings of a check, with kind, severity and location.

use std::fmt;

use femtobarn_catalog::{ContainerId, Csn, DatabaseId};

/// Problems that a report holds; the rest is only counted.
const PROBLEMS_MAX: usize = 1000;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Data are safe; something could be tidier.
    Notice,
    /// All data can be read, but something is not as it should be.
    Warning,
    /// Committed data cannot be read or trusted.
    Damage,
}

/// Kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A database's file is missing or cannot be opened.
    MissingFile,
    /// A file belongs to another database.
    WrongFile,
    /// Other bytes lie where a database's file should have its front.
    Front,
    /// A file is shorter than the ranges in it.
    ShortFile,
    /// A file belongs to no database.
    OrphanFile,
    /// The chain of keys in a file has a gap.
    Chain,
    /// Two ranges overlap.
    Overlap,
    /// Header, footer or page list of a version is damaged.
    Metadata,
    /// A page is damaged.
    Page,
    /// The values of objects are inconsistent.
    Object,
    /// A set has an item twice or out of order, or a dictionary a key twice.
    Uniqueness,
    /// The annex of a version is damaged.
    Annex,
    /// The list of deleted objects is damaged.
    Deletions,
    /// Statistics of clusters are damaged or wrong.
    Statistics,
    /// An index is damaged or wrong.
    Index,
    /// The commit record of a version is damaged or differs.
    Record,
    /// Catalogue and file disagree.
    Disagreement,
    /// The target of a link does not exist.
    DanglingLink,
    /// Links lead to a database that is not in the federation.
    UnknownDatabase,
}

/// The location of a problem, as precisely as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemLocation {
    /// The database.
    pub database: Option<(DatabaseId, String)>,
    /// The container in it.
    pub container: Option<(ContainerId, String)>,
    /// The version of the container.
    pub csn: Option<Csn>,
    /// Entries of the container: the first, and the one after the last.
    pub entries: Option<(u64, u64)>,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Its kind.
    pub kind: ProblemKind,
    /// Its location.
    pub place: ProblemLocation,
    /// The description of the problem.
    pub what: String,
    /// A remedy.
    pub advice: String,
}

/// The scope and the findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The first thousand problems.
    pub problems: Vec<Problem>,
    /// Problems beyond the first thousand, which are only counted.
    pub more_problems: u64,
    /// Whether the check was completed.
    pub is_complete: bool,
    /// Checked databases.
    pub databases: u64,
    /// Databases that are in stores alone, and were not read.
    pub nearline: u64,
    /// Databases whose files are at other servers of the federation, and were not read.
    pub elsewhere: u64,
    /// Checked containers.
    pub containers: u64,
    /// Checked versions of containers.
    pub versions: u64,
    /// Pages read and verified.
    pub pages: u64,
    /// Objects read (full check).
    pub objects: u64,
    /// Links followed (full check).
    pub links: u64,
    /// Bytes of files covered.
    pub bytes: u64,
    /// Bytes of database files that no version refers to (full check). Vacuum can free them when no
    /// transaction is open.
    pub unreferenced_bytes: u64,
    /// Bytes of files that belong to no database.
    pub orphan_bytes: u64,
}

impl CheckReport {
    /// Whether all committed data can be read.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity < Severity::Damage)
    }

    /// The most serious problems.
    pub fn worst(&self) -> Option<Severity> {
        self.problems.iter().map(|problem| problem.severity).max()
    }

    /// Whether more was found since `before`.
    pub(super) fn has_more_than(&self, before: &Self) -> bool {
        self.problems.len() > before.problems.len() || self.more_problems > before.more_problems
    }

    pub(super) fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            return self.problems.push(problem);
        }
        self.more_problems += 1;
        // A thousand dangling links must not hide damage.
        if problem.severity == Severity::Damage
            && let Some(lesser) =
                self.problems.iter_mut().rev().find(|other| other.severity < Severity::Damage)
        {
            *lesser = problem;
        }
    }
}

impl fmt::Display for ProblemLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, database)) = &self.database else { return f.write_str("federation") };
        f.write_str(database)?;
        if let Some((_, container)) = &self.container {
            write!(f, "/{container}")?;
        }
        if let Some(csn) = self.csn {
            write!(f, " as of commit {csn}")?;
        }
        match self.entries {
            Some((first, end)) if end.saturating_sub(first) < 2 => write!(f, ", entry {first}"),
            Some((first, end)) => write!(f, ", entries {first} to {}", end - 1),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.advice)
    }
}
