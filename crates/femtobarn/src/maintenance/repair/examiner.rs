//! Examining the versions of a container, each by itself: whether it can be read, and otherwise its first fault.
//!
//! 1. Bytes that several versions share are read once.
//! 2. An I/O error counts as damage: bytes that cannot be read are not intact.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn_catalog::{ContainerRow, VersionRow};
use rntuple::{ByteSource, EnvelopeLink, Reader};

use crate::annex::{Annex, Blob};
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::federation::Inner;
use crate::inventory::{Inventory, Part};
use crate::maintenance::check::{PageBuffer, StoredPage, read_page};
use crate::progress::{Progress, Watch};
use crate::schema::class::Class;
use crate::storage::commit_record::CommitRecord;
use crate::storage::file::DatabaseFile;
use femtobarn_format::link;

/// Examines the versions of one container. Results are kept by offset, so that shared bytes are read once.
pub(super) struct Examiner<'a, 'p> {
    inner: &'a Inner,
    container: ContainerRow,
    path: String,
    pub source: Arc<DatabaseFile>,
    /// The first fault of each page list and its pages.
    page_lists: HashMap<u64, Option<String>>,
    /// The fault of each page.
    pages: HashMap<u64, Option<String>>,
    /// Whether each blob is intact.
    blobs: HashMap<u64, bool>,
    progress: &'a mut Watch<'p>,
    done: u64,
}

impl<'a, 'p> Examiner<'a, 'p> {
    pub(super) fn new(
        inner: &'a Inner,
        path: &str,
        container: &ContainerRow,
        source: Arc<DatabaseFile>,
        progress: &'a mut Watch<'p>,
    ) -> Self {
        Examiner {
            inner,
            container: container.clone(),
            path: path.to_owned(),
            source,
            page_lists: HashMap::new(),
            pages: HashMap::new(),
            blobs: HashMap::new(),
            progress,
            done: 0,
        }
    }

    /// The class of the objects of a version.
    pub(super) fn class(&self, row: &VersionRow) -> Result<Class> {
        let class = self.inner.catalog.class(&self.container.class, Some(row.class_version))?;
        Class::from_json(&class.definition)
    }

    pub(super) fn reader(&self, row: &VersionRow) -> Result<Reader> {
        Reader::from_links(self.source.clone(), &link(&row.header), &link(&row.footer))
            .map_err(Error::storage(&self.path))
    }

    /// Checks that header, footer, page lists and pages of a version can be read.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if they cannot be read or differ from the catalogue; `Closed` if `progress` stops
    /// it.
    pub(super) fn check_objects(&mut self, row: &VersionRow) -> Result<()> {
        let reader = self.reader(row)?;
        if reader.entries() != row.entries || self.class(row)?.members() != reader.members() {
            return Err(damaged(format!("{} differs from the catalogue", self.path)));
        }
        let mut buffer = PageBuffer::default();
        for group in &reader.footer().cluster_groups {
            let at = group.page_list.locator.offset;
            if !self.page_lists.contains_key(&at) {
                let fault = self.page_list(&reader, &group.page_list, &mut buffer)?;
                self.page_lists.insert(at, fault);
            }
            if let Some(fault) = &self.page_lists[&at] {
                return Err(damaged(fault.clone()));
            }
        }
        Ok(())
    }

    /// The first fault of a page list and its pages.
    fn page_list(
        &mut self,
        reader: &Reader,
        list: &EnvelopeLink,
        buffer: &mut PageBuffer,
    ) -> Result<Option<String>> {
        let source = self.source.clone();
        let mut found = vec![];
        let listed = Inventory::new(&*source).visit_page_list(list, &mut |part, range| {
            if let Part::Page(page, column) = part {
                found.push(StoredPage { page, column, range });
            }
            Ok(())
        });
        if let Err(error) = listed {
            return Ok(Some(error.to_string()));
        }
        for page in found {
            let at = page.range.start;
            if !self.pages.contains_key(&at) {
                self.advance(page.range.end - page.range.start)?;
                let read = read_page(&*source, &page, reader, buffer);
                self.pages.insert(at, read.err().map(|error| error.to_string()));
            }
            if let Some(fault) = &self.pages[&at] {
                return Ok(Some(fault.clone()));
            }
        }
        Ok(None)
    }

    /// Reads the deletions of a version, and checks them.
    ///
    /// # Errors
    /// `Corrupt` if they are damaged.
    pub(super) fn deletions(&mut self, annex: &Annex, row: &VersionRow) -> Result<Deletions> {
        let deletions = Deletions::new(&annex.deletions, row.deleted, row.entries)?;
        deletions.live(&*self.source, 0..row.entries)?;
        Ok(deletions)
    }

    /// Whether a blob can be read.
    pub(super) fn is_whole(&mut self, blob: &Blob) -> bool {
        let source = &self.source;
        *self.blobs.entry(blob.offset).or_insert_with(|| blob.read(&**source).is_ok())
    }

    /// The version as its commit record describes it, if that can be read.
    pub(super) fn version_in_record(&self, row: &VersionRow) -> Option<VersionRow> {
        let database = self.inner.catalog.database_by_id(row.database, row.csn).ok()?;
        let record = CommitRecord::at(&*self.source, row.record).ok()?;
        let container = record.containers.into_iter().find(|it| it.id == row.container)?;
        (record.database == database.uuid).then_some(VersionRow {
            header: container.header,
            footer: container.footer,
            annex: container.annex,
            class_version: container.class.version,
            entries: container.entries,
            deleted: container.deleted,
            bytes: container.bytes,
            ..*row
        })
    }

    fn advance(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        let total = self.source.size().unwrap_or(self.done).max(self.done);
        let (doing, of) = ("repairing", self.path.clone());
        if (self.progress)(&Progress { doing, of, done: self.done, total }) {
            Ok(())
        } else {
            Err(Error::Closed { what: "repairing was stopped".to_owned() })
        }
    }
}

fn damaged(what: String) -> Error {
    Error::Corrupt { what }
}
