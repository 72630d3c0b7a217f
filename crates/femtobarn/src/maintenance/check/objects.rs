//! Checking the objects of the newest version of a container: their values, sets, links, indexes and statistics.

use femtobarn_catalog::{ContainerRow, DatabaseId, VersionRow};
use rntuple::{Array, Projection, Reader};

use super::database::CheckedDatabase;
use super::links::{self, StoredLink};
use super::uniqueness::visit_faults;
use super::{Check, Problem, ProblemKind, ProblemLocation, Severity};
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::inventory::Ranges;
use crate::read::index::Indexed;
use crate::read::statistics::Verification;
use crate::schema::class::Class;
use crate::storage::file::DatabaseFile;
use femtobarn_format::link;

/// Stored bytes of objects checked together, about.
const CHUNK_BYTES: u64 = 8 << 20;
/// Objects checked together, at most.
const CHUNK_ENTRIES_MAX: u64 = 1 << 18;

/// The context of checking a container's objects.
struct ObjectContext {
    /// The number of each linked database, by position; `None` if it is not in the federation.
    databases: Vec<Option<DatabaseId>>,
    /// The deleted objects, whose links are not checked.
    deletions: Deletions,
    /// The statistics to verify; `None` if they are damaged.
    statistics: Option<Verification>,
    /// Links to databases that are not in the federation, so far.
    unknown: u64,
}

/// The objects of a version as they are stored.
struct StoredObjects<'a> {
    reader: &'a Reader,
    all: &'a Projection,
    class: &'a Class,
    source: &'a DatabaseFile,
}

impl Check<'_, '_> {
    pub(super) fn objects(
        &mut self,
        subject: &CheckedDatabase<'_>,
        container: &ContainerRow,
        row: &VersionRow,
        place: &ProblemLocation,
    ) -> Result<()> {
        let class = self.inner.catalog.class(&container.class, Some(row.class_version))?;
        let class = Class::from_json(&class.definition)?;
        let what = || place.to_string();
        let reader =
            Reader::from_links(subject.source.clone(), &link(&row.header), &link(&row.footer))
                .map_err(Error::storage(what()))?;
        let mut context = self.object_context(subject, container, row)?;
        // Damage in the annex was reported with the version.
        context.statistics = Verification::new(subject.source.clone(), row.annex, &reader).ok();
        let all = reader.select_all();
        let stored =
            StoredObjects { reader: &reader, all: &all, class: &class, source: &subject.source };
        let entry_bytes = (row.bytes / row.entries.max(1)).max(1);
        let step = (CHUNK_BYTES / entry_bytes).clamp(1, CHUNK_ENTRIES_MAX);
        let mut first = 0;
        while first < row.entries && self.report.is_complete {
            let end = row.entries.min(first + step);
            let mut place = place.clone();
            place.entries = Some((first, end));
            self.chunk(&stored, &mut context, &place)?;
            first = end;
        }
        if self.report.is_complete {
            self.indexes(subject, row, &reader, &class, place)?;
        }
        if context.unknown > 0 {
            self.report.add(Problem {
                severity: Severity::Notice,
                kind: ProblemKind::UnknownDatabase,
                place: place.clone(),
                what: format!(
                    "{} links lead to databases that are not in the federation",
                    context.unknown
                ),
                advice: "attach the databases to follow them".to_owned(),
            });
        }
        Ok(())
    }

    /// Checks that indexes find all objects.
    fn indexes(
        &mut self,
        subject: &CheckedDatabase<'_>,
        row: &VersionRow,
        reader: &Reader,
        class: &Class,
        place: &ProblemLocation,
    ) -> Result<()> {
        let source = &*subject.source;
        // Damage in the annex was reported with the version.
        let Ok(annex) = Annex::read(source, row.annex) else { return Ok(()) };
        let Ok(deletions) = Deletions::of(source, row) else { return Ok(()) };
        let what = place.to_string();
        let is_deleted = |entry| Ok(deletions.contains(source, entry)?);
        let indexed = Indexed { what: &what, class, reader, is_deleted: &is_deleted, source };
        for index in &annex.indexes {
            let is_whole = index.runs.iter().all(|run| run.blob.read(source).is_ok());
            if let Err(error) = indexed.verify(index)
                && is_whole
            {
                self.damage(place.clone(), ProblemKind::Index, error.to_string());
            }
        }
        Ok(())
    }

    fn object_context(
        &self,
        subject: &CheckedDatabase<'_>,
        container: &ContainerRow,
        row: &VersionRow,
    ) -> Result<ObjectContext> {
        let catalog = &self.inner.catalog;
        let mut databases = vec![Some(subject.row.id)];
        for uuid in catalog.link_targets(subject.row.id, container.id)? {
            databases.push(catalog.database_by_uuid(uuid)?.map(|row| row.id));
        }
        // A damaged deletion list was reported with the version.
        let deletions = Deletions::of(&*subject.source, row).unwrap_or_default();
        Ok(ObjectContext { databases, deletions, statistics: None, unknown: 0 })
    }

    /// Reads objects of a range of entries and checks their values and links.
    fn chunk(
        &mut self,
        stored: &StoredObjects<'_>,
        context: &mut ObjectContext,
        place: &ProblemLocation,
    ) -> Result<()> {
        let StoredObjects { reader, all, class, source } = *stored;
        let (first, end) = place.entries.unwrap_or_default();
        let objects = match reader.read(all, first..end) {
            Ok(objects) => objects,
            Err(error) => {
                // A damaged page was reported before; this adds the entries.
                self.damage(place.clone(), ProblemKind::Object, error.to_string());
                return Ok(());
            }
        };
        let live = match context.deletions.live(source, first..end) {
            Ok(live) => live.into_iter().collect::<Ranges>(),
            Err(error) => {
                self.damage(place.clone(), ProblemKind::Deletions, error.to_string());
                std::iter::once(first..end).collect()
            }
        };
        self.report.objects += live.total();
        if let Some(statistics) = &context.statistics {
            let live: Vec<_> = live.iter().collect();
            match statistics.find_wrong(&objects, first, &live) {
                Ok(None) => {}
                Ok(Some(what)) => {
                    let what = format!("{what} is outside the bounds of its cluster");
                    self.damage(place.clone(), ProblemKind::Statistics, what);
                }
                Err(error) => self.damage(place.clone(), ProblemKind::Object, error.to_string()),
            }
        }
        self.unique_items(class, &objects, &live, place);
        let mut found = vec![];
        let walked = links::visit(class, &objects, first, &mut |entry, path, link| {
            if live.contains(&(entry..entry + 1)) {
                found.push((entry, path.to_owned(), link));
            }
            Ok(())
        });
        if let Err(error) = walked {
            self.damage(place.clone(), ProblemKind::Object, error.to_string());
        }
        for (entry, path, link) in found {
            let mut place = place.clone();
            place.entries = Some((entry, entry + 1));
            self.follow(context, link, &path, place)?;
        }
        Ok(())
    }

    /// Checks the sets and dictionaries of objects.
    fn unique_items(
        &mut self,
        class: &Class,
        objects: &Array,
        live: &Ranges,
        place: &ProblemLocation,
    ) {
        let (first, _) = place.entries.unwrap_or_default();
        let report = &mut self.report;
        let visited = visit_faults(class, objects, first, &mut |entry, path, fault| {
            if !live.contains(&(entry..entry + 1)) {
                return;
            }
            report.add(Problem {
                severity: Severity::Warning,
                kind: ProblemKind::Uniqueness,
                place: ProblemLocation { entries: Some((entry, entry + 1)), ..place.clone() },
                what: format!("field {path}: {fault}"),
                advice: "update the field with its value, as Python reads it".to_owned(),
            });
        });
        if let Err(error) = visited {
            self.damage(place.clone(), ProblemKind::Object, error.to_string());
        }
    }

    fn follow(
        &mut self,
        context: &mut ObjectContext,
        link: StoredLink,
        path: &str,
        place: ProblemLocation,
    ) -> Result<()> {
        self.report.links += 1;
        let Some(database) = context.databases.get(link.position as usize) else {
            let what =
                format!("field {path}: link to database at unknown position {}", link.position);
            self.damage(place, ProblemKind::Object, what);
            return Ok(());
        };
        let Some(database) = *database else {
            context.unknown += 1;
            return Ok(());
        };
        if let Some(reason) = self.targets.missing(self.inner, database, link)? {
            self.report.add(Problem {
                severity: Severity::Warning,
                kind: ProblemKind::DanglingLink,
                place,
                what: format!(
                    "field {path} links to {database}-{}-{}: {reason}",
                    link.container, link.entry
                ),
                advice: "set the link to null, or restore its target".to_owned(),
            });
        }
        Ok(())
    }
}
