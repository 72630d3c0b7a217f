//! Transactions: what is written together becomes visible together.
//!
//! Commit (DESIGN of the commit protocol):
//! 1. every container ends its cluster and writes page list and footer; every database gets a commit
//!    record; the files are synced, each once;
//! 2. one catalogue transaction checks that every container is still at the version that this
//!    transaction continued, and records the new ones. When that is durable, it has happened.
//!
//! Invariants:
//! 1. Until 2 has succeeded, nothing that this transaction wrote is referred to from anywhere.
//! 2. The write lock of a container is held from its first use to the end, so that two writers do
//!    not work in vain; that nobody else committed is checked in 2, not believed.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;

use femtobarn_catalog::{
    ClassRow, Commit, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState,
    EnvelopeRange, LockGuard, LockOwner, NewContainer, NewDatabase, NewVersion, Oid,
};
use rntuple::{Appender, Array, Cell, EnvelopeLink, Reader, Value};
use uuid::Uuid;

use crate::class::Class;
use crate::description::DESCRIPTION;
use crate::dress::{self, ToStored};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::ExtentWriter;
use crate::federation::Federation;
use crate::file::{self, DatabaseFile};
use crate::options::{ContainerOptions, TransactionOptions};
use crate::record::{CommitRecord, ContainerRecord};
use crate::view::{Source, link};

/// A container that a transaction writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerKey {
    /// Its database.
    pub database: DatabaseId,
    /// Its number within the database.
    pub container: ContainerId,
}

/// A transaction that is under way. Dropped without a commit, it leaves nothing behind.
pub struct Transaction {
    federation: Federation,
    id: Uuid,
    options: TransactionOptions,
    owner: LockOwner,
    databases: BTreeMap<DatabaseId, OpenDatabase>,
    containers: BTreeMap<ContainerKey, OpenContainer>,
    new_classes: Vec<Class>,
    /// Identities of databases that were linked to or written.
    identities: BTreeMap<DatabaseId, Uuid>,
    is_over: bool,
}

/// A database that the transaction writes to.
struct OpenDatabase {
    row: DatabaseRow,
    is_new: bool,
    extents: ExtentWriter,
}

/// A container that the transaction writes to.
struct OpenContainer {
    row: ContainerRow,
    class: Class,
    options: ContainerOptions,
    is_new: bool,
    base: Option<Csn>,
    base_entries: u64,
    base_bytes: u64,
    header: EnvelopeLink,
    appender: Appender,
    /// Databases that its links refer to, from position 1 on; the first `known_targets` are in the
    /// catalogue.
    targets: Vec<Uuid>,
    known_targets: usize,
    is_dressed: bool,
    _lock: LockGuard,
}

impl Transaction {
    pub(crate) fn begin(federation: Federation, options: TransactionOptions) -> Result<Self> {
        if federation.catalog().is_read_only() {
            return Err(Error::Closed {
                what: format!("federation {} can only be read", federation.folder().display()),
            });
        }
        let owner = federation.inner.locks().owner();
        Ok(Transaction {
            federation,
            id: Uuid::new_v4(),
            options,
            owner,
            databases: BTreeMap::new(),
            containers: BTreeMap::new(),
            new_classes: vec![],
            identities: BTreeMap::new(),
            is_over: false,
        })
    }

    /// Creates a database.
    ///
    /// # Errors
    /// `Exists` if the name is taken.
    pub fn create_database(&mut self, name: &str) -> Result<DatabaseId> {
        self.check_open()?;
        let catalog = self.federation.catalog();
        let taken = self.databases.values().any(|open| open.row.name == name)
            || catalog.database(name, Csn::MAX).is_ok();
        if taken {
            return Err(Error::Exists { what: format!("database {name:?} exists already") });
        }
        femtobarn_catalog::check_database_name(name)?;
        let (id, uuid) = (catalog.reserve_database()?, Uuid::new_v4());
        let (path, file) = self.create_file(name, uuid)?;
        let row = DatabaseRow {
            id,
            uuid,
            name: name.to_owned(),
            path,
            state: DatabaseState::Open,
            created: Csn::ZERO,
        };
        let extents = ExtentWriter::new(file.into(), id, self.federation.inner.locks());
        self.identities.insert(id, uuid);
        self.databases.insert(id, OpenDatabase { row, is_new: true, extents });
        Ok(id)
    }

    /// Creates the file of a new database. A file that a killed process left under the same name is
    /// not touched; the new one gets a name of its own.
    fn create_file(&self, name: &str, uuid: Uuid) -> Result<(String, DatabaseFile)> {
        let plain = format!("databases/{name}.root");
        let distinct = format!("databases/{name}-{}.root", &uuid.simple().to_string()[..8]);
        let folder = self.federation.folder();
        match DatabaseFile::create(folder.join(&plain), uuid) {
            Ok(file) => Ok((plain, file)),
            Err(Error::Exists { .. }) => {
                let file = DatabaseFile::create(folder.join(&distinct), uuid)?;
                Ok((distinct, file))
            }
            Err(error) => Err(error),
        }
    }

    /// A database by its name: one that exists or that this transaction created.
    ///
    /// # Errors
    /// `NotFound`, with names that are like it.
    pub fn database(&mut self, name: &str) -> Result<DatabaseId> {
        self.check_open()?;
        match self.databases.values().find(|open| open.row.name == name) {
            Some(open) => Ok(open.row.id),
            None => Ok(self.federation.catalog().database(name, Csn::MAX)?.id),
        }
    }

    /// Creates a container for objects of a class.
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
        femtobarn_catalog::check_container_name(name)?;
        if name == DESCRIPTION {
            return Err(Error::invalid(format!(
                "the container name {name:?} is taken by Femtobarn"
            )));
        }
        if self.find_container(database, name)?.is_some() {
            return Err(Error::Exists { what: format!("container {name:?} exists already") });
        }
        self.add_class(class)?;
        let id = self.federation.catalog().reserve_container()?;
        let lock = self.owner.lock_container(database, id, self.options.lock_wait)?;
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
                class: class.clone(),
                options,
                is_new: true,
                base: None,
                base_entries: 0,
                base_bytes: 0,
                header,
                appender,
                targets: vec![],
                known_targets: 0,
                is_dressed: is_dressed(class),
                _lock: lock,
            },
        );
        Ok(key)
    }

    /// A container by its name, locked for writing.
    ///
    /// # Errors
    /// `NotFound`, with names that are like it; `Busy`, with who writes it, if that takes longer
    /// than this transaction waits; `Closed` for a database that takes no more changes.
    pub fn container(&mut self, database: DatabaseId, name: &str) -> Result<ContainerKey> {
        self.check_open()?;
        if let Some(key) = self.find_container(database, name)? {
            return self.open_container(key);
        }
        let row = self.federation.catalog().container(database, name, Csn::MAX)?;
        self.open_container(ContainerKey { database, container: row.id })
    }

    fn find_container(&self, database: DatabaseId, name: &str) -> Result<Option<ContainerKey>> {
        let named = |open: &&OpenContainer| open.row.database == database && open.row.name == name;
        if let Some(open) = self.containers.values().find(named) {
            return Ok(Some(ContainerKey { database, container: open.row.id }));
        }
        match self.federation.catalog().container(database, name, Csn::MAX) {
            Ok(row) => Ok(Some(ContainerKey { database, container: row.id })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn open_container(&mut self, key: ContainerKey) -> Result<ContainerKey> {
        if self.containers.contains_key(&key) {
            return Ok(key);
        }
        let ContainerKey { database, container } = key;
        self.open_database(database)?;
        let lock = self.owner.lock_container(database, container, self.options.lock_wait)?;
        let catalog = self.federation.catalog();
        let row = catalog.container_by_id(database, container, Csn::MAX)?;
        let class = catalog.class(&row.class, Some(row.class_version))?;
        let class = Class::from_json(&class.definition)?;
        let options = ContainerOptions::from_json(&row.options)?;
        let base = catalog.version(database, container, Csn::MAX)?.ok_or_else(|| {
            Error::NotFound { what: format!("container {:?} has no version", row.name) }
        })?;
        let targets = catalog.link_targets(database, container)?;
        let what = format!("container {}", row.name);
        let source = Source(self.databases[&database].extents.file().clone());
        let appender = Reader::from_links(
            std::sync::Arc::new(source),
            &link(&base.header),
            &link(&base.footer),
        )
        .and_then(|reader| Appender::resume(&reader, options.write_options()))
        .map_err(Error::storage(what))?;
        let open = OpenContainer {
            is_dressed: is_dressed(&class),
            row,
            class,
            options,
            is_new: false,
            base: Some(base.csn),
            base_entries: base.entries,
            base_bytes: base.bytes,
            header: link(&base.header),
            appender,
            known_targets: targets.len(),
            targets,
            _lock: lock,
        };
        self.containers.insert(key, open);
        Ok(key)
    }

    fn open_database(&mut self, id: DatabaseId) -> Result<&mut OpenDatabase> {
        if !self.databases.contains_key(&id) {
            let row = self.federation.catalog().database_by_id(id, Csn::MAX)?;
            if row.state != DatabaseState::Open {
                return Err(Error::Closed {
                    what: format!("database {:?} is {} and takes no changes", row.name, row.state),
                });
            }
            let inner = &self.federation.inner;
            let extents = inner.take_extents(id, inner.path_of(&row))?;
            self.databases.insert(id, OpenDatabase { row, is_new: false, extents });
        }
        Ok(self.databases.get_mut(&id).expect("it was there or was just inserted"))
    }

    /// Declares a class, unless the same is declared already.
    fn add_class(&mut self, class: &Class) -> Result<()> {
        let named = |other: &&Class| other.name == class.name && other.version == class.version;
        let known = match self.new_classes.iter().find(named) {
            Some(other) => Some(other.to_json()),
            None => self.committed_class(class)?,
        };
        match known {
            Some(definition) if definition == class.to_json() => Ok(()),
            Some(_) => Err(Error::Exists {
                what: format!(
                    "class {} version {} has another definition; raise its version",
                    class.name, class.version
                ),
            }),
            None => {
                self.new_classes.push(class.clone());
                Ok(())
            }
        }
    }

    /// The definition that the catalogue has of a class. The commit looks again; this is so that
    /// nobody writes in vain.
    fn committed_class(&self, class: &Class) -> Result<Option<String>> {
        match self.federation.catalog().class(&class.name, Some(class.version)) {
            Ok(row) => Ok(Some(row.definition)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The class of a container's objects.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn class(&self, key: ContainerKey) -> Result<&Class> {
        self.containers.get(&key).map(|open| &open.class).ok_or_else(unopened)
    }

    /// Number of objects of a container, with those that this transaction appended.
    ///
    /// # Errors
    /// `NotFound` if the transaction has not opened the container.
    pub fn entries(&self, key: ContainerKey) -> Result<u64> {
        self.containers.get(&key).map(|open| open.appender.entries()).ok_or_else(unopened)
    }

    /// Appends an object from a value: a record with the members of the class in its order. Links
    /// are records of database, container and entry; no value is a null link.
    ///
    /// # Errors
    /// `Invalid` if the value is not of the class; as the disk.
    pub fn append_value(&mut self, key: ContainerKey, object: Value) -> Result<Oid> {
        let mut writer = self.writer(key)?;
        let object = match writer.container.is_dressed {
            true => writer.translated(|class, by| dress::value_to_store(class, object, by))?,
            false => object,
        };
        let appender = &mut writer.container.appender;
        let entry = appender.entries();
        let appended = appender.append_value(&mut writer.database.extents, &object);
        appended.map_err(Error::storage(writer.what()))?;
        Ok(Oid::new(key.database, key.container, entry))
    }

    /// Appends an array of objects: records with the members of the class. Returns the OID of the
    /// first; those of the others follow it.
    ///
    /// # Errors
    /// `Invalid` if the array is not of the class; as the disk. Then nothing is appended.
    pub fn extend(&mut self, key: ContainerKey, objects: Array) -> Result<Oid> {
        let mut writer = self.writer(key)?;
        let objects = match writer.container.is_dressed {
            true => writer.translated(|class, by| dress::array(class, objects, by))?,
            false => objects,
        };
        let appender = &mut writer.container.appender;
        let entry = appender.entries();
        let appended = appender.append(&mut writer.database.extents, &objects);
        appended.map_err(Error::storage(writer.what()))?;
        Ok(Oid::new(key.database, key.container, entry))
    }

    /// The container as a place to append Rust structures to, one by one.
    ///
    /// # Errors
    /// `Invalid` if the container does not hold such structures, or if there are links or optional
    /// records among them: rows are stored as they are, and those are stored as something else.
    pub fn rows<R: Cell>(&mut self, key: ContainerKey) -> Result<Rows<'_, R>> {
        let writer = self.writer(key)?;
        if writer.container.is_dressed {
            return Err(Error::invalid(format!(
                "{} has links or optional records, which rows cannot hold; append values or arrays",
                writer.what()
            )));
        }
        if !writer.container.appender.holds::<R>() {
            return Err(Error::invalid(format!(
                "{} holds objects of class {}, not these rows",
                writer.what(),
                writer.container.class.name
            )));
        }
        Ok(Rows { writer, key, of: PhantomData })
    }

    fn writer(&mut self, key: ContainerKey) -> Result<Writer<'_>> {
        self.check_open()?;
        let container = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let identities = &mut self.identities;
        Ok(Writer { federation: &self.federation, identities, database, container })
    }

    /// Makes everything durable and visible, at once.
    ///
    /// # Errors
    /// `Conflict` if somebody else committed to one of the containers in spite of its lock; `Exists`
    /// if a name was taken meanwhile; as the disk. Then nothing has happened, unless the disk failed
    /// (`Io`) in the very moment that made it durable: the history tells.
    pub fn commit(mut self) -> Result<Csn> {
        self.check_open()?;
        self.is_over = true;
        let prepared = self.write_versions().and_then(|versions| {
            self.sync(&versions)?;
            Ok(self.catalogue_entry(&versions))
        });
        let committed = match prepared {
            Ok(commit) => self.federation.catalog().commit(commit).map_err(Error::from),
            Err(error) => {
                self.close(false);
                return Err(error);
            }
        };
        // If the disk failed while the catalogue committed, the commit may yet turn out to be
        // durable, and its files are needed.
        let is_refused = committed.as_ref().is_err_and(|error| {
            let kind = error.kind();
            !matches!(kind, ErrorKind::Io | ErrorKind::Internal | ErrorKind::Corrupt)
        });
        self.close(!is_refused);
        committed
    }

    /// Ends the transaction; nothing of it remains.
    pub fn rollback(mut self) {
        self.close(false);
    }

    /// Ends clusters and writes page lists and footers of all containers that changed.
    fn write_versions(&mut self) -> Result<Vec<(ContainerKey, NewVersion)>> {
        let mut versions = vec![];
        for (key, open) in &mut self.containers {
            if !open.is_new && open.appender.entries() == open.base_entries {
                continue;
            }
            let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
            let source = Source(database.extents.file().clone());
            let version = open.appender.finish_version(&mut database.extents, &source);
            let version = version.map_err(Error::storage(format!(
                "container {}/{}",
                database.row.name, open.row.name
            )))?;
            versions.push((
                *key,
                NewVersion {
                    database: key.database,
                    container: key.container,
                    base: open.base,
                    header: range(&open.header),
                    footer: range(&version.footer),
                    entries: version.entries,
                    bytes: open.base_bytes + version.bytes,
                },
            ));
        }
        Ok(versions)
    }

    /// Writes the commit records and makes all files durable.
    fn sync(&mut self, versions: &[(ContainerKey, NewVersion)]) -> Result<()> {
        let is_touched = |id: &DatabaseId, open: &OpenDatabase| {
            open.is_new || versions.iter().any(|(key, _)| key.database == *id)
        };
        let touched: Vec<DatabaseId> = self
            .databases
            .iter()
            .filter(|(id, open)| is_touched(id, open))
            .map(|(id, _)| *id)
            .collect();
        let uuids: Vec<Uuid> = touched.iter().map(|id| self.databases[id].row.uuid).collect();
        for id in &touched {
            let record = self.record(*id, &uuids, versions).encode();
            let open = self.databases.get_mut(id).expect("it is one of the open databases");
            let written = rntuple::BlobSink::write_blob(&mut open.extents, &[&record]);
            written.map_err(Error::storage(format!("database {}", open.row.name)))?;
            open.extents.flush()?;
            open.extents.sync()?;
        }
        if self.databases.values().any(|open| open.is_new) {
            file::sync_folder(&self.federation.folder().join("databases"))?;
        }
        Ok(())
    }

    fn record(
        &self,
        id: DatabaseId,
        databases: &[Uuid],
        versions: &[(ContainerKey, NewVersion)],
    ) -> CommitRecord {
        let row = &self.databases[&id].row;
        let of_this = versions.iter().filter(|(key, _)| key.database == id);
        let container = |(key, version): &(ContainerKey, NewVersion)| {
            let open = &self.containers[key];
            ContainerRecord {
                id: key.container,
                name: open.row.name.clone(),
                class: open.class.clone(),
                options: open.options,
                base: version.base,
                header: version.header,
                footer: version.footer,
                entries: version.entries,
                bytes: version.bytes,
                link_targets: open.targets.clone(),
            }
        };
        CommitRecord {
            transaction: self.id,
            message: self.options.message.clone(),
            database: row.uuid,
            name: row.name.clone(),
            databases: databases.to_vec(),
            containers: of_this.map(container).collect(),
        }
    }

    fn catalogue_entry(&self, versions: &[(ContainerKey, NewVersion)]) -> Commit {
        let new_databases = self.databases.values().filter(|open| open.is_new);
        let new_containers = self.containers.values().filter(|open| open.is_new);
        let link_targets = self.containers.iter().filter_map(|(key, open)| {
            let new = open.targets[open.known_targets..].to_vec();
            (!new.is_empty()).then_some((key.database, key.container, new))
        });
        Commit {
            transaction: self.id,
            message: self.options.message.clone(),
            new_databases: new_databases.map(|open| new_database(&open.row)).collect(),
            new_containers: new_containers.map(|open| new_container(&open.row)).collect(),
            new_classes: self.new_classes.iter().map(class_row).collect(),
            versions: versions.iter().map(|(_, version)| *version).collect(),
            link_targets: link_targets.collect(),
            ..Commit::default()
        }
    }

    /// Gives locks and extents back, and removes new files unless they are to be kept.
    fn close(&mut self, keeps_files: bool) {
        self.is_over = true;
        self.containers.clear();
        for (id, mut open) in std::mem::take(&mut self.databases) {
            if open.is_new && !keeps_files {
                let path: PathBuf = open.extents.file().path.clone();
                // A file that cannot be removed is unknown to the catalogue and only takes space.
                drop(file::remove(&path));
                continue;
            }
            open.extents.discard();
            self.federation.inner.return_extents(id, open.extents);
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.is_over {
            false => Ok(()),
            true => Err(Error::Closed { what: "the transaction is over; start another".into() }),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_over {
            self.close(false);
        }
    }
}

/// A container with what it takes to append to it.
struct Writer<'a> {
    federation: &'a Federation,
    identities: &'a mut BTreeMap<DatabaseId, Uuid>,
    database: &'a mut OpenDatabase,
    container: &'a mut OpenContainer,
}

impl Writer<'_> {
    fn what(&self) -> String {
        format!("container {}/{}", self.database.row.name, self.container.row.name)
    }

    /// Translates objects on their way to the disk.
    fn translated<T>(
        &mut self,
        translate: impl FnOnce(&Class, &mut dyn dress::Translate) -> Result<T>,
    ) -> Result<T> {
        let catalog = self.federation.catalog();
        let identity = |id: DatabaseId| {
            if let Some(uuid) = self.identities.get(&id) {
                return Ok(*uuid);
            }
            let uuid = catalog.database_by_id(id, Csn::MAX)?.uuid;
            self.identities.insert(id, uuid);
            Ok(uuid)
        };
        let (own, targets) = (self.database.row.uuid, &mut self.container.targets);
        let mut by = ToStored { own, targets, identity, last: None };
        translate(&self.container.class, &mut by)
    }
}

/// A container that Rust structures are appended to.
pub struct Rows<'a, R> {
    writer: Writer<'a>,
    key: ContainerKey,
    of: PhantomData<R>,
}

impl<R: Cell> Rows<'_, R> {
    /// Appends one object.
    ///
    /// # Errors
    /// As the disk.
    #[inline]
    pub fn append(&mut self, row: &R) -> Result<Oid> {
        let Writer { container, database, .. } = &mut self.writer;
        let entry = container.appender.entries();
        let appended = container.appender.append_row(&mut database.extents, row);
        match appended {
            Ok(()) => Ok(Oid::new(self.key.database, self.key.container, entry)),
            Err(error) => Err(Error::storage(self.writer.what())(error)),
        }
    }
}

fn is_dressed(class: &Class) -> bool {
    class.fields.iter().any(|field| field.of.is_dressed())
}

fn new_database(row: &DatabaseRow) -> NewDatabase {
    NewDatabase {
        id: row.id,
        uuid: row.uuid,
        name: row.name.clone(),
        path: row.path.clone(),
        state: row.state,
    }
}

fn new_container(row: &ContainerRow) -> NewContainer {
    NewContainer {
        database: row.database,
        id: row.id,
        name: row.name.clone(),
        class: row.class.clone(),
        class_version: row.class_version,
        options: row.options.clone(),
    }
}

fn class_row(class: &Class) -> ClassRow {
    ClassRow { name: class.name.clone(), version: class.version, definition: class.to_json() }
}

/// The same place, as the catalogue says it.
pub(crate) fn range(link: &EnvelopeLink) -> EnvelopeRange {
    EnvelopeRange { offset: link.locator.offset, size: link.locator.size, length: link.length }
}

fn unopened() -> Error {
    Error::NotFound { what: "the transaction has not opened this container".to_owned() }
}
