//! A task of a fork: objects for containers of a transaction in another process.
//!
//! 1. A task writes into extents of its own, under a shared lock on each database, so neither vacuum nor sealing
//!    touch them meanwhile. If it is dropped before [`TaskWriter::finish`], vacuum frees the bytes that it wrote.
//! 2. The blobs that a receipt names are in the files when [`TaskWriter::finish`] returns. On this machine the
//!    transaction's commit syncs them; at a server, which may stop before that, they are durable by then.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, ErrorKind, LockOwner};
use rntuple::{Appender, Array, Reader};
use uuid::Uuid;

use super::container::needs_translation;
use super::receipt::{
    ForkPlan, ForkedContainer, ForkedDatabase, PARTS_MAX, ReceivedPart, ReceivedParts, check_task,
    encode_parts,
};
use super::{Fork, OpenDatabase, Receipt};
use crate::annex::Blob;
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::links::translate::{self, ToStored};
use crate::read::statistics;
use crate::schema::class::Class;
use femtobarn_format::link;

/// How long a task waits for a database that is being sealed, or whose garbage is being freed.
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// Writes the objects of one task. If it is dropped before it is finished, its writes do not count.
pub struct TaskWriter {
    federation: Federation,
    fork: Uuid,
    task: String,
    databases: BTreeMap<DatabaseId, OpenDatabase>,
    containers: Vec<TaskContainer>,
    /// UUIDs of databases that were linked to.
    identities: HashMap<DatabaseId, Uuid>,
    owner: LockOwner,
    is_finished: bool,
}

struct TaskContainer {
    path: String,
    forked: ForkedContainer,
    appender: Appender,
    needs_translation: bool,
    /// Whether a write failed, so that the task cannot be finished.
    is_failed: bool,
}

impl Federation {
    /// Begins a task of a fork. Its key distinguishes tasks of the fork: runs with the same key count once.
    ///
    /// # Errors
    /// `Invalid` for a fork of another federation or a key of more than 512 bytes; `Closed` if a database was sealed,
    /// or dropped when its transaction ended; `Denied` if the federation is read-only; `Busy` if a database is locked
    /// for long; `Corrupt` or `Io` if the fork cannot be read, for example because the transaction ended and a vacuum
    /// followed.
    pub fn begin_task(&self, fork: &Fork, task: &str) -> Result<TaskWriter> {
        self.inner.check_writable()?;
        self.catalog().check_not_failed()?;
        check_task(task)?;
        if fork.federation != self.uuid() {
            let what =
                format!("the fork is of another federation than {}", self.folder().display());
            return Err(Error::invalid(what));
        }
        let owner = self.inner.writers().take_owner();
        let owner = owner.unwrap_or_else(|| self.inner.locks().owner());
        let mut writer = TaskWriter {
            federation: self.clone(),
            fork: fork.id,
            task: task.to_owned(),
            databases: BTreeMap::new(),
            containers: vec![],
            identities: HashMap::new(),
            owner,
            is_finished: false,
        };
        writer.open_database(&fork.home)?;
        let file = writer.databases[&fork.home.row.id].extents.file().clone();
        let plan = ForkPlan::decode(&fork.plan.read(&*file)?)?;
        writer.identities.extend(plan.new_databases);
        plan.databases.iter().try_for_each(|database| writer.open_database(database))?;
        plan.containers.into_iter().try_for_each(|container| writer.open_container(container))?;
        Ok(writer)
    }
}

impl TaskWriter {
    fn open_database(&mut self, forked: &ForkedDatabase) -> Result<()> {
        let id = forked.row.id;
        if self.databases.contains_key(&id) {
            return Ok(());
        }
        let lock = self.owner.share_database(id, LOCK_WAIT)?;
        let (row, is_committed) = match self.federation.catalog().database_by_id(id, Csn::MAX) {
            Ok(row) => (row, true),
            Err(error) if forked.is_new && error.kind() == ErrorKind::NotFound => {
                (forked.row.clone(), false)
            }
            Err(error) => return Err(error.into()),
        };
        let ended = || Error::Closed {
            what: format!(
                "the transaction that creates database {:?} has ended; fork again",
                forked.row.name
            ),
        };
        let opened = self.federation.inner.open_database(row, lock);
        let database = opened.map_err(|error| match error.kind() {
            // The file is removed with its transaction.
            ErrorKind::NotFound if !is_committed => ended(),
            _ => error,
        })?;
        let file = database.extents.file();
        // The file of another transaction may have taken the name, and have no front yet.
        let is_ours = is_committed
            || file.size()? > 0 && file.identity()?.uuid == *forked.row.uuid.as_bytes();
        if !is_ours {
            return Err(ended());
        }
        self.databases.insert(id, database);
        Ok(())
    }

    fn open_container(&mut self, forked: ForkedContainer) -> Result<()> {
        let database = self.databases.get(&forked.row.database);
        let database = database.ok_or_else(|| Error::Corrupt {
            what: format!(
                "plan of a fork: it lacks the database of container {:?}",
                forked.row.name
            ),
        })?;
        let path = format!("{}/{}", database.row.name, forked.row.name);
        let file = database.extents.file().clone();
        let reader =
            Reader::from_links(Arc::new(file), &link(&forked.header), &link(&forked.footer));
        let appender = reader
            .and_then(|reader| Appender::of_parts(&reader, forked.options.write_options()))
            .map_err(Error::storage(format!("container {path}")))?;
        let needs_translation = needs_translation(&forked.class);
        self.containers.push(TaskContainer {
            path,
            forked,
            appender,
            needs_translation,
            is_failed: false,
        });
        Ok(())
    }

    /// The paths and classes of the containers that can be written to.
    pub fn containers(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.containers.iter().map(|each| (each.path.as_str(), &each.forked.class))
    }

    /// Appends an array of objects to a container, by its position among [`containers`](Self::containers).
    ///
    /// # Errors
    /// `Invalid` if the array does not fit the class, or has a link into a database that the fork does not name; then
    /// nothing is appended. `Io` or `Full` if the file cannot be written.
    pub fn extend(&mut self, container: usize, objects: Array) -> Result<()> {
        let unknown = || Error::NotFound { what: format!("the task has no container {container}") };
        let into = self.containers.get_mut(container).ok_or_else(unknown)?;
        let database = self.databases.get_mut(&into.forked.row.database);
        let database = database.expect("databases of containers are open");
        let objects = if into.needs_translation {
            translated(&self.federation, &mut self.identities, &database.row.uuid, into, objects)?
        } else {
            objects
        };
        let appended = into.appender.append(&mut database.extents, &objects);
        into.is_failed |= !matches!(appended, Ok(()) | Err(rntuple::Error::Invalid { .. }));
        appended.map_err(Error::storage(format!("container {}", into.path)))
    }

    /// Writes pending objects, and returns the receipt.
    ///
    /// # Errors
    /// `Closed` if an earlier write failed; `Io` or `Full` if a file cannot be written.
    pub fn finish(mut self) -> Result<Receipt> {
        let mut parts = vec![];
        for from in &mut self.containers {
            if from.is_failed {
                let what =
                    format!("container {}: an earlier write failed; run the task again", from.path);
                return Err(Error::Closed { what });
            }
            let database = self.databases.get_mut(&from.forked.row.database);
            let extents = &mut database.expect("databases of containers are open").extents;
            let storage = |error| Error::storage(format!("container {}", from.path))(error);
            let part = from.appender.finish_part(extents).map_err(storage)?;
            if part.entries() == 0 {
                continue;
            }
            extents.flush_bulk()?;
            let page_list = Blob::write(extents, &part.page_list.encode()).map_err(storage)?;
            let paths = from.appender.column_paths();
            parts.push(ReceivedPart {
                database: from.forked.row.database,
                container: from.forked.row.id,
                entries: part.entries(),
                page_list,
                statistics: statistics::write_part(&part.summaries, &paths, extents)?,
            });
        }
        let entries = parts.iter().map(|part| part.entries).sum();
        let parts = self.stored_parts(parts)?;
        for database in self.databases.values_mut() {
            database.extents.flush()?;
            if !database.extents.file().is_local() {
                database.extents.sync()?;
            }
        }
        self.is_finished = true;
        let (federation, fork) = (self.federation.uuid(), self.fork);
        let task = std::mem::take(&mut self.task);
        Ok(Receipt { federation, fork, task, attempt: Uuid::new_v4(), entries, parts })
    }

    /// Writes a list of parts to a database if it is too long for a receipt.
    fn stored_parts(&mut self, parts: Vec<ReceivedPart>) -> Result<ReceivedParts> {
        let Some(first) = parts.first().filter(|_| parts.len() > PARTS_MAX) else {
            return Ok(ReceivedParts::Here(parts));
        };
        let database = self.databases.get_mut(&first.database);
        let database = database.expect("databases of containers are open");
        let written = Blob::write(&mut database.extents, &encode_parts(&parts));
        let written = written.map_err(Error::storage(format!("database {}", database.row.name)))?;
        Ok(ReceivedParts::Stored(first.database, written))
    }
}

impl Drop for TaskWriter {
    fn drop(&mut self) {
        for (_, database) in std::mem::take(&mut self.databases) {
            database.release(&self.federation.inner, self.is_finished);
        }
        let inner = &self.federation.inner;
        inner.writers().keep_owner(std::mem::replace(&mut self.owner, inner.locks().owner()));
    }
}

/// Objects with links in their stored form.
fn translated(
    federation: &Federation,
    identities: &mut HashMap<DatabaseId, Uuid>,
    own: &Uuid,
    container: &TaskContainer,
    objects: Array,
) -> Result<Array> {
    let identity = |id: DatabaseId| {
        if let Some(uuid) = identities.get(&id) {
            return Ok(*uuid);
        }
        let uuid = federation.catalog().database_by_id(id, Csn::MAX)?.uuid;
        identities.insert(id, uuid);
        Ok(uuid)
    };
    let mut targets = container.forked.targets.clone();
    let mut by = ToStored { own: *own, targets: &mut targets, identity, last: None };
    let objects = translate::array(&container.forked.class, objects, &mut by)?;
    if targets.len() > container.forked.targets.len() {
        return Err(Error::invalid(format!(
            "container {}: an object links to a database that the fork does not name; name all of them when \
             you fork",
            container.path
        )));
    }
    Ok(objects)
}
