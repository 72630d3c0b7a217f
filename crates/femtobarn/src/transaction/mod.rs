//! Transactions: what is written together becomes visible together.
//!
//! Commit:
//! 1. every container ends its cluster and writes page list and footer; every database gets a commit
//!    record; the files are synced, each once;
//! 2. one catalogue transaction checks that every container is still at the version that this
//!    transaction continued, and records the new ones. When that is durable, it has happened.
//!
//! Invariants:
//! 1. Until 2 has succeeded, nothing that this transaction wrote is referred to from anywhere.
//! 2. The write lock of a container is held from its first use to the end, so that two writers do
//!    not work in vain; that nobody else committed is checked in 2, not believed.

mod append;
mod classes;
mod commit;

use std::collections::BTreeMap;
use std::path::PathBuf;

use femtobarn_catalog::{
    ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, DatabaseState, LockGuard, LockOwner,
};
use rntuple::{Appender, EnvelopeLink, Reader};
use uuid::Uuid;

use crate::annex::Annex;
use crate::class::Class;
use crate::description::DESCRIPTION;
use crate::error::{Error, ErrorKind, Result};
use crate::extent::ExtentWriter;
use crate::federation::Federation;
use crate::file::{self, DatabaseFile};
use crate::options::{ContainerOptions, TransactionOptions};
use crate::view::{Source, link};

pub use append::Rows;
pub(crate) use commit::range;

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
    /// What stands beside the footer.
    annex: Annex,
    /// Entries of the version that are deleted.
    deleted: u64,
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
                annex: Annex::default(),
                deleted: 0,
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
        let annex = Annex::read(&source, base.annex)?;
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
            annex,
            deleted: base.deleted,
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

fn is_dressed(class: &Class) -> bool {
    class.fields.iter().any(|field| field.of.is_dressed())
}

fn unopened() -> Error {
    Error::NotFound { what: "the transaction has not opened this container".to_owned() }
}
