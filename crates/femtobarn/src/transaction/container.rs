//! A container open for writing: the state of its appender, deletions, indexes and statistics.
//!
//! Imports nothing of transactions, so that [`WriterPool`](super::writer_pool::WriterPool) can retain it between two of
//! them.

use std::sync::Arc;

use femtobarn_catalog::{
    BlobRange, ContainerId, ContainerRow, Csn, DatabaseId, EnvelopeRange, LockGuard,
};
use rntuple::{Appender, Cell, ClusterSummary, EnvelopeLink, Reader, Type};
use uuid::Uuid;

use crate::ContainerOptions;
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::read::index::{self, Indexed, PendingKeys};
use crate::read::statistics::{self, RecentRuns};
use crate::schema::class::Class;
use crate::storage::extent::ExtentWriter;
use crate::storage::file::DatabaseFile;

/// A container of a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerKey {
    /// Its database.
    pub database: DatabaseId,
    /// Its number within the database.
    pub container: ContainerId,
}

/// A container open for writing.
pub(super) struct OpenContainer {
    pub row: ContainerRow,
    pub class: Arc<Class>,
    pub options: ContainerOptions,
    pub is_new: bool,
    /// The version that it continues; `None` if it is new.
    pub base: Option<Csn>,
    /// Bytes of the file that belong to it.
    pub bytes: u64,
    /// Deletions, statistics and indexes, stored beside the footer.
    pub annex: Annex,
    pub deletions: Deletions,
    pub header: EnvelopeLink,
    pub appender: Appender,
    /// The version last written; `None` if the container changed since.
    pub written: Option<WrittenVersion>,
    /// Whether it differs from the version that it continues.
    pub is_changed: bool,
    /// Whether a change failed halfway, so that the container must not be committed.
    pub is_half_changed: bool,
    /// Databases that its links refer to, from position 1 on. The first `known_targets` are in the catalogue.
    pub targets: Vec<Uuid>,
    pub known_targets: usize,
    pub needs_translation: bool,
    /// Statistics of clusters that are not written yet; empty if `written`.
    pub summaries: Vec<ClusterSummary>,
    pub recent_statistics: RecentRuns,
    /// Changes that the indexes lack; empty if `written`.
    pub indexing: PendingKeys,
    /// The state at opening or at the last commit; `None` if it is new.
    pub opened: Option<ContainerState>,
    /// The write lock; `None` in the pool, and for a new container that other transactions cannot find yet.
    pub lock: Option<LockGuard>,
}

/// A state that a container can be restored to.
#[derive(Clone)]
pub(super) struct ContainerState {
    row: ContainerRow,
    class: Arc<Class>,
    header: EnvelopeLink,
    written: WrittenVersion,
    annex: Annex,
    deletions: Deletions,
    targets: usize,
    is_changed: bool,
}

/// A version that is in the file and not in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenVersion {
    pub footer: EnvelopeLink,
    pub annex: BlobRange,
    pub entries: u64,
    pub deleted: u64,
    pub bytes: u64,
}

impl OpenContainer {
    /// Whether its objects have the fields of `R`.
    pub(super) fn holds<R: Cell>(&self) -> bool {
        if self.needs_translation {
            R::cell_type() == self.class.row_type()
                && matches!(self.appender.types(), Type::Record { members, .. } if *members == self.class.members())
        } else {
            self.appender.holds::<R>()
        }
    }

    /// Marks the container as changed.
    pub(super) fn touch(&mut self) {
        self.written = None;
        self.is_changed = true;
    }

    /// Writes a version of the container. It can be read after a flush.
    pub(super) fn write(
        &mut self,
        extents: &mut ExtentWriter,
        what: &str,
    ) -> Result<WrittenVersion> {
        if self.is_half_changed {
            return Err(Error::Closed {
                what: format!("{what}: an earlier change failed halfway; roll back and retry"),
            });
        }
        if let Some(written) = self.written {
            return Ok(written);
        }
        let source = extents.file().clone();
        let version = self.appender.finish_version(extents, &source);
        let mut version = version.map_err(Error::storage(what))?;
        self.summaries.append(&mut version.summaries);
        self.write_statistics(extents)?;
        self.annex.deletions = self.deletions.write(extents).map_err(Error::storage(what))?;
        self.write_indexes(extents, &version.footer, what)?;
        let annex = self.annex.write(extents).map_err(Error::storage(what))?;
        self.bytes += version.bytes + annex.size;
        let written = WrittenVersion {
            footer: version.footer,
            annex,
            entries: version.entries,
            deleted: self.deletions.count(),
            bytes: self.bytes,
        };
        self.written = Some(written);
        Ok(written)
    }

    /// Writes a version of the container and returns the state that it can be restored to.
    pub(super) fn save(
        &mut self,
        extents: &mut ExtentWriter,
        what: &str,
    ) -> Result<ContainerState> {
        let written = self.write(extents, what)?;
        extents.flush()?;
        Ok(self.state_as_of(written))
    }

    pub(super) fn state_as_of(&self, written: WrittenVersion) -> ContainerState {
        ContainerState {
            written,
            row: self.row.clone(),
            class: self.class.clone(),
            header: self.header,
            annex: self.annex.clone(),
            deletions: self.deletions.clone(),
            targets: self.targets.len(),
            is_changed: self.is_changed,
        }
    }

    /// Restores an earlier state.
    pub(super) fn restore(
        &mut self,
        state: ContainerState,
        source: Arc<DatabaseFile>,
        what: &str,
    ) -> Result<()> {
        if !self.is_half_changed
            && self.written == Some(state.written)
            && self.header == state.header
        {
            self.row = state.row;
            self.is_changed = state.is_changed;
            return Ok(());
        }
        let footer = &state.written.footer;
        self.appender = resume(source, &state.header, footer, self.options, what)?;
        self.needs_translation = needs_translation(&state.class);
        self.bytes = state.written.bytes;
        self.written = Some(state.written);
        self.indexing = PendingKeys::from(state.written.entries);
        self.summaries.clear();
        self.row = state.row;
        self.class = state.class;
        self.header = state.header;
        self.annex = state.annex;
        self.deletions = state.deletions;
        self.targets.truncate(state.targets);
        self.is_changed = state.is_changed;
        self.is_half_changed = false;
        Ok(())
    }

    /// The container with a newer row of the catalogue: its name may have changed.
    pub(super) fn with_row(mut self, row: ContainerRow) -> Self {
        if let Some(opened) = &mut self.opened {
            opened.row.clone_from(&row);
        }
        self.row = row;
        self
    }

    /// Bytes written since it was opened.
    pub(super) fn grown_bytes(&self) -> u64 {
        let before = self.opened.as_ref().map_or(0, |opened| opened.written.bytes);
        self.bytes.saturating_sub(before)
    }

    /// Makes the commit `csn` the version that it continues.
    pub(super) fn note_committed(&mut self, csn: Csn) {
        if !self.is_changed {
            return;
        }
        self.base = Some(csn);
        self.is_new = false;
        self.is_changed = false;
        self.known_targets = self.targets.len();
        self.opened = self.written.map(|written| self.state_as_of(written));
    }

    /// Writes the statistics of new clusters.
    fn write_statistics(&mut self, extents: &mut ExtentWriter) -> Result<()> {
        let source = extents.file().clone();
        let paths = self.appender.column_paths();
        let runs = &mut self.annex.statistics;
        let size_before = statistics::size(runs);
        let recent = &mut self.recent_statistics;
        statistics::append(runs, &self.summaries, &paths, recent, &source, extents)?;
        self.bytes = (self.bytes + statistics::size(runs)).saturating_sub(size_before);
        self.summaries.clear();
        Ok(())
    }

    /// Adds to the indexes the keys that a version just written has changed.
    fn write_indexes(
        &mut self,
        extents: &mut ExtentWriter,
        footer: &EnvelopeLink,
        what: &str,
    ) -> Result<()> {
        if self.annex.indexes.is_empty() {
            self.indexing = PendingKeys::from(self.appender.entries());
            return Ok(());
        }
        extents.flush()?;
        let source = extents.file().clone();
        let reader = Reader::from_links(source.clone(), &self.header, footer);
        let deletions = &self.deletions;
        let indexed = Indexed {
            what,
            class: &self.class,
            reader: &reader.map_err(Error::storage(what))?,
            is_deleted: &|entry| Ok(deletions.contains(&*source, entry)?),
            source: &*source,
        };
        let size_before = index::size(&self.annex.indexes);
        indexed.update(&mut self.annex.indexes, &mut self.indexing, extents)?;
        let size = index::size(&self.annex.indexes);
        self.bytes = (self.bytes + size).saturating_sub(size_before);
        Ok(())
    }
}

/// An appender that continues a stored version.
pub(super) fn resume(
    source: Arc<DatabaseFile>,
    header: &EnvelopeLink,
    footer: &EnvelopeLink,
    options: ContainerOptions,
    what: &str,
) -> Result<Appender> {
    Reader::from_links(Arc::new(source), header, footer)
        .and_then(|reader| Appender::resume(&reader, options.write_options()))
        .map_err(Error::storage(what))
}

pub(super) fn needs_translation(class: &Class) -> bool {
    class.fields.iter().any(|field| field.of.needs_translation())
}

/// The range of an envelope, as the catalogue stores it.
pub(crate) fn range(link: &EnvelopeLink) -> EnvelopeRange {
    EnvelopeRange { offset: link.locator.offset, size: link.locator.size, length: link.length }
}
