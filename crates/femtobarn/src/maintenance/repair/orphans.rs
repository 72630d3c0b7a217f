//! Files that no database has: removed if they hold nothing of use, otherwise reported.

use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::{DatabaseId, DatabaseRow};
use rntuple::ByteSource;

use super::Repair;
use crate::error::{Error, Result};
use crate::maintenance::check::{self, Problem, ProblemKind, ProblemLocation, Severity};
use crate::storage::file::{self, DatabaseFile};
use crate::storage::identify::{RootFileKind, identify};

/// A file modified within this time may belong to a running process.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(3600);
/// Bytes searched at a time for one that is not zero.
const LOOK_BYTES: u64 = 1 << 20;

impl Repair<'_> {
    /// Removes files that no database has and that hold nothing of use.
    pub(super) fn remove_orphans(&mut self) -> Result<()> {
        let catalog = self.federation.inner.local()?;
        let every = catalog.every_database()?;
        let known: Vec<DatabaseRow> = every.into_iter().map(|record| record.row).collect();
        let held = catalog.locks().held()?;
        // A transaction locks a new database before it creates the file.
        let is_new = |id: DatabaseId| known.iter().all(|row| row.id != id);
        let is_creating = held.iter().filter_map(|lock| lock.target.database()).any(is_new);
        for (path, bytes) in check::orphans(&self.federation.inner, &known)? {
            let advice = if is_creating {
                Some("a transaction is creating a database; repair again when it has ended")
            } else {
                reason_to_keep(&path)?
            };
            let what = format!("{} ({bytes} bytes)", path.display());
            match advice {
                None => {
                    if !self.options.dry_run {
                        file::remove_if_there(&path)?;
                    }
                    self.report.done.push(format!("{what} belonged to no database and is removed"));
                }
                Some(advice) => self.report.left.push(Problem {
                    severity: Severity::Notice,
                    kind: ProblemKind::OrphanFile,
                    place: ProblemLocation::default(),
                    what: format!("{what} belongs to no database"),
                    advice: advice.to_owned(),
                }),
            }
        }
        Ok(())
    }
}

/// Why a file that no database has is kept; `None` if it can be removed.
fn reason_to_keep(path: &Path) -> Result<Option<&'static str>> {
    if file::age(path).is_none_or(|age| age < ORPHAN_AGE_MIN) {
        return Ok(Some("it was modified within the last hour; repair again later"));
    }
    let facts = identify(path)?;
    Ok(match facts.kind {
        RootFileKind::UnfinishedFile if facts.commits == 0 => None,
        RootFileKind::Other if is_blank(path)? => None,
        RootFileKind::OpenDatabase | RootFileKind::UnfinishedFile => Some(
            "it has commits: rebuild the catalogue if it belongs to this federation; otherwise move it elsewhere",
        ),
        RootFileKind::SealedDatabase => Some("attach it, or move it elsewhere"),
        RootFileKind::RootFile | RootFileKind::Other => {
            Some("another program wrote it; move it elsewhere")
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
