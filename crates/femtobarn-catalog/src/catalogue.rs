//! [`Catalogue`]: the operations that the engine needs of a catalogue, on this host or at a server.
//!
//! [`LocalCatalogue`] implements it in the federation's folder; elsewhere a client of a server implements it.
//! Operations that need the folder, such as vacuum, are not part of the trait: see [`Catalogue::local`].

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
use crate::servers::{Home, ServerRow};

/// Declares the trait [`Catalogue`] and implements it for [`LocalCatalogue`], so that each signature is written once: a
/// method of the part `local` calls the method of [`LocalCatalogue`] with the same name.
macro_rules! catalogue {
    (
        $(#[$about:meta])*
        local {
            $($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $output:ty;)*
        }
        other { $($other:tt)* }
    ) => {
        $(#[$about])*
        pub trait Catalogue: Debug + Send + Sync {
            $($(#[$doc])* fn $name(&self $(, $argument: $type)*) -> $output;)*
            $($other)*
        }

        impl Catalogue for LocalCatalogue {
            $(fn $name(&self $(, $argument: $type)*) -> $output {
                LocalCatalogue::$name(self $(, $argument)*)
            })*

            fn local(&self) -> Result<&LocalCatalogue> {
                Ok(self)
            }
        }
    };
}

catalogue! {
    /// The catalogue of one federation. Look-ups with an argument `at` see the federation as of that commit.
    ///
    /// # Errors
    /// Every method can fail with [`Error::Unavailable`], [`Error::Denied`] or [`Error::Closed`] if the catalogue is
    /// a server's, and with [`Error::Io`], [`Error::Denied`], [`Error::Corrupt`] or [`Error::Closed`] if it is in a
    /// folder. The methods list the errors that they add.
    local {
        /// The identity of the federation.
        fn uuid(&self) -> Uuid;

        /// The name that the federation was created with.
        fn name(&self) -> &str;

        /// The federation's folder as an absolute path; at a server, the federation's URL.
        fn folder(&self) -> &Path;

        /// Whether this handle can only read the catalogue.
        fn is_read_only(&self) -> bool;

        /// Fails after a commit that failed in the operating system: readers see it, but it may not be durable.
        ///
        /// # Errors
        /// [`Error::Closed`] until the catalogue is opened again.
        fn check_not_failed(&self) -> Result<()>;

        /// The locks of the federation.
        fn locks(&self) -> LockTable;

        /// The newest commit; [`Csn::ZERO`] before the first one.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn head(&self) -> Result<Csn>;

        /// All databases, ordered by id.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>>;

        /// The database `name`, or `None`. Does not search for similar names.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>>;

        /// The database that has this name now, if any, and a commit not older than its row.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn find_current_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)>;

        /// The database `name`.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names.
        fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow>;

        /// The database with this id.
        ///
        /// # Errors
        /// [`Error::NotFound`].
        fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow>;

        /// The newest state of the database with this UUID, if this federation has it.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>>;

        /// The database with this UUID, if the snapshot has it.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>>;

        /// The containers of a database, ordered by id.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>>;

        /// The container `name` in a database, or `None`. Does not search for similar names.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn find_container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<Option<ContainerRow>>;

        /// The container `name` in a database.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names.
        fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow>;

        /// The container with this id.
        ///
        /// # Errors
        /// [`Error::NotFound`].
        fn container_by_id(&self, database: DatabaseId, id: ContainerId, at: Csn) -> Result<ContainerRow>;

        /// The newest state of a container, of its database and, if there is one, of its version, for a transaction
        /// that writes to it.
        ///
        /// # Errors
        /// [`Error::NotFound`].
        fn container_to_write(
            &self, database: DatabaseId, id: ContainerId
        ) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)>;

        /// A database with its containers, and a commit not newer than these. A transaction that drops the database
        /// passes that commit on, so that later changes are a conflict.
        ///
        /// # Errors
        /// [`Error::NotFound`] if it was dropped.
        fn database_to_drop(&self, id: DatabaseId) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)>;

        /// The newest version of a container, dropped or not; `None` before its first version.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn version(&self, database: DatabaseId, container: ContainerId, at: Csn) -> Result<Option<VersionRow>>;

        /// The newest version of every container that a database has in the snapshot, ordered by container.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn newest_versions(&self, database: DatabaseId, at: Csn) -> Result<Vec<VersionRow>>;

        /// All versions of a container, the oldest first.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn versions(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<VersionRow>>;

        /// All versions of all classes, ordered by name and version.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn classes(&self) -> Result<Vec<ClassRow>>;

        /// A version of a class, or its newest one.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names.
        fn class(&self, name: &str, version: Option<u32>) -> Result<ClassRow>;

        /// The databases that a container links to. A stored link holds a position in this list.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn link_targets(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<Uuid>>;

        /// The newest `limit` commits, the newest first.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn history(&self, limit: u64) -> Result<Vec<CommitRow>>;

        /// The commit with this sequence number.
        ///
        /// # Errors
        /// [`Error::NotFound`].
        fn commit_by_csn(&self, csn: Csn) -> Result<CommitRow>;

        /// The commit of a transaction, if it made one, for a client that lost the answer. Searches only commits after
        /// `after`.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`]; [`Error::Unavailable`] if it is not known, because the catalogue is read
        /// at a standby of PostgreSQL, which may lack commits.
        fn find_commit(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>>;

        /// The newest commit made at or before `time_us`, in microseconds since 1970; 0 if there is none.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn snapshot_at_time(&self, time_us: i64) -> Result<Csn>;

        /// Pins the snapshot of a commit: vacuum keeps it while the guard lives.
        ///
        /// # Errors
        /// [`Error::NotFound`] if the snapshot no longer exists.
        fn pin(&self, at: Csn) -> Result<PinGuard>;

        /// Pins the newest snapshot.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn pin_head(&self) -> Result<(Csn, PinGuard)>;

        /// Publishes `commit` as a whole or not at all. When this returns, it is durable.
        ///
        /// # Errors
        /// [`Error::Conflict`] or [`Error::Changed`] if another transaction committed first; [`Error::Exists`] if a
        /// name is taken; [`Error::Invalid`] if the commit contradicts itself; [`Error::Closed`] if a database takes
        /// no changes; [`Error::Full`] if the disk is full; [`Error::Io`] if it is not known whether the commit is
        /// durable.
        fn commit(&self, commit: Commit) -> Result<Csn>;

        /// The largest size in bytes of [`Commit::writes`]; 0 if a commit must have none.
        fn log_room(&self) -> usize;

        /// Whether [`Commit::writes`] may have the first bytes of a new database's file.
        fn logs_new_files(&self) -> bool;

        /// `count` new database ids, at the cost of one.
        ///
        /// # Errors
        /// [`Error::Invalid`] if the federation has used up its ids.
        fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>>;

        /// `count` new container ids, at the cost of one.
        ///
        /// # Errors
        /// [`Error::Invalid`] if the federation has used up its ids.
        fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>>;

        /// Takes the smallest released range of at least `size_min` bytes, which the caller owns from then on; `None`
        /// if there is none.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn take_free_extent(&self, database: DatabaseId, size_min: u64) -> Result<Option<BlobRange>>;

        /// Gives back the unused part of a range that was taken.
        ///
        /// # Errors
        /// [`Error::Invalid`] if it overlaps a free range.
        fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()>;

        /// Names the snapshot of a commit, which vacuum keeps until the tag is dropped.
        ///
        /// # Errors
        /// [`Error::Exists`] if the name is taken; [`Error::NotFound`] if there is no such commit, or its snapshot no
        /// longer exists.
        fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow>;

        /// Drops a tag. The next vacuum may remove its snapshot.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names.
        fn drop_tag(&self, name: &str) -> Result<()>;

        /// The tag `name`.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names.
        fn tag(&self, name: &str) -> Result<TagRow>;

        /// All tags, ordered by commit.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn tags(&self) -> Result<Vec<TagRow>>;

        /// The servers of the federation, ordered by name; empty unless the federation has several servers.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn servers(&self) -> Result<Vec<ServerRow>>;

        /// The server in whose folder the file of a database is; `None` if the federation has no servers. For a new
        /// database, which has no row yet, a server answers with the home that the database will get.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn home(&self, database: DatabaseId) -> Result<Option<Home>>;

        /// Sets whether a server stops getting databases. The databases that it has stay until they are moved.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names, also for a server that has left.
        fn drain(&self, server: &str, is_draining: bool) -> Result<()>;

        /// The snapshots that vacuum keeps besides the tagged and pinned ones; all, unless retention was set.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn retention(&self) -> Result<Retention>;

        /// Sets the snapshots that vacuum keeps besides the tagged and pinned ones.
        ///
        /// # Errors
        /// [`Error::Invalid`] if it keeps 0 commits.
        fn set_retention(&self, retention: Retention) -> Result<()>;
    }
    other {
        /// The catalogue itself if the federation's folder is on this host, for operations that need the folder.
        ///
        /// # Errors
        /// [`Error::Unsupported`] with the server to run the operation on.
        fn local(&self) -> Result<&LocalCatalogue>;

        /// Whether the catalogue's server has this client's session and has not closed its connection; always true
        /// without a server. Does not detect a server that merely stopped answering.
        fn is_reachable(&self) -> bool {
            true
        }

        /// Prepares for closing the federation: from now on calls and locks wait at most two seconds for a lost server
        /// that does not answer, whatever the client's patience.
        fn begin_close(&self) {}

        /// The id of this client's session with the catalogue's server; `None` without a server. The file server
        /// admits writes only for the session that holds the database. A client that knows the id can take the
        /// session over, so it is a secret.
        fn session(&self) -> Option<Uuid> {
            None
        }

        /// The URL of the federation at the server that has this client's session now, if the federation has several
        /// servers, so that another server may have the session later; otherwise `None`.
        fn entry_url(&self) -> Option<String> {
            None
        }

        /// The name of the server at which this client has locked a database, if the federation has several.
        fn server_of(&self, _database: DatabaseId) -> Option<String> {
            None
        }

        /// Pins the newest snapshot, for a reader of these containers. A server sends their rows with the pin, so that
        /// look-ups of them as of that commit need no further call; returns the rows of databases that it sent.
        ///
        /// # Errors
        /// The common errors of [`Catalogue`].
        fn pin_head_to_read(
            &self, _containers: &[(DatabaseId, ContainerId)]
        ) -> Result<(Csn, PinGuard, Vec<DatabaseRow>)> {
            let (csn, pin) = self.pin_head()?;
            Ok((csn, pin, vec![]))
        }

        /// Extends a database's file by a key with `payload` bytes behind it, and returns the range of these bytes.
        /// `path` is that of the database's row, which need not be committed yet.
        ///
        /// Only a server can do this: a client can lose its allocation lock with the connection, and if clients
        /// extended the file themselves, two writers could then take the same bytes.
        ///
        /// # Errors
        /// [`Error::Full`] if the disk is full; [`Error::Unsupported`] without a server.
        fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange> {
            let what =
                format!("{payload} bytes of {path}, database {database}, are taken from its file");
            Err(Error::Unsupported { what })
        }

        /// Moves a database to the server `to` while it is read; writers wait for a moment at the end. Returns the
        /// number of bytes copied so far; call it repeatedly until it returns `None`, when the move is done.
        ///
        /// # Errors
        /// [`Error::NotFound`] with similar names of servers; [`Error::Busy`] if transactions hold the database for too
        /// long; [`Error::Unsupported`] without a server, and for an attached file.
        fn move_database(&self, database: DatabaseId, to: &str) -> Result<Option<u64>> {
            let what = format!(
                "database {database} moves to {to} if a server of the federation is asked: open the federation there"
            );
            Err(Error::Unsupported { what })
        }

        /// A new database id.
        ///
        /// # Errors
        /// As [`Catalogue::reserve_databases`].
        fn reserve_database(&self) -> Result<DatabaseId> {
            let reserved = self.reserve_databases(1)?;
            Ok(*reserved.first().expect("one id was reserved"))
        }

        /// A new container id.
        ///
        /// # Errors
        /// As [`Catalogue::reserve_containers`].
        fn reserve_container(&self) -> Result<ContainerId> {
            let reserved = self.reserve_containers(1)?;
            Ok(*reserved.first().expect("one id was reserved"))
        }
    }
}
