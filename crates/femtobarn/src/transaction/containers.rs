//! The containers that a transaction writes to: creating, locking and opening them.

use std::sync::Arc;

use femtobarn_catalog::{
    BlobRange, ContainerRow, Csn, DatabaseId, DatabaseRow, EnvelopeRange, LockGuard, LockKind,
    LockTarget, NewestRows, VersionRow,
};
use rntuple::Appender;

use super::container::{OpenContainer, WrittenVersion, needs_translation};
use super::names::check_container_name;
use super::{ContainerKey, Transaction};
use crate::ContainerOptions;
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::read::index::PendingKeys;
use crate::read::statistics::RecentRuns;
use crate::schema::class::Class;
use femtobarn_format::link;

/// A container that is locked for writing.
struct LockedContainer {
    /// The lock on its database, if the transaction did not hold that before.
    shared: Option<LockGuard>,
    lock: LockGuard,
    /// Its newest rows, if a server sent them with the locks.
    rows: Option<(DatabaseRow, ContainerRow, Option<VersionRow>)>,
}

/// The result of opening the container that last had a name.
enum LastNamed {
    /// It still has the name.
    Opened(ContainerKey),
    /// No container is known, or it has another name.
    Other,
    /// It could not be opened. It may have another name.
    Failed(ContainerKey, Error),
}

impl Transaction {
    /// Creates a container for objects of a class. A class that came with an attached database, and whose
    /// name here has an origin, is also found by its plain name and fields.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `Invalid` if the name, the options or the class cannot be stored;
    /// `Closed` for a database that takes no changes.
    pub fn create_container(
        &mut self,
        database: DatabaseId,
        name: &str,
        class: &Class,
        options: ContainerOptions,
    ) -> Result<ContainerKey> {
        self.check_open()?;
        options.check()?;
        class.check()?;
        check_container_name(name)?;
        if self.find_container(database, name)?.is_some() {
            return Err(Error::Exists { what: format!("container {name:?} already exists") });
        }
        let class = self.declare_or_match_class(class)?;
        let id = self.federation.inner.writers().next_container(self.federation.catalog())?;
        let extents = &mut self.open_database(database)?.extents;
        let (appender, header) =
            Appender::create(extents, name, &class.members(), options.write_options())
                .map_err(Error::storage(format!("container {name}")))?;
        let row = ContainerRow {
            database,
            id,
            name: name.to_owned(),
            class: class.name.clone(),
            class_version: class.version,
            options: options.to_json(),
            created: Csn::ZERO,
        };
        let key = ContainerKey { database, container: id };
        self.containers.insert(
            key,
            OpenContainer {
                row,
                options,
                is_new: true,
                base: None,
                bytes: 0,
                annex: Annex::default(),
                deletions: Deletions::default(),
                header,
                written: None,
                is_changed: true,
                is_half_changed: false,
                appender,
                targets: vec![],
                known_targets: 0,
                needs_translation: needs_translation(&class),
                class: Arc::new(class),
                indexing: PendingKeys::default(),
                summaries: vec![],
                recent_statistics: RecentRuns::default(),
                opened: None,
                lock: None,
            },
        );
        Ok(key)
    }

    /// Locks the new containers, which other transactions can find from the next checkpoint on.
    pub(super) fn lock_new_containers(&mut self) -> Result<()> {
        for (key, open) in self.containers.iter_mut().filter(|(_, open)| open.lock.is_none()) {
            let wait = self.options.lock_wait;
            open.lock = Some(self.owner.lock_container(key.database, key.container, wait)?);
        }
        Ok(())
    }

    /// Opens a container by name and locks it for writing.
    ///
    /// # Errors
    /// `NotFound`, with similar names; `Busy`, with the lock's holder, after waiting for `lock_wait`;
    /// `Closed` for a database that takes no changes.
    pub fn container(&mut self, database: DatabaseId, name: &str) -> Result<ContainerKey> {
        self.check_open()?;
        if let Some(key) = self.containers.named(database, name) {
            return Ok(key);
        }
        match self.open_last_named(database, name, |_| true) {
            LastNamed::Opened(key) => Ok(key),
            LastNamed::Other => {
                let key = self.resolve_container(database, name)?;
                self.open_container(key)
            }
            LastNamed::Failed(last, error) => {
                let key = self.resolve_container(database, name)?;
                if key == last { Err(error) } else { self.open_container(key) }
            }
        }
    }

    /// Opens a container by its path and locks it for writing, in one round trip to a server and without look-ups of names.
    /// `None` unless this process wrote to it before, and it still has the path.
    ///
    /// # Errors
    /// `Busy`, with the lock's holder, after waiting for `lock_wait`; `Closed` for a database that takes no changes.
    pub fn last_container_at(
        &mut self,
        database: &str,
        name: &str,
    ) -> Result<Option<ContainerKey>> {
        self.check_open()?;
        let own = self.own_database(database);
        if let Some(key) = own.and_then(|id| self.containers.named(id, name)) {
            return Ok(Some(key));
        }
        // A database that is open here has another name.
        let last = || self.last_database(database).filter(|id| !self.databases.contains_key(id));
        let Some(id) = own.or_else(last) else { return Ok(None) };
        match self.open_last_named(id, name, |row| own.is_some() || row.name == database) {
            LastNamed::Opened(key) => Ok(Some(key)),
            LastNamed::Other => Ok(None),
            LastNamed::Failed(last, error) => {
                let Some(id) = self.find_database(database)? else { return Ok(None) };
                let found = self.find_container(id, name)?;
                if found == Some(last) { Err(error) } else { Ok(None) }
            }
        }
    }

    /// Opens the container that this process last found under a name in a database. Whether the name still belongs
    /// to it, and the database is the right one, is checked under its lock.
    fn open_last_named(
        &mut self,
        database: DatabaseId,
        name: &str,
        is_right: impl FnOnce(&DatabaseRow) -> bool,
    ) -> LastNamed {
        let last = self.federation.inner.writers().container_named(database, name);
        // A container that is open under another name was renamed.
        let is_candidate = |key: &ContainerKey| {
            !self.has_renamed_container(*key) && !self.containers.contains_key(key)
        };
        let Some(key) = last.filter(is_candidate) else { return LastNamed::Other };
        if let Err(error) = self.open_container(key) {
            self.federation.inner.writers().forget_names();
            return LastNamed::Failed(key, error);
        }
        if self.containers[&key].row.name == name && is_right(&self.databases[&database].row) {
            return LastNamed::Opened(key);
        }
        self.containers.remove(&key);
        self.federation.inner.writers().forget_names();
        LastNamed::Other
    }

    pub(super) fn open_container(&mut self, key: ContainerKey) -> Result<ContainerKey> {
        if self.containers.contains_key(&key) {
            return Ok(key);
        }
        let ContainerKey { database, container } = key;
        let LockedContainer { shared, lock, rows } = self.lock_to_write(key)?;
        let (of, row, base) = match rows {
            Some(rows) => rows,
            None => self.federation.catalog().container_to_write(database, container)?,
        };
        self.federation.inner.writers().learn_names(&of, &row);
        let epoch = of.epoch;
        if let Some(shared) = shared {
            self.insert_database(of, shared)?;
        }
        let open = &self.databases[&database];
        if let Some(known) = &open.extents.file().known
            && open.row.epoch != epoch
        {
            // Later reads may lie where other bytes were in the file's epoch, or beyond its end at that time.
            known.ranges.clear();
            known.forget_size();
        }
        let base = base.ok_or_else(|| Error::NotFound {
            what: format!("container {:?} has no version", row.name),
        })?;
        let mut open = match self.federation.inner.writers().take_container(key, base.csn, epoch) {
            Some(kept) => kept.with_row(row),
            None => self.read_container(row, &base, epoch)?,
        };
        open.lock = Some(lock);
        self.containers.insert(key, open);
        Ok(key)
    }

    /// Locks a container for writing, and shares its database unless that is open.
    fn lock_to_write(&mut self, key: ContainerKey) -> Result<LockedContainer> {
        let ContainerKey { database, container } = key;
        if let Some(lock) = self.dropped.locks.remove(&key) {
            self.seen = None;
            let shared = self.share_database(database)?;
            return Ok(LockedContainer { shared, lock, rows: None });
        }
        self.check_not_dropped(database)?;
        let share = (LockTarget::Database(database), LockKind::Shared);
        let share = (!self.databases.contains_key(&database)).then_some(share);
        let lock = (LockTarget::Container(database, container), LockKind::Exclusive);
        let locks: Vec<_> = share.into_iter().chain([lock]).collect();
        let (mut guards, rows) = self.owner.lock_together(&locks, self.options.lock_wait)?;
        let lock = guards.pop().expect("each lock has a guard");
        self.seen = None;
        let rows = match (rows, self.federation.catalog().local()) {
            (None, Ok(local)) => local.known_container(database, container, Csn::MAX)?,
            (rows, _) => rows,
        };
        let rows = rows.and_then(|NewestRows { database, container, version, head }| {
            self.note_head(head);
            Some((database, container?, version))
        });
        Ok(LockedContainer { shared: guards.pop(), lock, rows })
    }

    /// Reads the newest version of a container, to continue it.
    fn read_container(
        &self,
        row: ContainerRow,
        base: &VersionRow,
        epoch: u64,
    ) -> Result<OpenContainer> {
        let ContainerRow { database, id: container, .. } = row;
        let catalog = self.federation.catalog();
        let options = ContainerOptions::from_json(&row.options)?;
        let versions = self.federation.inner.versions();
        let class =
            versions.class(&self.databases[&database].row, &row.class, base.class_version)?;
        let targets = catalog.link_targets(database, container)?;
        let file = self.databases[&database].extents.file().clone();
        if let Some(known) = &file.known {
            // Another process may have made the file longer.
            known.forget_size();
            let envelope = |it: EnvelopeRange| BlobRange { offset: it.offset, size: it.size };
            let parts = [envelope(base.header), envelope(base.footer), base.annex];
            known.ranges.add_together(&file, &parts);
        }
        let annex = Annex::read(&file.clone(), base.annex)?;
        let appender = versions
            .reader(base, epoch, Arc::new(file))
            .and_then(|reader| Appender::resume(&reader, options.write_options()))
            .map_err(Error::storage(format!("container {}", row.name)))?;
        let (header, footer) = (link(&base.header), link(&base.footer));
        let written = WrittenVersion {
            footer,
            annex: base.annex,
            entries: base.entries,
            deleted: base.deleted,
            bytes: base.bytes,
        };
        let mut open = OpenContainer {
            needs_translation: needs_translation(&class),
            appender,
            row,
            class,
            options,
            is_new: false,
            base: Some(base.csn),
            bytes: base.bytes,
            deletions: Deletions::new(&annex.deletions, base.deleted, base.entries)?,
            annex,
            header,
            written: Some(written),
            is_changed: false,
            is_half_changed: false,
            known_targets: targets.len(),
            targets,
            indexing: PendingKeys::from(base.entries),
            summaries: vec![],
            recent_statistics: RecentRuns::default(),
            opened: None,
            lock: None,
        };
        open.opened = Some(open.state_as_of(written));
        Ok(open)
    }
}
