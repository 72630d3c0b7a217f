//! The containers that a transaction writes to: creating, locking and opening them.

use femtobarn_catalog::{ContainerRow, Csn, DatabaseId, VersionRow};
use rntuple::Appender;

use super::container::{OpenContainer, WrittenVersion, needs_translation, resume};
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
                class,
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
        // This process last found the name here. Whether it still belongs to this container is checked under
        // its lock.
        let last = self.federation.inner.writers().container_named(database, name);
        let last = last.filter(|key| !self.has_renamed_container(*key));
        let opened = last.map(|key| self.open_container(key));
        if let Some(Ok(key)) = opened {
            if self.containers[&key].row.name == name {
                return Ok(key);
            }
            self.containers.remove(&key);
        }
        let key = self.resolve_container(database, name)?;
        match opened {
            Some(Err(error)) if last == Some(key) => Err(error),
            _ => self.open_container(key),
        }
    }

    pub(super) fn open_container(&mut self, key: ContainerKey) -> Result<ContainerKey> {
        if self.containers.contains_key(&key) {
            return Ok(key);
        }
        let ContainerKey { database, container } = key;
        let shared = self.share_database(database)?;
        let lock = match self.dropped.locks.remove(&key) {
            Some(lock) => lock,
            None => self.owner.lock_container(database, container, self.options.lock_wait)?,
        };
        let catalog = self.federation.catalog();
        let (of, row, base) = catalog.container_to_write(database, container)?;
        let epoch = of.epoch;
        if let Some(shared) = shared {
            self.insert_database(of, shared)?;
        }
        let base = base.ok_or_else(|| Error::NotFound {
            what: format!("container {:?} has no version", row.name),
        })?;
        let mut open = match self.federation.inner.writers().take_container(key, base.csn, epoch) {
            Some(kept) => kept.with_row(row),
            None => self.read_container(row, &base)?,
        };
        open.lock = Some(lock);
        self.containers.insert(key, open);
        Ok(key)
    }

    /// Reads the newest version of a container, to continue it.
    fn read_container(&self, row: ContainerRow, base: &VersionRow) -> Result<OpenContainer> {
        let ContainerRow { database, id: container, .. } = row;
        let catalog = self.federation.catalog();
        let options = ContainerOptions::from_json(&row.options)?;
        let class = catalog.class(&row.class, Some(base.class_version))?;
        let class = Class::from_json(&class.definition)?;
        let targets = catalog.link_targets(database, container)?;
        let what = format!("container {}", row.name);
        let file = self.databases[&database].extents.file().clone();
        let annex = Annex::read(&file.clone(), base.annex)?;
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
            appender: resume(file, &header, &footer, options, &what)?,
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
