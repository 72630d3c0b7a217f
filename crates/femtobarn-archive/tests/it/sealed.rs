//! A federation with sealed databases whose files have any bytes: the archive does not look into them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_archive::{Archive, ByteWatch};
use femtobarn_catalog::{
    Commit, Csn, DatabaseId, DatabaseRow, DatabaseState, DroppedDatabase, LocalCatalogue,
    NewDatabase, ReplicaRow, ReplicaState,
};
use tempfile::TempDir;
use uuid::Uuid;

/// A federation with an empty folder `store` beside it, which is its store `disk2`.
pub(crate) struct Sealed {
    folder: TempDir,
    pub(crate) catalogue: Arc<LocalCatalogue>,
}

impl Sealed {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = LocalCatalogue::create(&folder.path().join("lhc.fed"), "lhc").unwrap();
        let this = Sealed { folder, catalogue: Arc::new(catalogue) };
        fs::create_dir(this.store()).unwrap();
        this.settings(&this.folder_store());
        this
    }

    /// The settings of the store.
    pub(crate) fn folder_store(&self) -> String {
        format!("[stores.disk2]\nkind = 'folder'\npath = '{}'\n", self.store().display())
    }

    pub(crate) fn top(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.top().join("store")
    }

    pub(crate) fn settings(&self, text: &str) {
        fs::write(self.top().join("lhc.fed/storage.toml"), text).unwrap();
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive::open(self.catalogue.clone()).unwrap()
    }

    /// A sealed database with these bytes.
    pub(crate) fn database(&self, name: &str, bytes: &[u8]) -> DatabaseId {
        let id = self.catalogue.reserve_database().unwrap();
        let path = format!("databases/{name}.root");
        fs::write(self.top().join("lhc.fed").join(&path), bytes).unwrap();
        let new = NewDatabase {
            id,
            uuid: Uuid::new_v4(),
            name: name.to_owned(),
            path,
            state: DatabaseState::Open,
        };
        let seen = self.commit(Commit { new_databases: vec![new], ..Commit::default() });
        self.commit(Commit { sealed: vec![(id, seen)], ..Commit::default() });
        id
    }

    /// The newest row of a database.
    pub(crate) fn row(&self, id: DatabaseId) -> DatabaseRow {
        self.catalogue.database_by_id(id, Csn::MAX).unwrap()
    }

    /// The row of a copy of five bytes, which was not made.
    pub(crate) fn copy(&self, database: DatabaseId, store: &str) -> ReplicaRow {
        let key = format!("{}/{database}", self.catalogue.make_archive_id().unwrap());
        ReplicaRow {
            database,
            store: store.to_owned(),
            key,
            state: ReplicaState::Complete,
            size: 5,
            checksum: "adler32:062e0220".to_owned(),
            as_of: self.catalogue.head().unwrap(),
            tape: None,
            changed_us: 0,
        }
    }

    pub(crate) fn drop_database(&self, id: DatabaseId) {
        let seen = self.catalogue.head().unwrap();
        let dropped = DroppedDatabase { id, seen, keeps_file: false };
        self.commit(Commit { dropped_databases: vec![dropped], ..Commit::default() });
    }

    fn commit(&self, commit: Commit) -> Csn {
        self.catalogue.commit(Commit { transaction: Uuid::new_v4(), ..commit }).unwrap()
    }

    /// The file of a database.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.top().join(format!("lhc.fed/databases/{name}.root"))
    }

    /// The names of the files in the folder of databases.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.top().join("lhc.fed/databases")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The objects in the store.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        let mut found = vec![];
        let mut folders = vec![self.store()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with(".femtobarn-store") {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// A watch that lets an operation continue to its end.
pub(crate) fn on() -> Box<ByteWatch<'static>> {
    Box::new(|_| true)
}
