//! Detaching: a database leaves the federation, and its file stays as it is.
//!
//! A database that takes commits first gets a final commit record with the newest version of each container,
//! so that another federation needs nothing but the file. The commit precedes the move of the file: if the
//! process is killed in between, the file is in its old place and belongs to no federation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{
    Author, Commit, ContainerRow, Csn, DatabaseRow, DatabaseState, DroppedDatabase, clock,
};
use uuid::Uuid;

use crate::ContainerOptions;
use crate::error::{Error, Result};
use crate::federation::{Federation, Inner};
use crate::schema::class::Class;
use crate::storage::commit_record::{CommitRecord, End, RecordedVersion};
use crate::storage::extent::ExtentWriter;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::nearline;

impl Federation {
    /// Removes a database from the federation and moves its file to `to`, a folder or a new file. Without
    /// `to` the file stays in its place. Returns the file's path. Older snapshots read the file there as long
    /// as it does not change.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Exists` if the file `to` exists; `Busy` if a transaction writes to
    /// the database for longer than `lock_wait`; `Conflict` if a transaction committed to it meanwhile.
    pub fn detach(&self, name: &str, to: Option<&Path>, lock_wait: Duration) -> Result<PathBuf> {
        let inner = &*self.inner;
        let row = inner.local()?.database(name, Csn::MAX)?;
        let from = inner.path_of(&row);
        let to = destination(&from, to)?;
        let _lock = inner.lock_alone(row.id, lock_wait)?;
        // Without the file, its copies would be discarded with the database.
        if row.state == DatabaseState::Sealed
            && nearline::open(&*inner.catalog, &row, from.clone())?.is_none()
        {
            let what = format!("database {name:?} is only in a store; stage it first");
            return Err(Error::Nearline { database: row.id, what });
        }
        let seen = inner.catalog.head()?;
        let containers = inner.catalog.containers(row.id, seen)?;
        let transaction = Uuid::new_v4();
        let message = format!("detach {name}");
        if row.state == DatabaseState::Open {
            inner.retire_extents(row.id)?;
            let record = last_record(self, &row, &containers, seen, transaction, &message)?;
            let file = Arc::new(DatabaseFile::open_to_write(from.clone())?);
            let catalog = inner.catalog.clone();
            record.write_alone(ExtentWriter::new(file, row.id, row.epoch, catalog)?)?;
        }
        let moved = (to != from).then(|| (row.id, to.to_string_lossy().into_owned()));
        inner.catalog.commit(Commit {
            transaction,
            message,
            dropped_databases: vec![DroppedDatabase { id: row.id, seen, keeps_file: true }],
            moved: moved.into_iter().collect(),
            ..Commit::default()
        })?;
        if to != from {
            file::move_to(&from, &to)?;
        }
        Ok(to)
    }
}

/// The absolute path that a file is moved to.
fn destination(from: &Path, to: Option<&Path>) -> Result<PathBuf> {
    let Some(to) = to else { return Ok(from.to_owned()) };
    let to = std::path::absolute(to).map_err(|error| Error::io("find", to, error))?;
    let to = if to.is_dir() { to.join(from.file_name().unwrap_or_default()) } else { to };
    if to.exists() {
        Err(Error::Exists { what: format!("{} already exists", to.display()) })
    } else {
        Ok(to)
    }
}

/// The final commit record, with the newest version of each container.
fn last_record(
    federation: &Federation,
    row: &DatabaseRow,
    containers: &[ContainerRow],
    seen: Csn,
    transaction: Uuid,
    message: &str,
) -> Result<CommitRecord> {
    let of = |container: &ContainerRow| newest(&federation.inner, container, seen);
    Ok(CommitRecord {
        transaction,
        message: message.to_owned(),
        author: Some(Author::this_process()),
        federation: federation.uuid(),
        database: row.uuid,
        number: row.id,
        name: row.name.clone(),
        after: seen,
        time_us: clock::utc_us(),
        databases: vec![row.uuid],
        containers: containers.iter().map(of).collect::<Result<_>>()?,
        renamed: vec![],
        dropped: vec![],
        end: Some(End::Detached),
        is_whole: true,
    })
}

/// The newest version of a container, in the form of a commit record.
pub(crate) fn newest(inner: &Inner, container: &ContainerRow, at: Csn) -> Result<RecordedVersion> {
    let version = inner.catalog.version(container.database, container.id, at)?;
    let version = version.ok_or_else(|| Error::NotFound {
        what: format!("container {:?} has no version", container.name),
    })?;
    let class = inner.catalog.class(&container.class, Some(version.class_version))?;
    Ok(RecordedVersion {
        id: container.id,
        name: container.name.clone(),
        class: Arc::new(Class::from_json(&class.definition)?),
        options: ContainerOptions::from_json(&container.options)?,
        base: Some(version.csn),
        header: version.header,
        footer: version.footer,
        annex: version.annex,
        entries: version.entries,
        deleted: version.deleted,
        bytes: version.bytes,
        link_targets: inner.catalog.link_targets(container.database, container.id)?,
    })
}
