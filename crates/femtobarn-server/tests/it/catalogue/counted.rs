//! The calls that the engine sends to a remote catalogue.

use std::path::Path;
use std::sync::{Arc, Mutex};

use femtobarn::{ContainerOptions, Federation, OpenOptions, TransactionOptions};
use femtobarn_catalog::{
    BlobRange, Catalogue, ClassRow, Commit, CommitRow, ContainerId, ContainerRow, Csn, DatabaseId,
    DatabaseRow, Home, LocalCatalogue, LockTable, PinGuard, Result, Retention, ServerRow, TagRow,
    VersionRow,
};
use femtobarn_rpc::client::RemoteCatalogue;
use femtobarn_server::Server;
use uuid::Uuid;

use super::connect;
use super::engine::{class, config, events};

/// A catalogue that records the names of calls, except those about locks.
#[derive(Debug)]
pub(super) struct Counted {
    catalogue: RemoteCatalogue,
    asked: Mutex<Vec<&'static str>>,
}

/// Methods that record their name and call the same method of the catalogue.
macro_rules! recorded {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $output:ty)?;)*) => {
        $(fn $name(&self $(, $argument: $type)*) $(-> $output)? {
            self.asked.lock().unwrap().push(stringify!($name));
            self.catalogue.$name($($argument),*)
        })*
    };
}

/// Methods that are not recorded, since they do not call the server.
macro_rules! forward {
    ($(fn $name:ident(&self) $(-> $output:ty)?;)*) => {
        $(fn $name(&self) $(-> $output)? {
            self.catalogue.$name()
        })*
    };
}

impl Catalogue for Counted {
    forward! {
        fn uuid(&self) -> Uuid;
        fn name(&self) -> &str;
        fn folder(&self) -> &Path;
        fn is_read_only(&self) -> bool;
        fn check_not_failed(&self) -> Result<()>;
        fn log_room(&self) -> usize;
        fn logs_new_files(&self) -> bool;
        fn locks(&self) -> LockTable;
        fn session(&self) -> Option<Uuid>;
        fn local(&self) -> Result<&LocalCatalogue>;
    }

    recorded! {
        fn head(&self) -> Result<Csn>;
        fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>>;
        fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>>;
        fn find_current_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)>;
        fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow>;
        fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow>;
        fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>>;
        fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>>;
        fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>>;
        fn find_container(
            &self,
            database: DatabaseId,
            name: &str,
            at: Csn
        ) -> Result<Option<ContainerRow>>;
        fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow>;
        fn container_by_id(
            &self,
            database: DatabaseId,
            id: ContainerId,
            at: Csn
        ) -> Result<ContainerRow>;
        fn container_to_write(
            &self,
            database: DatabaseId,
            id: ContainerId
        ) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)>;
        fn database_to_drop(&self, id: DatabaseId) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)>;
        fn version(
            &self,
            database: DatabaseId,
            container: ContainerId,
            at: Csn
        ) -> Result<Option<VersionRow>>;
        fn newest_versions(&self, database: DatabaseId, at: Csn) -> Result<Vec<VersionRow>>;
        fn versions(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<VersionRow>>;
        fn classes(&self) -> Result<Vec<ClassRow>>;
        fn class(&self, name: &str, version: Option<u32>) -> Result<ClassRow>;
        fn link_targets(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<Uuid>>;
        fn history(&self, limit: u64) -> Result<Vec<CommitRow>>;
        fn commit_by_csn(&self, csn: Csn) -> Result<CommitRow>;
        fn find_commit(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>>;
        fn snapshot_at_time(&self, time_us: i64) -> Result<Csn>;
        fn pin(&self, at: Csn) -> Result<PinGuard>;
        fn pin_head(&self) -> Result<(Csn, PinGuard)>;
        fn pin_head_to_read(
            &self,
            containers: &[(DatabaseId, ContainerId)]
        ) -> Result<(Csn, PinGuard, Vec<DatabaseRow>)>;
        fn commit(&self, commit: Commit) -> Result<Csn>;
        fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>>;
        fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>>;
        fn take_free_extent(&self, database: DatabaseId, size_min: u64) -> Result<Option<BlobRange>>;
        fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()>;
        fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow>;
        fn drop_tag(&self, name: &str) -> Result<()>;
        fn tag(&self, name: &str) -> Result<TagRow>;
        fn tags(&self) -> Result<Vec<TagRow>>;
        fn servers(&self) -> Result<Vec<ServerRow>>;
        fn home(&self, database: DatabaseId) -> Result<Option<Home>>;
        fn drain(&self, server: &str, is_draining: bool) -> Result<()>;
        fn retention(&self) -> Result<Retention>;
        fn set_retention(&self, retention: Retention) -> Result<()>;
        fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange>;
    }
}

impl Counted {
    /// The engine at a server, and the catalogue that records its calls.
    pub(super) fn at(url: &str) -> (Arc<Self>, Federation) {
        let catalogue =
            Arc::new(Counted { catalogue: connect(url).unwrap(), asked: Mutex::default() });
        let options = OpenOptions { threads: 1, ..OpenOptions::default() };
        let federation = Federation::over_server(catalogue.clone(), url, options).unwrap();
        (catalogue, federation)
    }

    /// The names of the calls since the last time.
    pub(super) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[test]
fn databases_are_created_and_dropped_in_few_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    drop(Federation::create(&place, "test").unwrap());
    let server = Server::start(config(&place, 0)).unwrap();
    let url = format!("root://127.0.0.1:{}//test.fed", server.address().port());
    let (catalogue, federation) = Counted::at(&url);
    let begin = || federation.transaction(TransactionOptions::default()).unwrap();
    let make = |name: &str| {
        let mut transaction = begin();
        let database = transaction.database_or_new(name, None).unwrap();
        let options = ContainerOptions::default();
        let key = transaction.create_container(database, "events", &class(), options).unwrap();
        transaction.extend(key, events(0..10)).unwrap();
        transaction.commit().unwrap();
        catalogue.take()
    };
    let end = |name: &str| {
        let mut transaction = begin();
        transaction.database(name).unwrap();
        transaction.drop_database(name).unwrap();
        transaction.commit().unwrap();
        catalogue.take()
    };
    // Some transactions also reserve numbers, or repeat look-ups that took long.
    let pairs: Vec<_> = (0..20)
        .map(|number| {
            let name = format!("run{number}");
            (make(&name), end(&name))
        })
        .collect();
    let (made, ended): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let few = ["class", "find_current_database", "extend_file", "commit"];
    assert!(made.iter().any(|asked| asked.len() <= few.len()), "{made:?}");
    let few = ["database", "database_to_drop", "commit"];
    assert!(ended.iter().any(|asked| *asked == few), "{ended:?}");
    assert!(federation.history(100).unwrap().len() >= 40);
    assert_eq!(federation.snapshot(None).unwrap().databases().unwrap().len(), 0);
}

#[test]
fn drop_by_name_drops_the_database_that_has_the_name_now() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("test.fed");
    let local = Federation::create(&place, "test").unwrap();
    let server = Server::start(config(&place, 0)).unwrap();
    let remote = super::engine::open(server.address().port());
    for name in ["run7", "run8"] {
        let mut transaction = local.transaction(TransactionOptions::default()).unwrap();
        transaction.create_database(name).unwrap();
        transaction.commit().unwrap();
    }
    let mut dropper = remote.transaction(TransactionOptions::default()).unwrap();
    let run7 = dropper.database("run7").unwrap();
    let mut other = local.transaction(TransactionOptions::default()).unwrap();
    other.rename_database("run7", "old").unwrap();
    other.rename_database("run8", "run7").unwrap();
    other.commit().unwrap();
    dropper.drop_database("run7").unwrap();
    dropper.commit().unwrap();
    let left = local.snapshot(None).unwrap().databases().unwrap();
    let left: Vec<_> = left.iter().map(|row| (row.id, row.name.as_str())).collect();
    assert_eq!(left, [(run7, "old")]);
}
