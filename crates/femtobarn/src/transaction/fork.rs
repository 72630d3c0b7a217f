//! Forks: many tasks write for one transaction, each exactly once.
//!
//! A fork lets tasks, in any process, write to containers that the transaction has open. Each task has extents of its
//! own and returns a receipt; the transaction merges the receipts and commits. Nothing that a task wrote is visible
//! before, and a task that died leaves bytes that vacuum frees.
//!
//! 1. A task counts once, however many runs of it gave receipts: the receipt with the smallest attempt counts, whatever
//!    their order.
//! 2. Receipts are checked, and everything that they name is read, before the first of them changes a container.
//! 3. The transaction holds its locks on the databases from the fork to the commit, so vacuum spares the bytes that
//!    tasks write meanwhile.
//! 4. A commit of objects that tasks wrote on this machine syncs the files, even if the rest of it would fit the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use femtobarn_catalog::{Csn, DatabaseId};
use rntuple::{ByteSource, PageList, WrittenPart};
use uuid::Uuid;

use super::container::range;
use super::fetched_blobs::FetchedBlobs;
use super::receipt::{
    ForkPlan, ForkedContainer, ForkedDatabase, OpenFork, ReceivedPart, ReceivedParts, decode_parts,
};
use super::{ContainerKey, Fork, Receipt, Transaction, unopened};
use crate::annex::Blob;
use crate::error::{Error, Result};
use crate::read::statistics;
use crate::schema::class::Class;
use crate::storage::file::DatabaseFile;

/// Bytes of page lists and statistics that are read at once, unless one part has more.
const FETCHED_BYTES_MAX: u64 = 4 << 20;

impl Transaction {
    /// Lets tasks write to containers that the transaction has open.
    ///
    /// `links` are databases that links of the tasks' objects may refer to, beside the containers' own and those that
    /// they refer to already.
    ///
    /// # Errors
    /// `NotFound` if a container is not open; `Invalid` if there is none, or it is a series; `Io` or `Full` if pending
    /// changes cannot be written.
    pub fn fork(&mut self, containers: &[ContainerKey], links: &[DatabaseId]) -> Result<Fork> {
        self.check_open()?;
        self.create_expected()?;
        let first = containers.first().ok_or_else(|| {
            Error::invalid(
                "no container is open in the transaction: open those that tasks write to",
            )
        })?;
        let targets = links.iter().map(|id| self.uuid_of(*id)).collect::<Result<Vec<_>>>()?;
        let new = self.databases.values().filter(|open| open.is_new);
        let new_databases = new.map(|open| (open.row.id, open.row.uuid)).collect();
        let mut plan = ForkPlan { databases: vec![], containers: vec![], new_databases };
        let mut fork = OpenFork::default();
        for key in containers {
            let forked = self.forked(*key, &targets)?;
            let link = femtobarn_format::link(&forked.header);
            fork.containers.insert(*key, (link, forked.class.version));
            plan.containers.push(forked);
            if plan.databases.iter().all(|database| database.row.id != key.database) {
                let open = &self.databases[&key.database];
                plan.databases.push(ForkedDatabase { row: open.row.clone(), is_new: open.is_new });
            }
        }
        let home = plan.databases[0].clone();
        let extents = &mut self.databases.get_mut(&first.database).ok_or_else(unopened)?.extents;
        let written = Blob::write(extents, &plan.encode());
        let written = written.map_err(Error::storage(format!("database {}", home.row.name)))?;
        for database in &plan.databases {
            let open = self.databases.get_mut(&database.row.id).ok_or_else(unopened)?;
            open.extents.flush_for_others()?;
            // Tasks may read it over other connections.
            open.extents.file().settle()?;
        }
        let id = Uuid::new_v4();
        self.forks.insert(id, fork);
        Ok(Fork { federation: self.federation.uuid(), id, home, plan: written })
    }

    /// A container as tasks need it, with the state written so far.
    fn forked(&mut self, key: ContainerKey, links: &[Uuid]) -> Result<ForkedContainer> {
        let open = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let what = format!("container {}/{}", database.row.name, open.row.name);
        if open.options.series.is_some() {
            return Err(Error::invalid(format!(
                "{what} is a series: its conditions depend on each other, so one process writes them"
            )));
        }
        if open.needs_translation {
            for target in links {
                if *target != database.row.uuid && !open.targets.contains(target) {
                    open.targets.push(*target);
                }
            }
        }
        let written = open.write(&mut database.extents, &what)?;
        Ok(ForkedContainer {
            row: open.row.clone(),
            class: Class::clone(&open.class),
            options: open.options,
            header: range(&open.header),
            footer: range(&written.footer),
            targets: open.targets.clone(),
        })
    }

    fn uuid_of(&mut self, id: DatabaseId) -> Result<Uuid> {
        if let Some(uuid) = self.identities.get(&id) {
            return Ok(*uuid);
        }
        let uuid = match self.databases.get(&id) {
            Some(open) => open.row.uuid,
            None => self.federation.catalog().database_by_id(id, Csn::MAX)?.uuid,
        };
        self.identities.insert(id, uuid);
        Ok(uuid)
    }

    /// Appends the objects that tasks wrote, in the order of their receipts; returns the number of tasks that were not
    /// merged before. On an error other than `Io` and `Full` nothing is appended.
    ///
    /// # Errors
    /// `Invalid` for a receipt of another federation or transaction, or of a fork that a rollback to a savepoint undid;
    /// `Conflict` if a container was dropped or got another class since the fork; `Corrupt` if the bytes of a task are
    /// damaged; `Io` or `Full` if pending changes cannot be written.
    pub fn merge(&mut self, receipts: &[Receipt]) -> Result<u64> {
        self.check_open()?;
        let chosen = self.choose(receipts)?;
        let mut named = vec![];
        for &receipt in &chosen {
            for part in self.parts_of(receipt)?.into_owned() {
                self.check_forked(receipt, &part)?;
                named.push((receipt, part));
            }
        }
        let parts = self.read_parts(&named)?;
        for (key, part) in parts {
            self.append_part(key, part)?;
        }
        for receipt in &chosen {
            let fork = self.forks.get_mut(&receipt.fork);
            fork.expect("it was checked").merged.insert(receipt.task.clone());
        }
        Ok(chosen.len() as u64)
    }

    /// Checks receipts, and returns one for each task that was not merged before.
    fn choose<'a>(&self, receipts: &'a [Receipt]) -> Result<Vec<&'a Receipt>> {
        let mut chosen: Vec<&Receipt> = vec![];
        let mut places = BTreeMap::new();
        for receipt in receipts {
            let fork = self.check_receipt(receipt)?;
            if fork.merged.contains(&receipt.task) {
                continue;
            }
            let place = *places.entry((receipt.fork, &receipt.task)).or_insert(chosen.len());
            match chosen.get_mut(place) {
                None => chosen.push(receipt),
                Some(other) if receipt.attempt < other.attempt => *other = receipt,
                Some(_) => {}
            }
        }
        Ok(chosen)
    }

    /// The fork of a receipt, if it can be merged.
    fn check_receipt(&self, receipt: &Receipt) -> Result<&OpenFork> {
        let task = &receipt.task;
        if receipt.federation != self.federation.uuid() {
            return Err(Error::invalid(format!(
                "the receipt of task {task:?} is of another federation"
            )));
        }
        self.forks.get(&receipt.fork).ok_or_else(|| {
            Error::invalid(format!(
                "the receipt of task {task:?} is of another transaction, or of a fork from before a \
                 rollback; run the task again with a fork of this transaction"
            ))
        })
    }

    /// The parts of a receipt whose fork is known.
    fn parts_of<'a>(&self, receipt: &'a Receipt) -> Result<Cow<'a, [ReceivedPart]>> {
        match &receipt.parts {
            ReceivedParts::Here(parts) => Ok(Cow::Borrowed(parts)),
            ReceivedParts::Stored(database, list) => {
                let (file, _) = self.file_to_read(*database)?;
                Ok(Cow::Owned(decode_parts(&list.read(&*file)?)?))
            }
        }
    }

    /// Checks that the container of a part is as it was forked.
    fn check_forked(&self, receipt: &Receipt, part: &ReceivedPart) -> Result<()> {
        let task = &receipt.task;
        let fork = self.forks.get(&receipt.fork).expect("it was checked");
        let (header, version) = fork.containers.get(&part.key()).ok_or_else(|| {
            let what = format!(
                "the receipt of task {task:?} has objects of a container that was not forked"
            );
            Error::invalid(what)
        })?;
        let open = self.containers.get(&part.key());
        if open.is_none_or(|open| open.header != *header || open.class.version != *version) {
            return Err(Error::Conflict {
                what: format!(
                    "the receipt of task {task:?} has objects of a container that was dropped or got another \
                     class since the fork; run the task again with a new fork"
                ),
            });
        }
        Ok(())
    }

    /// A database's file, including the bytes that other processes have written so far, and its size.
    fn file_to_read(&self, id: DatabaseId) -> Result<(Arc<DatabaseFile>, u64)> {
        let database = self.databases.get(&id).ok_or_else(unopened)?;
        let file = database.extents.file().clone();
        file.known.iter().for_each(|known| known.forget_size());
        let size = DatabaseFile::size(&file)?;
        file.known.iter().for_each(|known| known.note_end(size));
        Ok((file, size))
    }

    /// Reads and checks the parts that tasks wrote, in the order of their receipts: at once for each file, except for
    /// bytes beyond [`FETCHED_BYTES_MAX`].
    fn read_parts(
        &self,
        named: &[(&Receipt, ReceivedPart)],
    ) -> Result<Vec<(ContainerKey, WrittenPart)>> {
        let mut read = BTreeMap::new();
        for (id, open) in &self.databases {
            let of_database = |(_, (_, part)): &(usize, &(_, ReceivedPart))| part.database == *id;
            let mut left = named.iter().enumerate().filter(of_database).peekable();
            if left.peek().is_none() {
                continue;
            }
            let (file, size) = self.file_to_read(*id)?;
            while left.peek().is_some() {
                let mut bytes = 0_u64;
                let mut group = vec![];
                while let Some(next) = left.next_if(|(_, (_, part))| {
                    bytes = bytes.saturating_add(part.stored_bytes());
                    group.is_empty() || bytes <= FETCHED_BYTES_MAX
                }) {
                    group.push(next);
                }
                let blobs = group.iter().flat_map(|(_, (_, part))| part.blobs());
                let fetched = FetchedBlobs::fetch(&file, size, blobs)
                    .map_err(Error::storage(format!("database {}", open.row.name)))?;
                for (place, (receipt, part)) in group {
                    read.insert(place, (part.key(), self.read_part(receipt, part, &fetched)?));
                }
            }
        }
        // Parts of containers that are not open were refused before.
        assert_eq!(read.len(), named.len(), "the databases of open containers are open");
        Ok(read.into_values().collect())
    }

    /// Checks the part that a task wrote to a container.
    fn read_part(
        &self,
        receipt: &Receipt,
        received: &ReceivedPart,
        source: &FetchedBlobs<'_>,
    ) -> Result<WrittenPart> {
        let open = self.containers.get(&received.key()).ok_or_else(unopened)?;
        let database = self.databases.get(&received.database).ok_or_else(unopened)?;
        let what =
            format!("task {:?} of container {}/{}", receipt.task, database.row.name, open.row.name);
        let page_list = PageList::decode(&received.page_list.read(source)?);
        let page_list = page_list.map_err(Error::storage(what.clone()))?;
        let paths = open.appender.column_paths();
        let summaries = statistics::read_part(&received.statistics, &paths, source)?;
        let part = WrittenPart { page_list, summaries };
        if part.entries() != received.entries {
            return Err(Error::Corrupt {
                what: format!(
                    "{what}: the receipt has {} objects, the file {}",
                    received.entries,
                    part.entries()
                ),
            });
        }
        let size = source.size().map_err(Error::storage(what.clone()))?;
        open.appender.check_part(&part, size).map_err(Error::storage(what))?;
        Ok(part)
    }

    fn append_part(&mut self, key: ContainerKey, part: WrittenPart) -> Result<()> {
        let mut writer = self.writer(key)?;
        let extents = &mut writer.database.extents;
        let appended = writer.container.appender.append_part(extents, part);
        writer.container.is_half_changed |= appended.is_err();
        writer.database.extents.need_sync();
        writer.record_write(appended)
    }
}
