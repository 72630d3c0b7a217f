//! Problems: the findings of a check, with kind, severity and place.

use std::fmt;

use femtobarn_catalog::{ContainerId, Csn, DatabaseId};

/// Problems that a report holds; what comes after is only counted.
const PROBLEMS_MAX: usize = 1000;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is lost or in danger; something could be tidier.
    Notice,
    /// All data can be read, but not all is as it should be.
    Warning,
    /// Something committed cannot be read, or not be trusted.
    Damage,
}

/// What is wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A database's file is not there or cannot be opened.
    MissingFile,
    /// A file is that of another database.
    WrongFile,
    /// A database's file has something else where its front should be.
    Front,
    /// A file is shorter than what it should hold.
    ShortFile,
    /// A file is there that no database has.
    OrphanFile,
    /// The keys of a file do not follow each other.
    Chain,
    /// Two things lie in the same place.
    Overlap,
    /// Header, footer or page list of a version.
    Metadata,
    /// A page.
    Page,
    /// The values of objects do not fit together.
    Object,
    /// The table of contents beside a version.
    Annex,
    /// The lists of deleted objects.
    Deletions,
    /// What the values of clusters lie between.
    Statistics,
    /// An index.
    Index,
    /// The commit record of a version.
    Record,
    /// What the catalogue says is not what the file says.
    Disagreement,
    /// A link leads to no object.
    DanglingLink,
    /// Links lead to a database that is not in the federation.
    UnknownDatabase,
}

/// Where a problem is, as far as it is anywhere.
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

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, for programs.
    pub kind: ProblemKind,
    /// Where.
    pub place: ProblemLocation,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// What a check looked at and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong, the first thousand.
    pub problems: Vec<Problem>,
    /// Problems beyond those.
    pub more_problems: u64,
    /// Whether the check went to its end.
    pub is_complete: bool,
    /// Databases looked at.
    pub databases: u64,
    /// Containers looked at.
    pub containers: u64,
    /// Versions of containers looked at.
    pub versions: u64,
    /// Pages read and verified.
    pub pages: u64,
    /// Objects read (full check).
    pub objects: u64,
    /// Links followed (full check).
    pub links: u64,
    /// Bytes of files dealt with.
    pub bytes: u64,
    /// Bytes of database files that no version refers to (full check): what vacuum could give back
    /// when nobody writes.
    pub unreferenced_bytes: u64,
    /// Bytes of files that no database has.
    pub orphan_bytes: u64,
}

impl CheckReport {
    /// Whether all that is committed can be read.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity < Severity::Damage)
    }

    /// The most serious problems.
    pub fn worst(&self) -> Option<Severity> {
        self.problems.iter().map(|problem| problem.severity).max()
    }

    pub(super) fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            return self.problems.push(problem);
        }
        self.more_problems += 1;
        // Damage is not crowded out by a thousand dangling links.
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
