//! Publishing a version of a container that holds no new objects: a compacted, a mended or an older one.
//!
//! It is a commit like any other: the container is locked, the file gets a commit record, and the catalogue
//! refuses the version if another commit came first.

use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Author, BlobRange, Commit, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow,
    DatabaseState, EnvelopeRange, LockGuard, NewVersion, VersionRow, clock,
};
use rntuple::BlobSink;
use uuid::Uuid;

use crate::ContainerOptions;
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::schema::class::Class;
use crate::storage::commit_record::{CommitRecord, RecordedVersion};
use crate::storage::extent::ExtentWriter;

/// A version without its commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revision {
    pub header: EnvelopeRange,
    pub footer: EnvelopeRange,
    pub annex: BlobRange,
    pub class_version: u32,
    pub entries: u64,
    pub deleted: u64,
    pub bytes: u64,
}

impl Revision {
    pub(crate) fn of(row: &VersionRow) -> Self {
        Revision {
            header: row.header,
            footer: row.footer,
            annex: row.annex,
            class_version: row.class_version,
            entries: row.entries,
            deleted: row.deleted,
            bytes: row.bytes,
        }
    }
}

/// A locked container that gets a new version.
pub(crate) struct Republication<'a> {
    federation: &'a Federation,
    pub database: DatabaseRow,
    pub container: ContainerRow,
    /// Its newest version.
    pub base: VersionRow,
    extents: Option<ExtentWriter>,
    _locks: [LockGuard; 2],
}

impl<'a> Republication<'a> {
    /// Locks the container.
    ///
    /// # Errors
    /// `Busy` if a transaction writes it for longer than `lock_wait`; `Closed` if its database takes no
    /// commits.
    pub(crate) fn begin(
        federation: &'a Federation,
        database: DatabaseId,
        container: ContainerId,
        lock_wait: Duration,
    ) -> Result<Self> {
        let inner = &federation.inner;
        inner.check_writable()?;
        let owner = inner.locks().owner();
        let database_lock = owner.share_database(database, lock_wait)?;
        let container_lock = owner.lock_container(database, container, lock_wait)?;
        let database = inner.catalog.database_by_id(database, Csn::MAX)?;
        if database.state != DatabaseState::Open {
            let (name, state) = (&database.name, database.state);
            return Err(Error::Closed {
                what: format!("database {name:?} is {state} and read-only"),
            });
        }
        let container = inner.catalog.container_by_id(database.id, container, Csn::MAX)?;
        let base = inner.catalog.version(database.id, container.id, Csn::MAX)?;
        let base = base.ok_or_else(|| Error::NotFound {
            what: format!("container {:?} has no version", container.name),
        })?;
        Ok(Republication {
            federation,
            database,
            container,
            base,
            extents: None,
            _locks: [database_lock, container_lock],
        })
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.database.name, self.container.name)
    }

    /// The extents that the new version is written to.
    pub(crate) fn extents(&mut self) -> Result<&mut ExtentWriter> {
        if self.extents.is_none() {
            let inner = &self.federation.inner;
            self.extents = Some(inner.take_extents(&self.database)?);
        }
        Ok(self.extents.as_mut().expect("the extents were just taken"))
    }

    /// Commits `revision` as the container's newest version.
    ///
    /// # Errors
    /// `Conflict` if another commit came first; `Io` or `Full` if the file cannot be written. Then nothing
    /// has changed.
    pub(crate) fn commit(mut self, revision: Revision, message: &str) -> Result<Csn> {
        let transaction = Uuid::new_v4();
        let record = self.record(&revision, transaction, message)?.encode();
        let what = self.path();
        let extents = self.extents()?;
        let offset = extents.write_blob(&[&record]).map_err(Error::storage(what))?;
        extents.flush()?;
        extents.sync()?;
        let Revision { header, footer, annex, class_version, entries, deleted, bytes } = revision;
        let version = NewVersion {
            database: self.database.id,
            container: self.container.id,
            base: Some(self.base.csn),
            header,
            footer,
            annex,
            record: BlobRange { offset, size: record.len() as u64 },
            class_version,
            entries,
            deleted,
            bytes,
        };
        let message = message.to_owned();
        let versions = vec![version];
        let commit = Commit { transaction, message, versions, ..Commit::default() };
        Ok(self.federation.catalog().commit(commit)?)
    }

    fn record(
        &self,
        revision: &Revision,
        transaction: Uuid,
        message: &str,
    ) -> Result<CommitRecord> {
        let catalog = self.federation.catalog();
        let (database, container) = (&self.database, &self.container);
        let class = catalog.class(&container.class, Some(revision.class_version))?;
        let Revision { header, footer, annex, entries, deleted, bytes, .. } = *revision;
        let container = RecordedVersion {
            id: container.id,
            name: container.name.clone(),
            class: Arc::new(Class::from_json(&class.definition)?),
            options: ContainerOptions::from_json(&container.options)?,
            base: Some(self.base.csn),
            header,
            footer,
            annex,
            entries,
            deleted,
            bytes,
            link_targets: catalog.link_targets(database.id, container.id)?,
        };
        Ok(CommitRecord {
            transaction,
            message: message.to_owned(),
            author: Some(Author::this_process()),
            federation: self.federation.uuid(),
            database: database.uuid,
            number: database.id,
            name: database.name.clone(),
            after: self.federation.head()?,
            time_us: clock::utc_us(),
            databases: vec![database.uuid],
            containers: vec![container],
            renamed: vec![],
            dropped: vec![],
            end: None,
            is_whole: false,
        })
    }
}

impl Drop for Republication<'_> {
    fn drop(&mut self) {
        if let Some(mut extents) = self.extents.take() {
            extents.discard();
            self.federation.inner.return_extents(self.database.id, extents);
        }
    }
}
