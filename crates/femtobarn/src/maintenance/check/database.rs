//! Checking one database: its file, the chain of its keys, and overlaps of ranges in it.

use std::ops::Range;
use std::sync::Arc;

use femtobarn_catalog::{DatabaseRecord, DatabaseRow, DatabaseState, Role};
use rntuple::tfile::KeyChain;

use super::front::Front;
use super::records::Records;
use super::{Check, CheckLevel, Problem, ProblemKind, ProblemLocation, Severity};
use crate::error::Result;
use crate::inventory::{self, Inventory, Part, Ranges};
use crate::storage::file::DatabaseFile;
use crate::storage::{key_chain, nearline};

/// A database that is being checked.
pub(super) struct CheckedDatabase<'a> {
    pub row: &'a DatabaseRow,
    pub source: Arc<DatabaseFile>,
    pub size: u64,
    pub inventory: Inventory<'a>,
    pub records: Records,
    /// Pages that were read before, for another version.
    pub read: Ranges,
    /// Ranges in the file, each with its kind.
    pub parts: Vec<(Range<u64>, &'static str)>,
    /// Whether all page lists of all versions could be read.
    pub lists_are_complete: bool,
}

impl CheckedDatabase<'_> {
    pub(super) fn place(&self) -> ProblemLocation {
        ProblemLocation {
            database: Some((self.row.id, self.row.name.clone())),
            ..ProblemLocation::default()
        }
    }

    /// Records the range of a part of a version.
    pub(super) fn note(&mut self, part: Part, range: Range<u64>) {
        let name = match part {
            Part::Header => "header",
            Part::Footer => "footer",
            Part::PageList => "page list",
            Part::Page(..) => "page",
            Part::Annex => "annex",
            Part::Blob => "blob",
            Part::Record => "commit record",
        };
        if !range.is_empty() {
            self.parts.push((range, name));
        }
    }
}

impl Check<'_, '_> {
    pub(super) fn database(&mut self, record: &DatabaseRecord) -> Result<()> {
        let row = &record.row;
        self.report.databases += 1;
        let place = ProblemLocation {
            database: Some((row.id, row.name.clone())),
            ..ProblemLocation::default()
        };
        let path = self.inner.path_of(row);
        let file = match nearline::open(&*self.inner.catalog, row, path) {
            Ok(Some(file)) => Arc::new(file),
            Ok(None) => {
                self.report.nearline += 1;
                return Ok(());
            }
            Err(error) => {
                self.damage(place, ProblemKind::MissingFile, error.to_string());
                return Ok(());
            }
        };
        let front = self.front(row, &place, &file);
        if front == Front::Another {
            return Ok(());
        }
        let mut subject = CheckedDatabase {
            row,
            size: DatabaseFile::size(&file)?,
            inventory: Inventory::new(&*file),
            source: file.clone(),
            records: Records::default(),
            read: Ranges::default(),
            parts: vec![],
            lists_are_complete: true,
        };
        let done = self.done;
        for container in self.inner.local()?.every_container(row.id)? {
            if self.report.is_complete {
                let end = container.dropped.into_iter().chain(record.dropped).min();
                self.container(&mut subject, &container.row, end)?;
            }
        }
        // The chain starts at the first key, which follows the front.
        if self.level == CheckLevel::Full && self.report.is_complete && front == Front::Whole {
            self.layout(&mut subject, &file)?;
        }
        // Progress covers the whole file, also free ranges and shared pages.
        let rest = subject.size.saturating_sub(self.done - done);
        self.advance(&row.name, rest);
        Ok(())
    }

    /// Checks that keys follow each other and no ranges overlap.
    fn layout(&mut self, subject: &mut CheckedDatabase<'_>, file: &DatabaseFile) -> Result<()> {
        let headers = match subject.row.state {
            DatabaseState::Open => self.open_chain(subject, file)?,
            _ => {
                self.closed_chain(subject);
                vec![]
            }
        };
        for extent in self.inner.local()?.free_extents(subject.row.id)? {
            subject.parts.push((inventory::blob(extent.range)?, "free space"));
        }
        self.overlaps(subject, &headers);
        let mut free: Ranges = std::iter::once(0..file.size()?).collect();
        subject.parts.iter().for_each(|(range, _)| free.remove(range.clone()));
        headers.iter().for_each(|range| free.remove(range.clone()));
        if subject.lists_are_complete && subject.row.state == DatabaseState::Open {
            self.report.unreferenced_bytes += free.total();
        }
        Ok(())
    }

    fn open_chain(
        &mut self,
        subject: &CheckedDatabase<'_>,
        file: &DatabaseFile,
    ) -> Result<Vec<Range<u64>>> {
        let survey = if self.inner.catalog.is_read_only() {
            key_chain::survey(file)?
        } else {
            let _lock = self.inner.locks().lock_allocation(subject.row.id)?;
            key_chain::survey(file)?
        };
        // A follower copies only the headers of keys that lie beside data; promotion writes the others.
        let is_copy = matches!(self.inner.local()?.role()?, Role::Follower { .. });
        for fault in survey.faults.into_iter().filter(|_| !is_copy) {
            self.report.add(Problem {
                severity: Severity::Warning,
                kind: ProblemKind::Chain,
                place: subject.place(),
                what: format!("no key between bytes {} and {}", fault.start, fault.end),
                advice: "a killed writer left this gap; repair or sealing marks it".to_owned(),
            });
        }
        Ok(survey.headers)
    }

    fn closed_chain(&mut self, subject: &CheckedDatabase<'_>) {
        let walked = KeyChain::of_file(&*subject.source)
            .and_then(|mut chain| chain.try_for_each(|key| key.map(|_| ())));
        if let Err(error) = walked {
            self.report.add(Problem {
                severity: Severity::Warning,
                kind: ProblemKind::Chain,
                place: subject.place(),
                what: error.to_string(),
                advice: "its data can be read, except by programs that walk the keys of the file"
                    .to_owned(),
            });
        }
    }

    /// Versions may share a range as a whole; ranges must not overlap otherwise.
    fn overlaps(&mut self, subject: &mut CheckedDatabase<'_>, headers: &[Range<u64>]) {
        let place = subject.place();
        let parts = &mut subject.parts;
        parts.extend(headers.iter().map(|range| (range.clone(), "key")));
        parts.sort_by_key(|(range, name)| (range.start, range.end, *name));
        parts.dedup_by(|a, b| a.0 == b.0);
        let mut last: (Range<u64>, &str) = (0..0, "");
        let mut found = vec![];
        for (range, name) in parts.iter() {
            if range.start < last.0.end {
                found.push(format!(
                    "the {name} at byte {} overlaps the {} at byte {}",
                    range.start, last.1, last.0.start
                ));
            }
            if range.end > last.0.end {
                last = (range.clone(), name);
            }
        }
        for what in found {
            self.damage(place.clone(), ProblemKind::Overlap, what);
        }
    }

    /// Reports a problem, with the severity and the advice for its kind.
    pub(super) fn damage(&mut self, place: ProblemLocation, kind: ProblemKind, what: String) {
        let advice = match kind {
            ProblemKind::MissingFile | ProblemKind::WrongFile => {
                "put the database's file back, or restore it from a backup"
            }
            ProblemKind::Front => {
                "repair moves these bytes and rewrites the front; until then the file cannot be \
                 copied as a ROOT file, sealed, or found by a rebuild of the catalogue"
            }
            ProblemKind::Statistics | ProblemKind::Index => "repair rebuilds it",
            ProblemKind::Disagreement | ProblemKind::Annex => {
                "repair takes it from the commit record if that is intact"
            }
            ProblemKind::Record => {
                "no data are lost, but the catalogue cannot be rebuilt from this record"
            }
            _ => "restore the file from a backup, or salvage the newest intact version",
        };
        let advice = advice.to_owned();
        let severity = match kind {
            // Objects are found without them, but slower.
            ProblemKind::Statistics | ProblemKind::Index => Severity::Warning,
            _ => Severity::Damage,
        };
        self.report.add(Problem { severity, kind, place, what, advice });
    }
}
