//! Mending one container by a new version with its intact parts.
//!
//! Indexes, statistics and the list of compacted entries can be rebuilt or left out. Damaged objects and
//! deletions cannot; only `salvage` then continues from an older version.

use std::time::Duration;

use femtobarn_catalog::{ContainerRow, Csn, DatabaseRow, VersionRow};
use rntuple::{Appender, Value};

use super::examiner::Examiner;
use crate::ContainerOptions;
use crate::annex::{Annex, IndexState};
use crate::error::{Error, ErrorKind, Result};
use crate::federation::Federation;
use crate::inventory::Inventory;
use crate::maintenance::republication::{Republication, Revision};
use crate::read::index::{Indexed, PendingKeys};
use crate::transaction::range;

/// Parts of a newest version that can be read but that the check found wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SuspectParts {
    pub statistics: bool,
    pub indexes: bool,
}

/// The decision about a container.
pub(super) enum Verdict {
    /// Its newest version is intact.
    Whole,
    /// It gets a new version.
    Mend(Box<RepairPlan>),
    /// Its newest version stays damaged: the reason, and a remedy.
    Lost(String, String),
}

/// A new version of a container.
pub(super) struct RepairPlan {
    /// The version whose objects it takes over.
    row: VersionRow,
    annex: Annex,
    is_annex_new: bool,
    /// Entries handed out so far, including those of lost objects.
    numbered: u64,
    /// Names of the indexes to rebuild.
    rebuilt: Vec<String>,
    /// The mended parts, a sentence each.
    pub done: Vec<String>,
}

impl Examiner<'_, '_> {
    /// Decides about a container with these versions, oldest first.
    ///
    /// # Errors
    /// `Closed` if `progress` stops it.
    pub(super) fn verdict(
        &mut self,
        versions: &[VersionRow],
        suspects: SuspectParts,
        salvage: bool,
    ) -> Result<Verdict> {
        let Some((newest, older)) = versions.split_last() else {
            let advice = "restore the catalogue from a backup, or rebuild it";
            return Ok(Verdict::Lost("it has no version".to_owned(), advice.to_owned()));
        };
        let fault = match self.plan(newest, older, suspects) {
            Ok(plan) if plan.done.is_empty() => return Ok(Verdict::Whole),
            Ok(plan) => return Ok(Verdict::Mend(Box::new(plan))),
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => error,
        };
        if let Some(recorded) = self.version_in_record(newest).filter(|it| it != newest)
            && let Ok(mut plan) = self.plan(&recorded, older, suspects)
        {
            plan.done.push("its row in the catalogue was taken from the commit record".to_owned());
            return Ok(Verdict::Mend(Box::new(plan)));
        }
        let Some((mut plan, lost)) = self.older(newest, older)? else {
            let advice = "no version is intact; restore the file from a backup";
            return Ok(Verdict::Lost(fault.to_string(), advice.to_owned()));
        };
        if !salvage {
            let advice = format!("salvage reverts it to commit {}: {lost}", plan.row.csn);
            return Ok(Verdict::Lost(fault.to_string(), advice));
        }
        let csn = plan.row.csn;
        plan.done.push(format!("it was reverted to commit {csn}: {lost} ({fault})"));
        Ok(Verdict::Mend(Box::new(plan)))
    }

    /// The newest intact version among older ones, and the loss from reverting to it.
    fn older(
        &mut self,
        newest: &VersionRow,
        older: &[VersionRow],
    ) -> Result<Option<(RepairPlan, String)>> {
        for (at, row) in older.iter().enumerate().rev() {
            match self.plan(row, &older[..at], SuspectParts::default()) {
                Ok(mut plan) => {
                    plan.numbered = newest.entries.max(row.entries);
                    let lost = newest.entries.saturating_sub(row.entries);
                    let lost = format!("{lost} objects and all changes since are lost");
                    return Ok(Some((plan, lost)));
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// How a version is mended without losing data; the plan is empty if it is intact.
    ///
    /// # Errors
    /// The fault that cannot be mended.
    fn plan(
        &mut self,
        row: &VersionRow,
        older: &[VersionRow],
        suspects: SuspectParts,
    ) -> Result<RepairPlan> {
        self.check_objects(row)?;
        let (annex, is_annex_new) = match Annex::read(&*self.source, row.annex) {
            Ok(annex) => (annex, false),
            // Without deletions, the rest of the annex can be rebuilt.
            Err(_) if row.deleted == 0 => (self.earlier_annex(older), true),
            Err(error) => return Err(error.into()),
        };
        self.deletions(&annex, row)?;
        let numbered = row.entries;
        let mut plan =
            RepairPlan { row: *row, annex, is_annex_new, numbered, rebuilt: vec![], done: vec![] };
        if is_annex_new {
            plan.rebuilt = plan.annex.indexes.iter().map(|it| it.name.clone()).collect();
            plan.done.push(match &plan.rebuilt[..] {
                [] => "its annex was damaged; indexes have to be created again".to_owned(),
                names => format!("its annex was rebuilt with its indexes {}", names.join(", ")),
            });
        }
        self.drop_damaged_parts(&mut plan, suspects);
        if row.record.size > 0 && self.version_in_record(row).is_none() {
            plan.done.push("its commit record was rewritten".to_owned());
        }
        Ok(plan)
    }

    fn drop_damaged_parts(&mut self, plan: &mut RepairPlan, suspects: SuspectParts) {
        let annex = &mut plan.annex;
        if !annex.forgotten.iter().all(|it| self.is_whole(&it.blob)) {
            annex.forgotten.clear();
            plan.is_annex_new = true;
            plan.done.push(
                "the list of compacted entries was dropped; the next compaction rebuilds it"
                    .to_owned(),
            );
        }
        if suspects.statistics || !annex.statistics.iter().all(|it| self.is_whole(&it.blob)) {
            annex.statistics.clear();
            plan.is_annex_new = true;
            plan.done.push("its damaged statistics were dropped; readers skip less".to_owned());
        }
        for index in &mut annex.indexes {
            let is_reported = plan.rebuilt.contains(&index.name);
            if !is_reported
                && (suspects.indexes || !index.runs.iter().all(|run| self.is_whole(&run.blob)))
            {
                plan.rebuilt.push(index.name.clone());
                plan.is_annex_new = true;
                plan.done.push(format!("its index {:?} was rebuilt", index.name));
            }
        }
    }

    /// The definitions of the indexes in the newest readable annex, without their runs.
    fn earlier_annex(&self, older: &[VersionRow]) -> Annex {
        let read = |row: &VersionRow| Annex::read(&*self.source, row.annex).ok();
        let mut indexes = older.iter().rev().find_map(read).unwrap_or_default().indexes;
        indexes.iter_mut().for_each(|index| index.runs.clear());
        Annex { indexes, ..Annex::default() }
    }
}

impl RepairPlan {
    /// Publishes the new version; returns the changes, a sentence each.
    ///
    /// # Errors
    /// `Conflict` if the container changed meanwhile; `Busy` if a transaction writes it; `Io` or `Full` if
    /// the file cannot be written.
    pub(super) fn carry_out(
        mut self,
        federation: &Federation,
        database: &DatabaseRow,
        container: &ContainerRow,
        newest: Csn,
        lock_wait: Duration,
        examiner: &mut Examiner<'_, '_>,
    ) -> Result<Vec<String>> {
        let mut publishing =
            Republication::begin(federation, database.id, container.id, lock_wait)?;
        let path = publishing.path();
        if publishing.base.csn != newest {
            return Err(Error::Conflict {
                what: format!("{path} changed during the repair; repair it again"),
            });
        }
        let extents = publishing.extents()?;
        if !self.rebuilt.is_empty() {
            self.rebuild(&path, extents, examiner)?;
        }
        self.keep_numbers(&mut publishing, examiner)?;
        let extents = publishing.extents()?;
        if self.is_annex_new {
            self.row.annex = self.annex.write(extents).map_err(Error::storage(&path))?;
            extents.flush()?;
        }
        self.row.record = Default::default();
        self.row.bytes = Inventory::of(&*examiner.source, &[self.row])?.total();
        publishing.commit(Revision::of(&self.row), &format!("repair {path}"))?;
        Ok(self.done)
    }

    /// Marks the entries of lost objects as deleted, so that their OIDs are never reused.
    fn keep_numbers(
        &mut self,
        publishing: &mut Republication<'_>,
        examiner: &mut Examiner<'_, '_>,
    ) -> Result<()> {
        let lost = self.row.entries..self.numbered;
        if lost.is_empty() {
            return Ok(());
        }
        let what = publishing.path();
        let options = ContainerOptions::from_json(&publishing.container.options)?;
        let (reader, source) = (examiner.reader(&self.row)?, examiner.source.clone());
        let mut deletions = examiner.deletions(&self.annex, &self.row)?;
        let extents = publishing.extents()?;
        let mut write = || {
            let mut appender = Appender::resume(&reader, options.write_options())?;
            let nothing = Value::zero(appender.types())?;
            lost.clone().try_for_each(|_| appender.append_value(extents, &nothing))?;
            appender.finish_version(extents, &*source)
        };
        let version = write().map_err(Error::storage(&what))?;
        for entry in lost.clone() {
            deletions.insert(&*source, entry)?;
        }
        self.annex.deletions = deletions.write(extents).map_err(Error::storage(&what))?;
        extents.flush()?;
        self.is_annex_new = true;
        self.row.footer = range(&version.footer);
        (self.row.entries, self.row.deleted) = (lost.end, deletions.count());
        Ok(())
    }

    /// Rebuilds indexes, and drops those that cannot be built from the remaining objects.
    fn rebuild(
        &mut self,
        path: &str,
        extents: &mut crate::storage::extent::ExtentWriter,
        examiner: &mut Examiner<'_, '_>,
    ) -> Result<()> {
        let (class, reader) = (examiner.class(&self.row)?, examiner.reader(&self.row)?);
        let deletions = examiner.deletions(&self.annex, &self.row)?;
        let source = examiner.source.clone();
        let indexed = Indexed {
            what: path,
            class: &class,
            reader: &reader,
            is_deleted: &|entry| Ok(deletions.contains(&*source, entry)?),
            source: &*source,
        };
        let mut kept: Vec<IndexState> = vec![];
        for mut index in std::mem::take(&mut self.annex.indexes) {
            if self.rebuilt.contains(&index.name) {
                let mut pending = PendingKeys::from(self.row.entries);
                pending.rebuild(&mut index);
                let one = std::slice::from_mut(&mut index);
                match indexed.update(one, &mut pending, extents) {
                    Ok(()) => {}
                    Err(error) if is_fault_of_index(error.kind()) => {
                        self.done.push(format!("its index {:?} was dropped: {error}", index.name));
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            kept.push(index);
        }
        self.annex.indexes = kept;
        Ok(())
    }
}

/// Whether an index cannot be built because of its definition or keys.
fn is_fault_of_index(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid)
}
