//! Opening and creating the containers of a transaction, and writing them as versions.

use std::sync::Arc;

use femtobarn_catalog::{BlobRange, ContainerRow, Csn, DatabaseId, LockGuard, VersionRow};
use rntuple::{Appender, Cell, ClusterSummary, EnvelopeLink, Reader, Type};
use uuid::Uuid;

use super::names::check_container_name;
use super::{ContainerKey, Transaction};
use crate::ContainerOptions;
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::read::index::Pending;
use crate::schema::class::Class;
use crate::storage::extent::ExtentWriter;
use crate::storage::file::DatabaseFile;
use femtobarn_format::link;

/// A container that the transaction writes to.
pub(super) struct OpenContainer {
    pub row: ContainerRow,
    pub class: Class,
    pub options: ContainerOptions,
    pub is_new: bool,
    /// The version that it continues.
    pub base: Option<Csn>,
    /// Bytes of the file that the version uses.
    pub bytes: u64,
    /// What stands beside the footer.
    pub annex: Annex,
    pub deletions: Deletions,
    pub header: EnvelopeLink,
    pub appender: Appender,
    /// The container as it was last written, if it is still that.
    pub written: Option<Written>,
    /// Whether it is another than the version that it continues.
    pub is_changed: bool,
    /// Whether a part of a change failed, so that it must not be committed.
    pub is_torn: bool,
    /// Databases that its links refer to, from position 1 on; the first `known_targets` are in the
    /// catalogue.
    pub targets: Vec<Uuid>,
    pub known_targets: usize,
    pub needs_translation: bool,
    /// What is known of clusters and not written yet; nothing if `written`.
    pub summaries: Vec<ClusterSummary>,
    /// What has to be written to the indexes; nothing if `written`.
    pub indexing: Pending,
    /// As it was when the transaction opened it or last committed; none if it is new.
    pub opened: Option<State>,
    /// None while no transaction has it, and while nobody else can find it: it is new.
    pub lock: Option<LockGuard>,
}

/// What it takes to make a container again what it was.
#[derive(Clone)]
pub(super) struct State {
    row: ContainerRow,
    class: Class,
    header: EnvelopeLink,
    written: Written,
    annex: Annex,
    deletions: Deletions,
    targets: usize,
    is_changed: bool,
}

/// A container on disk, without a name for anybody to find it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub footer: EnvelopeLink,
    pub annex: BlobRange,
    pub entries: u64,
    pub deleted: u64,
    pub bytes: u64,
}

impl OpenContainer {
    /// Whether rows of type `R` are what it holds.
    pub fn holds<R: Cell>(&self) -> bool {
        match self.needs_translation {
            true => {
                R::cell_type() == self.class.row_type()
                    && matches!(self.appender.types(), Type::Record { members, .. } if *members == self.class.members())
            }
            false => self.appender.holds::<R>(),
        }
    }

    /// Notes that something changes.
    pub fn touch(&mut self) {
        self.written = None;
        self.is_changed = true;
    }

    /// Writes the container as it is now. It can be read after a flush.
    pub fn write(&mut self, extents: &mut ExtentWriter, what: &str) -> Result<Written> {
        if self.is_torn {
            return Err(Error::Closed {
                what: format!(
                    "{what}: an earlier change failed halfway; roll back and start again"
                ),
            });
        }
        if let Some(written) = self.written {
            return Ok(written);
        }
        let source = extents.file().clone();
        let version = self.appender.finish_version(extents, &source);
        let mut version = version.map_err(Error::storage(what))?;
        self.summaries.append(&mut version.summaries);
        self.keep_up_statistics(extents)?;
        self.annex.deletions = self.deletions.write(extents).map_err(Error::storage(what))?;
        self.keep_up_indexes(extents, &version.footer, what)?;
        let annex = self.annex.write(extents).map_err(Error::storage(what))?;
        self.bytes += version.bytes + annex.size;
        let written = Written {
            footer: version.footer,
            annex,
            entries: version.entries,
            deleted: self.deletions.count(),
            bytes: self.bytes,
        };
        self.written = Some(written);
        Ok(written)
    }

    /// Writes the container as it is now, so that it can be made that again.
    pub fn save(&mut self, extents: &mut ExtentWriter, what: &str) -> Result<State> {
        let written = self.write(extents, what)?;
        extents.flush()?;
        Ok(self.state(written))
    }

    fn state(&self, written: Written) -> State {
        State {
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

    /// Makes the container what it was.
    pub fn restore(&mut self, state: State, source: Arc<DatabaseFile>, what: &str) -> Result<()> {
        if !self.is_torn && self.written == Some(state.written) && self.header == state.header {
            self.row = state.row;
            self.is_changed = state.is_changed;
            return Ok(());
        }
        let footer = &state.written.footer;
        self.appender = resume(source, &state.header, footer, self.options, what)?;
        self.needs_translation = needs_translation(&state.class);
        self.bytes = state.written.bytes;
        self.written = Some(state.written);
        self.indexing = Pending::from(state.written.entries);
        self.summaries.clear();
        self.row = state.row;
        self.class = state.class;
        self.header = state.header;
        self.annex = state.annex;
        self.deletions = state.deletions;
        self.targets.truncate(state.targets);
        self.is_changed = state.is_changed;
        self.is_torn = false;
        Ok(())
    }

    /// The same container, which may have got another name meanwhile.
    pub fn renamed(mut self, row: ContainerRow) -> Self {
        if let Some(opened) = &mut self.opened {
            opened.row.clone_from(&row);
        }
        self.row = row;
        self
    }

    /// Bytes that were written since it was opened.
    pub fn grown(&self) -> u64 {
        let before = self.opened.as_ref().map_or(0, |opened| opened.written.bytes);
        self.bytes.saturating_sub(before)
    }

    /// Notes that the container was committed as it is now.
    pub fn committed(&mut self, csn: Csn) {
        if !self.is_changed {
            return;
        }
        self.base = Some(csn);
        self.is_new = false;
        self.is_changed = false;
        self.known_targets = self.targets.len();
        self.opened = self.written.map(|written| self.state(written));
    }
}

/// Goes on from a version that is on disk.
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

impl Transaction {
    /// Creates a container for objects of a class. A class that came into the federation with a database,
    /// and has a name with an origin here, is also meant by its name and fields.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `Invalid` for a class that cannot be stored; `Closed` for a
    /// database that takes no more changes.
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
            return Err(Error::Exists { what: format!("container {name:?} exists already") });
        }
        let class = self.class_here(class)?;
        let id = self.federation.new_container_number()?;
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
                is_torn: false,
                appender,
                targets: vec![],
                known_targets: 0,
                needs_translation: needs_translation(&class),
                class,
                indexing: Pending::default(),
                summaries: vec![],
                opened: None,
                lock: None,
            },
        );
        Ok(key)
    }

    /// Locks the new containers, which others will find from the next checkpoint on.
    pub(super) fn lock_new_containers(&mut self) -> Result<()> {
        for (key, open) in self.containers.iter_mut().filter(|(_, open)| open.lock.is_none()) {
            let wait = self.options.lock_wait;
            open.lock = Some(self.owner.lock_container(key.database, key.container, wait)?);
        }
        Ok(())
    }

    /// A container by its name, locked for writing.
    ///
    /// # Errors
    /// `NotFound`, with names that are like it; `Busy`, with who writes it, if that takes longer
    /// than this transaction waits; `Closed` for a database that takes no more changes.
    pub fn container(&mut self, database: DatabaseId, name: &str) -> Result<ContainerKey> {
        self.check_open()?;
        if let Some(key) = self.own_container(database, name) {
            return Ok(key);
        }
        // Where this process found the name the last time; whether it is still there is looked at when
        // the container is locked.
        let last = self.federation.inner.writers.container_named(database, name);
        let last = last.filter(|key| !self.has_renamed_container(*key));
        let opened = last.map(|key| self.open_container(key));
        if let Some(Ok(key)) = opened {
            if self.containers[&key].row.name == name {
                return Ok(key);
            }
            self.containers.remove(&key);
        }
        let key = self.named_container(database, name)?;
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
        let lock = match self.graves.locks.remove(&key) {
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
        let mut open = match self.federation.inner.writers.take_container(key, base.csn, epoch) {
            Some(kept) => kept.renamed(row),
            None => self.read_container(row, &base)?,
        };
        open.lock = Some(lock);
        self.containers.insert(key, open);
        Ok(key)
    }

    /// A container as of its newest version, to go on from.
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
        let written = Written {
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
            is_torn: false,
            known_targets: targets.len(),
            targets,
            indexing: Pending::from(base.entries),
            summaries: vec![],
            opened: None,
            lock: None,
        };
        open.opened = Some(open.state(written));
        Ok(open)
    }
}

pub(super) fn needs_translation(class: &Class) -> bool {
    class.fields.iter().any(|field| field.of.needs_translation())
}
