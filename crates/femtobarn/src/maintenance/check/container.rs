//! Checking one container: its versions against the catalogue, and the pages of all of them.

use femtobarn_catalog::{ContainerRow, Csn, DatabaseRow, DatabaseState, VersionRow};
use rntuple::{DELETED_FIELD, Reader, Schema};

use super::database::CheckedDatabase;
use super::page::{PageBuffer, StoredPage, lies_beyond, read_page};
use super::{Check, CheckLevel, ProblemKind, ProblemLocation};
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, ErrorKind, Result};
use crate::inventory::{self, Part};
use crate::schema::class::Class;
use femtobarn_format::link;

impl Check<'_, '_> {
    /// Checks a container that exists until commit `end`.
    pub(super) fn container(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        container: &ContainerRow,
        end: Option<Csn>,
    ) -> Result<()> {
        let is_live = container.created <= self.head && end.is_none_or(|end| end > self.head);
        let newest = if is_live { Some(self.head) } else { last_before(&self.tags, end) };
        let versions = self.versions(container, newest)?;
        if versions.is_empty() && !is_live {
            return Ok(());
        }
        self.report.containers += 1;
        let mut place = subject.place();
        place.container = Some((container.id, container.name.clone()));
        let Some(newest) = versions.last().copied() else {
            self.damage(place, ProblemKind::Disagreement, "it has no version".to_owned());
            return Ok(());
        };
        let mut is_newest_sound = false;
        for row in &versions {
            if !self.report.is_complete {
                return Ok(());
            }
            self.report.versions += 1;
            place.csn = Some(row.csn);
            is_newest_sound = self.version(subject, container, row, &place)?;
        }
        if self.level == CheckLevel::Full && is_live && is_newest_sound && self.report.is_complete {
            self.objects(subject, container, &newest, &place)?;
        }
        Ok(())
    }

    /// The versions to check, oldest first. `newest` is the last snapshot whose version is checked.
    fn versions(&self, container: &ContainerRow, newest: Option<Csn>) -> Result<Vec<VersionRow>> {
        let catalog = &self.inner.catalog;
        match self.level {
            CheckLevel::Full => {
                let mut versions = catalog.versions(container.database, container.id)?;
                versions.retain(|row| row.csn <= self.head);
                Ok(versions)
            }
            CheckLevel::Quick => versions_of_tags(newest, &self.tags, |csn| {
                Ok(catalog.version(container.database, container.id, csn)?)
            }),
        }
    }

    /// Checks one version; returns whether its objects can be read.
    pub(super) fn version(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        container: &ContainerRow,
        row: &VersionRow,
        place: &ProblemLocation,
    ) -> Result<bool> {
        self.annex(subject, row, place)?;
        self.record(subject, row, place);
        let reader =
            Reader::from_links(subject.source.clone(), &link(&row.header), &link(&row.footer));
        let reader = match reader {
            Ok(reader) => reader,
            Err(error) => {
                subject.lists_are_complete = false;
                self.damage(place.clone(), ProblemKind::Metadata, error.to_string());
                return Ok(false);
            }
        };
        if reader.entries() != row.entries {
            let what = format!(
                "{} entries on disk, but {} in the catalogue",
                reader.entries(),
                row.entries
            );
            self.damage(place.clone(), ProblemKind::Disagreement, what);
            return Ok(false);
        }
        let is_of_class = self.class(subject.row, container, row, &reader, place)?;
        if self.level == CheckLevel::Full {
            self.pages(subject, row, &reader, place)?;
        } else {
            self.page_lists(subject, &reader, place);
        }
        Ok(is_of_class)
    }

    /// Checks that the version's fields are those of its class.
    fn class(
        &mut self,
        database: &DatabaseRow,
        container: &ContainerRow,
        row: &VersionRow,
        reader: &Reader,
        place: &ProblemLocation,
    ) -> Result<bool> {
        let class = self.inner.catalog.class(&container.class, Some(row.class_version));
        let class = class.map_err(Error::from).and_then(|row| Class::from_json(&row.definition));
        let is_attached = database.state == DatabaseState::Attached;
        let is_of = |class: &Class| {
            let mut members = reader.members();
            // Sealing adds a field that marks deleted objects for plain readers.
            members.retain(|(name, _)| row.deleted == 0 || name != DELETED_FIELD);
            if !is_attached {
                return members == class.members();
            }
            // Unreadable fields of a foreign file were left out of its class when it was attached, and nested
            // records got their class names then.
            members.retain(|(name, _)| class.fields.iter().any(|field| field.name == *name));
            members == class.members()
                || Class::of_members(&class.name, &members).fields == class.fields
        };
        let what = match class {
            Ok(class) if is_of(&class) => return Ok(true),
            Ok(class) => {
                format!(
                    "its fields differ from those of class {} version {}",
                    class.name, class.version
                )
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Io | ErrorKind::Denied | ErrorKind::Unavailable | ErrorKind::Corrupt
                ) =>
            {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        self.damage(place.clone(), ProblemKind::Disagreement, what);
        Ok(false)
    }

    fn annex(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        row: &VersionRow,
        place: &ProblemLocation,
    ) -> Result<()> {
        let annex = match Annex::read(&*subject.source, row.annex) {
            Ok(annex) => annex,
            Err(error) => {
                subject.lists_are_complete = false;
                self.damage(place.clone(), ProblemKind::Annex, error.to_string());
                return Ok(());
            }
        };
        if let Err(error) = Deletions::new(&annex.deletions, row.deleted, row.entries) {
            self.damage(place.clone(), ProblemKind::Deletions, error.to_string());
        }
        if self.level == CheckLevel::Quick {
            return Ok(());
        }
        let mut found = vec![];
        subject.inventory.visit_annex(row, &mut |part, range| {
            found.push((part, range));
            Ok(())
        })?;
        let is_new =
            |offset| found.iter().any(|(part, range)| *part == Part::Blob && range.start == offset);
        self.blobs(&annex, &is_new, subject, place);
        found.into_iter().for_each(|(part, range)| subject.note(part, range));
        Ok(())
    }

    /// Reads the blobs of an annex that no earlier version has.
    fn blobs(
        &mut self,
        annex: &Annex,
        is_new: &dyn Fn(u64) -> bool,
        subject: &CheckedDatabase<'_>,
        place: &ProblemLocation,
    ) {
        let deletions = annex.deletions.iter().chain(&annex.forgotten);
        let deletions = deletions.map(|it| (&it.blob, ProblemKind::Deletions));
        let statistics = annex.statistics.iter().map(|it| (&it.blob, ProblemKind::Statistics));
        let runs = annex.indexes.iter().flat_map(|index| &index.runs);
        let runs = runs.map(|it| (&it.blob, ProblemKind::Index));
        for (blob, kind) in deletions.chain(statistics).chain(runs) {
            if !is_new(blob.offset) {
                continue;
            }
            if let Err(error) = blob.read(&*subject.source) {
                self.damage(place.clone(), kind, error.to_string());
            }
            self.advance(&subject.row.name, blob.size);
        }
    }

    /// Checks the commit record against the catalogue.
    fn record(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        row: &VersionRow,
        place: &ProblemLocation,
    ) {
        // Versions of attached files have no record.
        if row.record.size == 0 {
            return;
        }
        let record = subject.records.at(&*subject.source, row.record);
        let what = match record.map(|record| record.agrees_with(row, subject.row.uuid)) {
            Ok(true) => {
                if let Ok(range) = inventory::blob(row.record) {
                    subject.note(Part::Record, range);
                }
                return;
            }
            Ok(false) => "its commit record differs from the catalogue".to_owned(),
            Err(error) => error.to_string(),
        };
        self.damage(place.clone(), ProblemKind::Record, what);
    }

    /// Checks that page lists lie within the file.
    fn page_lists(
        &mut self,
        subject: &CheckedDatabase<'_>,
        reader: &Reader,
        place: &ProblemLocation,
    ) {
        for group in &reader.footer().cluster_groups {
            let at = group.page_list.locator;
            let range = at.offset..at.offset.saturating_add(at.size);
            if lies_beyond(&*subject.source, &range) {
                let what =
                    format!("the page list at byte {} ends beyond the end of the file", at.offset);
                self.damage(place.clone(), ProblemKind::ShortFile, what);
            }
        }
    }

    /// Reads the pages of a version that no earlier version has.
    fn pages(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        row: &VersionRow,
        reader: &Reader,
        place: &ProblemLocation,
    ) -> Result<()> {
        for (part, envelope) in [(Part::Header, row.header), (Part::Footer, row.footer)] {
            let range = envelope.offset..envelope.offset.saturating_add(envelope.size);
            subject.note(part, range);
        }
        let mut buffer = PageBuffer::default();
        for group in &reader.footer().cluster_groups {
            let mut found = vec![];
            let listed = subject.inventory.visit_page_list(&group.page_list, &mut |part, range| {
                found.push((part, range));
                Ok(())
            });
            if let Err(error) = listed {
                subject.lists_are_complete = false;
                let mut place = place.clone();
                let end = group.min_entry.saturating_add(group.entry_span);
                place.entries = Some((group.min_entry, end));
                self.damage(place, ProblemKind::Metadata, error.to_string());
            }
            for (part, range) in found {
                if let Part::Page(page, column) = part {
                    let page = StoredPage { page, column, range: range.clone() };
                    self.page(subject, page, reader, place, &mut buffer);
                }
                subject.note(part, range);
                if !self.report.is_complete {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn page(
        &mut self,
        subject: &mut CheckedDatabase<'_>,
        page: StoredPage,
        reader: &Reader,
        place: &ProblemLocation,
        buffer: &mut PageBuffer,
    ) {
        if subject.read.contains(&page.range) {
            return;
        }
        self.report.pages += 1;
        let stored = page.range.end - page.range.start;
        let read = read_page(&*subject.source, &page, reader, buffer);
        if let Err(error) = read {
            let field = field_path(reader.schema(), page.column);
            let what = format!("field {field}: {error}");
            self.damage(place.clone(), ProblemKind::Page, what);
        }
        subject.read.insert(page.range);
        self.advance(&subject.row.name, stored);
    }
}

/// The last tagged commit before commit `end`.
fn last_before(tags: &[Csn], end: Option<Csn>) -> Option<Csn> {
    let before = end.map_or(tags.len(), |end| tags.partition_point(|tag| *tag < end));
    tags[..before].last().copied()
}

/// The versions that snapshot `newest` and those of earlier tags show, oldest first. A version is looked up once,
/// however many tags show it.
fn versions_of_tags(
    newest: Option<Csn>,
    tags: &[Csn],
    mut look_up: impl FnMut(Csn) -> Result<Option<VersionRow>>,
) -> Result<Vec<VersionRow>> {
    let (mut versions, mut next) = (vec![], newest);
    while let Some(csn) = next
        && let Some(version) = look_up(csn)?
    {
        next = last_before(tags, Some(version.csn));
        versions.push(version);
    }
    versions.reverse();
    Ok(versions)
}

/// The path of the field that a column belongs to.
fn field_path(schema: &Schema, column: usize) -> String {
    let mut names = vec![];
    let mut id = schema.columns.get(column).map(|column| column.field);
    while let Some(at) = id
        && let Some(field) = schema.fields.get(at as usize)
    {
        names.push(field.name.as_str());
        id = (field.parent < at).then_some(field.parent);
    }
    names.reverse();
    names.join(".")
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::{BlobRange, ContainerId, DatabaseId, EnvelopeRange};

    use super::*;

    fn version(csn: u64) -> VersionRow {
        VersionRow {
            database: DatabaseId(1),
            container: ContainerId(1),
            csn: Csn(csn),
            header: EnvelopeRange::default(),
            footer: EnvelopeRange::default(),
            annex: BlobRange::default(),
            record: BlobRange::default(),
            class_version: 1,
            entries: 0,
            deleted: 0,
            bytes: 0,
        }
    }

    #[test]
    fn a_version_that_many_tags_have_is_looked_up_once() {
        let versions = [3, 50, 7000].map(version);
        let tags: Vec<Csn> = (1..=10_000).map(Csn).collect();
        for (newest, found) in [(10_000, 3), (7000, 3), (6999, 2), (49, 1), (2, 0)] {
            let mut look_ups = 0;
            let look_up = |csn| {
                look_ups += 1;
                Ok(versions.iter().rfind(|version| version.csn <= csn).copied())
            };
            let checked = versions_of_tags(Some(Csn(newest)), &tags, look_up).unwrap();
            assert_eq!(checked, versions[..found]);
            assert!(look_ups <= found + 1, "{look_ups} look-ups of {found} versions");
        }
        let last = |end| last_before(&[Csn(4), Csn(9)], end);
        let ends = [None, Some(Csn(10)), Some(Csn(9)), Some(Csn(4))];
        assert_eq!(ends.map(last), [Some(Csn(9)), Some(Csn(9)), Some(Csn(4)), None]);
    }
}
