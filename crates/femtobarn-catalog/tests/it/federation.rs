//! A federation with one database, for tests to begin with.

use std::path::{Path, PathBuf};

use femtobarn_catalog::{
    BlobRange, Commit, ContainerId, Csn, DatabaseId, DatabaseState, EnvelopeRange, LocalCatalogue,
    NewContainer, NewDatabase, NewVersion, Result,
};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct Federation {
    pub catalog: LocalCatalogue,
    pub database: DatabaseId,
    pub folder: PathBuf,
    pub keep: TempDir,
}

/// The variable with the URL of a database in PostgreSQL, where the catalogues of all tests are if it is set.
pub(crate) const CATALOGUE_URL: &str = "FEMTOBARN_TEST_CATALOGUE";

/// A new catalogue for tests that hold for all kinds.
pub(crate) fn create(folder: &Path) -> LocalCatalogue {
    match std::env::var(CATALOGUE_URL) {
        Ok(url) => LocalCatalogue::create_in_postgres(folder, "lhc", &url).unwrap(),
        Err(_) => LocalCatalogue::create(folder, "lhc").unwrap(),
    }
}

impl Federation {
    /// A federation with the empty open database `run7`.
    pub(crate) fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let folder = keep.path().join("lhc.fed");
        let catalog = create(&folder);
        let database = new_database(&catalog, "run7", DatabaseState::Open).unwrap();
        Federation { catalog, database, folder, keep }
    }

    pub(crate) fn container(&self, name: &str) -> ContainerId {
        new_container(&self.catalog, self.database, name).unwrap()
    }

    /// Commits a version with this number of entries.
    pub(crate) fn publish(
        &self,
        container: ContainerId,
        base: Option<Csn>,
        entries: u64,
    ) -> Result<Csn> {
        let versions = vec![version(self.database, container, base, entries)];
        let transaction = Uuid::new_v4();
        self.catalog.commit(Commit { transaction, versions, ..Commit::default() })
    }

    pub(crate) fn entries(&self, container: ContainerId, at: Csn) -> Option<u64> {
        let version = self.catalog.version(self.database, container, at).unwrap();
        version.map(|version| version.entries)
    }
}

pub(crate) fn database(catalog: &LocalCatalogue, name: &str, state: DatabaseState) -> NewDatabase {
    NewDatabase {
        id: catalog.reserve_database().unwrap(),
        uuid: Uuid::new_v4(),
        name: name.into(),
        path: format!("databases/{name}.root"),
        state,
    }
}

pub(crate) fn new_database(
    catalog: &LocalCatalogue,
    name: &str,
    state: DatabaseState,
) -> Result<DatabaseId> {
    let new = database(catalog, name, state);
    let id = new.id;
    catalog.commit(Commit { new_databases: vec![new], ..Commit::default() })?;
    Ok(id)
}

pub(crate) fn container(
    catalog: &LocalCatalogue,
    database: DatabaseId,
    name: &str,
) -> NewContainer {
    NewContainer {
        database,
        id: catalog.reserve_container().unwrap(),
        name: name.into(),
        class: "Event".into(),
        class_version: 1,
        options: "{}".into(),
    }
}

pub(crate) fn new_container(
    catalog: &LocalCatalogue,
    database: DatabaseId,
    name: &str,
) -> Result<ContainerId> {
    let new = container(catalog, database, name);
    let id = new.id;
    catalog.commit(Commit { new_containers: vec![new], ..Commit::default() })?;
    Ok(id)
}

pub(crate) fn version(
    database: DatabaseId,
    container: ContainerId,
    base: Option<Csn>,
    entries: u64,
) -> NewVersion {
    NewVersion {
        database,
        container,
        base,
        header: EnvelopeRange { offset: 100, size: 200, length: 300 },
        footer: EnvelopeRange { offset: 1 << 40, size: entries, length: entries * 2 },
        annex: BlobRange::default(),
        record: BlobRange::default(),
        class_version: 1,
        entries,
        deleted: 0,
        bytes: entries * 8,
    }
}

/// Copies every file of a folder, as a backup or a medium would hold it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
