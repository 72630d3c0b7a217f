//! Mending the newest version of a container.

use std::sync::Arc;

use femtobarn_catalog::{BlobRange, ContainerId, ContainerRow, Csn, DatabaseId, VersionRow};

use super::Repair;
use crate::annex::{Annex, Blob, IndexState};
use crate::check::{self, Place, ProblemKind};
use crate::error::{Error, ErrorKind, Result};
use crate::file::DatabaseFile;
use crate::options::TransactionOptions;
use crate::record::CommitRecord;
use crate::republish::{Republishing, Revision};
use crate::view::Source;

/// What can be wrong with a version although all its objects can be read.
const DROPPABLE: [ProblemKind; 4] = [
    ProblemKind::Statistics,
    ProblemKind::Index,
    ProblemKind::DanglingLink,
    ProblemKind::UnknownDatabase,
];

impl Repair<'_> {
    /// Mends a container, of whose newest version these things are wrong.
    pub(super) fn container(
        &mut self,
        database: DatabaseId,
        container: ContainerId,
        kinds: &[ProblemKind],
    ) -> Result<()> {
        let mended = match kinds {
            [] => return Ok(()),
            // The object can be read, and nothing of it is known to be wrong but its record.
            kinds if kinds.iter().all(|kind| *kind == ProblemKind::Record) => {
                self.republish(database, container)
            }
            kinds if kinds.iter().all(|kind| DROPPABLE.contains(kind)) => {
                match kinds.iter().any(|kind| DROPPABLE[..2].contains(kind)) {
                    true => self.renew_annex(database, container),
                    false => return Ok(()),
                }
            }
            _ => self.replace(database, container),
        };
        match mended {
            Ok(()) => Ok(()),
            // What cannot be mended is found again by the check that follows.
            Err(error) if is_damage(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What is damaged of that which stands beside the newest version.
    pub(super) fn beside_newest(
        &self,
        database: DatabaseId,
        container: ContainerId,
    ) -> Result<Vec<ProblemKind>> {
        let inner = &self.federation.inner;
        let Some(row) = inner.catalog.version(database, container, Csn::MAX)? else {
            return Ok(vec![]);
        };
        let database = inner.catalog.database_by_id(database, Csn::MAX)?;
        let Ok(file) = DatabaseFile::open(inner.path_of(&database)) else { return Ok(vec![]) };
        let source = Source(Arc::new(file));
        let Ok(annex) = Annex::read(&source, row.annex) else { return Ok(vec![]) };
        let is_bad = |blob: &Blob| blob.read(&source).is_err();
        let mut kinds = vec![];
        if annex.statistics.iter().any(|run| is_bad(&run.blob)) {
            kinds.push(ProblemKind::Statistics);
        }
        let mut runs = annex.indexes.iter().flat_map(|index| &index.runs);
        if runs.any(|run| is_bad(&run.blob)) {
            kinds.push(ProblemKind::Index);
        }
        Ok(kinds)
    }

    /// Publishes the version as it is, with a commit record that is whole.
    fn republish(&mut self, database: DatabaseId, container: ContainerId) -> Result<()> {
        let publishing = self.begin(database, container)?;
        let (place, revision) = (place(&publishing), Revision::of(&publishing.base));
        let message = format!("mend the commit record of {}", publishing.path());
        publishing.commit(revision, &message)?;
        self.done(place, "wrote its commit record anew");
        Ok(())
    }

    fn begin(&self, database: DatabaseId, container: ContainerId) -> Result<Republishing<'_>> {
        Republishing::begin(self.federation, database, container, self.options.lock_wait)
    }

    /// Leaves statistics out, and makes indexes anew.
    fn renew_annex(&mut self, database: DatabaseId, container: ContainerId) -> Result<()> {
        let mut publishing = self.begin(database, container)?;
        let (base, path, place) = (publishing.base, publishing.path(), place(&publishing));
        let name = publishing.container.name.clone();
        let extents = publishing.extents()?;
        let source = Source(extents.file().clone());
        let mut annex = Annex::read(&source, base.annex)?;
        annex.statistics.clear();
        let indexes = std::mem::take(&mut annex.indexes);
        let written = annex.write(extents).map_err(Error::storage(&path))?;
        extents.flush()?;
        let revision = Revision { annex: written, ..Revision::of(&base) };
        publishing.commit(revision, &format!("mend what is noted about {path}"))?;
        self.done(place.clone(), "left its statistics out");
        self.make_indexes(database, &name, &indexes, place)
    }

    fn make_indexes(
        &mut self,
        database: DatabaseId,
        container: &str,
        indexes: &[IndexState],
        place: Place,
    ) -> Result<()> {
        if indexes.is_empty() {
            return Ok(());
        }
        let options = TransactionOptions {
            message: format!("make the indexes of {container} anew"),
            lock_wait: self.options.lock_wait,
            ..TransactionOptions::default()
        };
        let mut transaction = self.federation.transaction(options)?;
        let key = transaction.container(database, container)?;
        for index in indexes {
            transaction.create_index(key, &index.name, &index.fields, index.unique)?;
        }
        transaction.commit()?;
        self.done(place, format!("made {} indexes anew", indexes.len()));
        Ok(())
    }

    /// Lets another version follow: the one that the commit record tells, or an older one.
    fn replace(&mut self, database: DatabaseId, container: ContainerId) -> Result<()> {
        let mut publishing = self.begin(database, container)?;
        let (base, path, place) = (publishing.base, publishing.path(), place(&publishing));
        let source = Arc::new(Source(publishing.extents()?.file().clone()));
        let recorded = recorded(&source, &publishing.container, &base);
        if let Some(row) = recorded.filter(|row| *row != base)
            && self.is_sound(&publishing, &row)?
        {
            let message = format!("mend {path} from its commit record");
            publishing.commit(Revision::of(&row), &message)?;
            self.done(place, "took the version from its commit record");
            return Ok(());
        }
        if !self.options.salvage {
            return Ok(());
        }
        let older = self.federation.catalog().versions(database, container)?;
        for row in older.into_iter().rev().filter(|row| row.csn < base.csn) {
            if !self.is_sound(&publishing, &row)? {
                continue;
            }
            let what = format!(
                "took the version of commit {}: it has {} of {} entries",
                row.csn, row.entries, base.entries
            );
            let message = format!("salvage {path} as of commit {}", row.csn);
            publishing.commit(Revision::of(&row), &message)?;
            self.done(place, what);
            return Ok(());
        }
        Ok(())
    }

    fn is_sound(&self, publishing: &Republishing<'_>, row: &VersionRow) -> Result<bool> {
        let (database, container) = (&publishing.database, &publishing.container);
        check::is_sound(&self.federation.inner, database, container, row)
    }
}

/// The version as its commit record tells it; none if that is damaged.
fn recorded(source: &Source, container: &ContainerRow, row: &VersionRow) -> Option<VersionRow> {
    let record = CommitRecord::at(source, row.record).ok()?;
    let told = record.containers.into_iter().find(|told| told.id == container.id)?;
    Some(VersionRow {
        header: told.header,
        footer: told.footer,
        annex: told.annex,
        class_version: told.class.version,
        entries: told.entries,
        deleted: told.deleted,
        bytes: told.bytes,
        record: BlobRange { ..row.record },
        ..*row
    })
}

fn place(publishing: &Republishing<'_>) -> Place {
    let (database, container) = (&publishing.database, &publishing.container);
    Place {
        database: Some((database.id, database.name.clone())),
        container: Some((container.id, container.name.clone())),
        csn: Some(Csn(publishing.base.csn.0)),
        entries: None,
    }
}

/// Whether an error says that bytes are damaged, or that nothing can be written to them.
fn is_damage(error: &Error) -> bool {
    let kinds =
        [ErrorKind::Corrupt, ErrorKind::NotFound, ErrorKind::Unsupported, ErrorKind::Closed];
    kinds.contains(&error.kind())
}
