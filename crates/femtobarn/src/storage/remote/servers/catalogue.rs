//! The catalogue of a federation at several servers, read-only: each question goes to a server that has reached its
//! commit.

use std::path::Path;
use std::sync::Arc;

use femtobarn_catalog::{
    BlobRange, Catalogue, ClassRow, Commit, CommitRow, ContainerId, ContainerRow, Csn, DatabaseId,
    DatabaseRow, Error, Home, LocalCatalogue, LockTable, PinGuard, Result, Retention, ServerRow,
    TagRow, VersionRow,
};
use uuid::Uuid;

use super::group::ServerGroup;

/// The catalogue of several servers.
#[derive(Debug)]
pub(crate) struct CopiedCatalogue {
    pub(crate) group: Arc<ServerGroup>,
}

/// Methods that ask one server, which has reached the commit after `as of`.
macro_rules! asked {
    ($(fn $name:ident($($argument:ident: $type:ty),*) as of $at:expr, -> $output:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> Result<$output> {
            self.group.ask($at, None, |chosen| chosen.connection.catalogue.$name($($argument),*))
        })*
    };
}

/// Methods that change something.
macro_rules! refused {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> Result<$output> {
            Err(self.group.read_only())
        })*
    };
}

impl Catalogue for CopiedCatalogue {
    fn uuid(&self) -> Uuid {
        self.group.uuid
    }

    fn name(&self) -> &str {
        &self.group.name
    }

    fn folder(&self) -> &Path {
        &self.group.urls
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn is_reachable(&self) -> bool {
        self.group.is_reachable()
    }

    fn check_not_failed(&self) -> Result<()> {
        Ok(())
    }

    fn log_room(&self) -> usize {
        0
    }

    fn logs_new_files(&self) -> bool {
        false
    }

    fn begin_close(&self) {
        let connections = self.group.members.iter().filter_map(|member| member.connection());
        connections.for_each(|connection| connection.catalogue.begin_close());
    }

    fn local(&self) -> Result<&LocalCatalogue> {
        let urls = self.group.urls.display();
        let what = format!("this needs the federation's folder: run it on a server of {urls}");
        Err(Error::Unsupported { what })
    }

    fn locks(&self) -> LockTable {
        LockTable::on_lease(self.group.clone())
    }

    fn head(&self) -> Result<Csn> {
        self.group.ask(Csn::MAX, None, |chosen| {
            let head = chosen.connection.catalogue.head()?;
            chosen.member.observe_head(head);
            Ok(head)
        })
    }

    fn pin(&self, at: Csn) -> Result<PinGuard> {
        self.group.pin(at)
    }

    fn pin_head(&self) -> Result<(Csn, PinGuard)> {
        let head = self.head()?;
        Ok((head, self.group.pin(head)?))
    }

    asked! {
        fn databases(at: Csn) as of at, -> Vec<DatabaseRow>;
        fn find_database(name: &str, at: Csn) as of at, -> Option<DatabaseRow>;
        fn find_current_database(name: &str) as of Csn::MAX, -> (Option<DatabaseRow>, Csn);
        fn database(name: &str, at: Csn) as of at, -> DatabaseRow;
        fn database_by_id(id: DatabaseId, at: Csn) as of at, -> DatabaseRow;
        fn database_by_uuid(uuid: Uuid) as of Csn::MAX, -> Option<DatabaseRow>;
        fn database_by_uuid_at(uuid: Uuid, at: Csn) as of at, -> Option<DatabaseRow>;
        fn containers(database: DatabaseId, at: Csn) as of at, -> Vec<ContainerRow>;
        fn find_container(database: DatabaseId, name: &str, at: Csn) as of at, -> Option<ContainerRow>;
        fn container(database: DatabaseId, name: &str, at: Csn) as of at, -> ContainerRow;
        fn container_by_id(database: DatabaseId, id: ContainerId, at: Csn) as of at, -> ContainerRow;
        fn version(
            database: DatabaseId, container: ContainerId, at: Csn
        ) as of at, -> Option<VersionRow>;
        fn newest_versions(database: DatabaseId, at: Csn) as of at, -> Vec<VersionRow>;
        fn versions(database: DatabaseId, container: ContainerId) as of Csn::MAX, -> Vec<VersionRow>;
        fn classes() as of Csn::MAX, -> Vec<ClassRow>;
        fn class(name: &str, version: Option<u32>) as of Csn::MAX, -> ClassRow;
        fn link_targets(database: DatabaseId, container: ContainerId) as of Csn::MAX, -> Vec<Uuid>;
        fn history(limit: u64) as of Csn::MAX, -> Vec<CommitRow>;
        fn commit_by_csn(csn: Csn) as of csn, -> CommitRow;
        fn find_commit(transaction: Uuid, after: Csn) as of Csn::MAX, -> Option<Csn>;
        fn snapshot_at_time(time_us: i64) as of Csn::MAX, -> Csn;
        fn tag(name: &str) as of Csn::MAX, -> TagRow;
        fn tags() as of Csn::MAX, -> Vec<TagRow>;
        fn servers() as of Csn::MAX, -> Vec<ServerRow>;
        fn home(database: DatabaseId) as of Csn::MAX, -> Option<Home>;
        fn retention() as of Csn::MAX, -> Retention;
    }

    refused! {
        fn container_to_write(
            _database: DatabaseId, _id: ContainerId
        ) -> (DatabaseRow, ContainerRow, Option<VersionRow>);
        fn database_to_drop(_id: DatabaseId) -> (Csn, DatabaseRow, Vec<ContainerRow>);
        fn commit(_commit: Commit) -> Csn;
        fn reserve_databases(_count: u32) -> Vec<DatabaseId>;
        fn reserve_containers(_count: u32) -> Vec<ContainerId>;
        fn take_free_extent(_database: DatabaseId, _size_min: u64) -> Option<BlobRange>;
        fn give_free_extent(_database: DatabaseId, _range: BlobRange) -> ();
        fn create_tag(_name: &str, _csn: Csn, _message: &str) -> TagRow;
        fn drop_tag(_name: &str) -> ();
        fn drain(_server: &str, _is_draining: bool) -> ();
        fn set_retention(_retention: Retention) -> ();
    }
}
