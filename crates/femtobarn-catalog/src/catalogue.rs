//! What the engine needs of a catalogue, wherever that is.
//!
//! [`LocalCatalogue`] is the one whose folder is here; a server's is reached through a client. What makes sense
//! only where the folder is, such as vacuum, stays with [`LocalCatalogue`]: see [`Catalogue::local`].

use std::fmt::Debug;
use std::path::Path;

use uuid::Uuid;

use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::local::LocalCatalogue;
use crate::locks::{LockTable, PinGuard};
use crate::rows::{
    BlobRange, ClassRow, CommitRow, ContainerRow, DatabaseRow, Retention, TagRow, VersionRow,
};

/// The catalogue of one federation. Look-ups that take `at` see the federation as of that commit.
pub trait Catalogue: Debug + Send + Sync {
    /// The identity of the federation.
    fn uuid(&self) -> Uuid;

    /// The name that the federation was created with.
    fn name(&self) -> &str;

    /// Where the federation is: its folder as an absolute path, or its URL as if it were one.
    fn folder(&self) -> &Path;

    /// Whether the catalogue cannot be written from here.
    fn is_read_only(&self) -> bool;

    /// Whether who keeps the catalogue can be asked now, as far as is known.
    fn is_reachable(&self) -> bool {
        true
    }

    /// Names the session at who keeps the catalogue to who has the files, which are written only by
    /// sessions that hold their database; none where both are here. Who knows the name can take the session over.
    fn session(&self) -> Option<Uuid> {
        None
    }

    /// Refuses to go on after a commit that failed halfway: it can be seen, and may not be durable.
    ///
    /// # Errors
    /// [`Error::Closed`] if the catalogue must be opened again.
    fn check_not_failed(&self) -> Result<()>;

    /// The catalogue itself, for what makes sense only where the federation's folder is.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if that is not here, with where to go.
    fn local(&self) -> Result<&LocalCatalogue>;

    /// The locks of the federation.
    fn locks(&self) -> LockTable;

    /// The newest commit; [`Csn::ZERO`] before the first one.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn head(&self) -> Result<Csn>;

    /// All databases, in the order of their ids.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>>;

    /// The database called `name`; none if there is none, without looking for names that are like it.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>>;

    /// What is called `name` now, if anything is, without looking for names that are like it, and a commit
    /// that was not older than what was found.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn look_for_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)>;

    /// The database called `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow>;

    /// The database with this id.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow>;

    /// The database with this identity, if it is in this federation; in its newest state.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>>;

    /// The database with this identity, if it was in this federation then.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>>;

    /// The containers of a database, in the order of their ids.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>>;

    /// The container called `name` in a database; none if there is none, without looking for names
    /// that are like it.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn find_container(
        &self,
        database: DatabaseId,
        name: &str,
        at: Csn,
    ) -> Result<Option<ContainerRow>>;

    /// The container called `name` in a database.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow>;

    /// The container with this id.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn container_by_id(
        &self,
        database: DatabaseId,
        id: ContainerId,
        at: Csn,
    ) -> Result<ContainerRow>;

    /// A container with its database and its newest version, for who goes on from it.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn container_to_write(
        &self,
        database: DatabaseId,
        id: ContainerId,
    ) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)>;

    /// A database with its containers, for who drops it: what changed since the commit that comes with them
    /// is refused when that is committed.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was dropped.
    fn database_to_drop(&self, id: DatabaseId) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)>;

    /// The newest version of a container, dropped or not; none if nothing was committed to it yet.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn version(
        &self,
        database: DatabaseId,
        container: ContainerId,
        at: Csn,
    ) -> Result<Option<VersionRow>>;

    /// The newest version of every container of a database that there was then, in the order of their
    /// ids.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn newest_versions(&self, database: DatabaseId, at: Csn) -> Result<Vec<VersionRow>>;

    /// All versions of a container, the oldest first.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn versions(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<VersionRow>>;

    /// All versions of all classes, by name and version.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn classes(&self) -> Result<Vec<ClassRow>>;

    /// A class, in its newest version unless another one is asked for.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn class(&self, name: &str, version: Option<u32>) -> Result<ClassRow>;

    /// The databases that a container links to; a stored link holds a position in this list.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn link_targets(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<Uuid>>;

    /// The newest commits, the newest first.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn history(&self, limit: u64) -> Result<Vec<CommitRow>>;

    /// The commit with this sequence number.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn commit_by_csn(&self, csn: Csn) -> Result<CommitRow>;

    /// Whether a transaction committed, and as what, for when its answer was lost. Only commits after
    /// `after` are searched.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn find_commit(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>>;

    /// The newest commit that was made no later than `time_us`, in microseconds since 1970.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn snapshot_at_time(&self, time_us: i64) -> Result<Csn>;

    /// Pins the snapshot of a commit, so that vacuum keeps it while the guard lives.
    ///
    /// # Errors
    /// [`Error::NotFound`] if its snapshot was given up.
    fn pin(&self, at: Csn) -> Result<PinGuard>;

    /// Pins the newest snapshot.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn pin_head(&self) -> Result<(Csn, PinGuard)>;

    /// Publishes everything in `commit`, or nothing. When this returns, it is durable.
    ///
    /// # Errors
    /// [`Error::Conflict`] or [`Error::Changed`] if somebody else was first; [`Error::Exists`] if a
    /// name is taken.
    fn commit(&self, commit: Commit) -> Result<Csn>;

    /// `count` database ids that nobody had before, at the price of one.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>>;

    /// `count` container ids that nobody had before, at the price of one.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>>;

    /// Takes the smallest free range of at least `size_min` bytes, which nobody else then gets.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn take_free_extent(&self, database: DatabaseId, size_min: u64) -> Result<Option<BlobRange>>;

    /// Extends a database's file by a key with so many bytes behind it, and returns where these are. The
    /// path is that of the database's row, which may not be committed yet.
    ///
    /// Only where the files are elsewhere: a lock that is lost with a connection cannot make two writers
    /// take the same bytes if who has the file gives them out.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is; [`Error::Unsupported`] where the files are.
    fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange> {
        let what =
            format!("{payload} bytes of {path}, database {database}, are taken from its file");
        Err(Error::Unsupported { what })
    }

    /// Gives back what its taker did not use of a free range.
    ///
    /// # Errors
    /// [`Error::Invalid`] if some of it is free already.
    fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()>;

    /// Gives the snapshot of a commit a name, which holds it until the tag is dropped.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::NotFound`] if there is no such commit, or its
    /// snapshot was given up.
    fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow>;

    /// Takes a tag away. Its snapshot may go with the next vacuum.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn drop_tag(&self, name: &str) -> Result<()>;

    /// The tag called `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`], with names that are like it.
    fn tag(&self, name: &str) -> Result<TagRow>;

    /// All tags, in the order of their commits.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn tags(&self) -> Result<Vec<TagRow>>;

    /// What vacuum keeps besides tags and pins; everything unless it was set.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn retention(&self) -> Result<Retention>;

    /// Sets what vacuum keeps besides tags and pins.
    ///
    /// # Errors
    /// [`Error::Invalid`] if not even the newest commit were kept.
    fn set_retention(&self, retention: Retention) -> Result<()>;

    /// A database id that nobody had before.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn reserve_database(&self) -> Result<DatabaseId> {
        let reserved = self.reserve_databases(1)?;
        Ok(*reserved.first().expect("as many were reserved as were asked for"))
    }

    /// A container id that nobody had before.
    ///
    /// # Errors
    /// As whoever keeps the catalogue.
    fn reserve_container(&self) -> Result<ContainerId> {
        let reserved = self.reserve_containers(1)?;
        Ok(*reserved.first().expect("as many were reserved as were asked for"))
    }
}

/// Each method has one of the same name.
macro_rules! forward {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $output:ty)?;)*) => {
        $(fn $name(&self $(, $argument: $type)*) $(-> $output)? {
            LocalCatalogue::$name(self $(, $argument)*)
        })*
    };
}

impl Catalogue for LocalCatalogue {
    fn local(&self) -> Result<&LocalCatalogue> {
        Ok(self)
    }

    forward! {
        fn uuid(&self) -> Uuid;
        fn name(&self) -> &str;
        fn folder(&self) -> &Path;
        fn is_read_only(&self) -> bool;
        fn check_not_failed(&self) -> Result<()>;
        fn locks(&self) -> LockTable;
        fn head(&self) -> Result<Csn>;
        fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>>;
        fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>>;
        fn look_for_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)>;
        fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow>;
        fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow>;
        fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>>;
        fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>>;
        fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>>;
        fn find_container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<Option<ContainerRow>>;
        fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow>;
        fn container_by_id(&self, database: DatabaseId, id: ContainerId, at: Csn) -> Result<ContainerRow>;
        fn container_to_write(&self, database: DatabaseId, id: ContainerId) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)>;
        fn database_to_drop(&self, id: DatabaseId) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)>;
        fn version(&self, database: DatabaseId, container: ContainerId, at: Csn) -> Result<Option<VersionRow>>;
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
        fn commit(&self, commit: Commit) -> Result<Csn>;
        fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>>;
        fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>>;
        fn take_free_extent(&self, database: DatabaseId, size_min: u64) -> Result<Option<BlobRange>>;
        fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()>;
        fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow>;
        fn drop_tag(&self, name: &str) -> Result<()>;
        fn tag(&self, name: &str) -> Result<TagRow>;
        fn tags(&self) -> Result<Vec<TagRow>>;
        fn retention(&self) -> Result<Retention>;
        fn set_retention(&self, retention: Retention) -> Result<()>;
    }
}
