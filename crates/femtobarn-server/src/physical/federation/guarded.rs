//! Write access to the files of databases: the authority that grants it, and a file that checks it.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use femtobarn_catalog::{Csn, DatabaseId};
use uuid::Uuid;

use crate::physical::{Metadata, Opaque, StoragePath, StorageResult, StoredFile};

/// The authority that lets sessions write to the files of databases.
pub trait Writers: Send + Sync + 'static {
    /// Lets a session write to a database for as long as it holds the database's lock.
    ///
    /// # Errors
    /// [`StorageError::Refused`](crate::physical::StorageError::Refused) with `ENOLCK` if the session does not hold the
    /// database; [`StorageError::NotBefore`](crate::physical::StorageError::NotBefore) if it may still claim it.
    fn admit(&self, session: Option<Uuid>, database: DatabaseId) -> StorageResult<Arc<dyn Permit>>;

    /// Records that a session that may write to an uncommitted database created a file for it.
    fn file_created(&self, path: &StoragePath, database: DatabaseId);

    /// Notes that a file of an uncommitted database was removed.
    fn file_removed(&self, path: &StoragePath);

    /// Whether files of databases may be at other servers.
    fn has_others(&self) -> bool;

    /// Redirects a client that wants the file of a database at another server.
    ///
    /// # Errors
    /// [`StorageError::Elsewhere`](crate::physical::StorageError::Elsewhere) with that server; `EHOSTUNREACH` if that
    /// is offline.
    fn redirect(&self, database: DatabaseId, opaque: Opaque<'_>) -> StorageResult<()>;

    /// The databases whose files are on disks of other servers; and, if `are_asked`, the servers' metadata of the files
    /// in a snapshot.
    ///
    /// # Errors
    /// The errors of the catalogue. A server that does not answer is left out.
    fn files_elsewhere(&self, at: Csn, are_asked: bool) -> StorageResult<FilesElsewhere>;

    /// The uncommitted database that a file was created for.
    fn uncommitted_database(&self, path: &StoragePath) -> Option<DatabaseId>;
}

/// Databases whose files are on disks of other servers.
#[derive(Debug, Default)]
pub struct FilesElsewhere {
    /// All these databases.
    pub databases: HashSet<DatabaseId>,
    /// The metadata of their files, by their names in the federation's folder, as far as known.
    pub metadata: HashMap<Vec<u8>, Metadata>,
}

/// A right to write that can be revoked.
pub trait Permit: Send + Sync + 'static {
    /// Calls `write` unless the right was revoked. It is not revoked during the call.
    ///
    /// # Errors
    /// `ENOLCK` if the right was revoked; those of `write`.
    fn during(&self, write: &mut dyn FnMut() -> StorageResult<()>) -> StorageResult<()>;
}

/// A file that is changed only while its writer holds the database.
pub(super) struct GuardedFile {
    pub file: Arc<dyn StoredFile>,
    pub permit: Arc<dyn Permit>,
}

impl StoredFile for GuardedFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        self.file.metadata()
    }

    fn identity(&self) -> StorageResult<u64> {
        self.file.identity()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        self.file.read_at(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        self.file.try_read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        self.permit.during(&mut || self.file.write_at(offset, bytes))
    }

    fn sync(&self) -> StorageResult<()> {
        self.permit.during(&mut || self.file.sync())
    }

    fn truncate(&self, size: u64) -> StorageResult<()> {
        self.permit.during(&mut || self.file.truncate(size))
    }

    fn will_need(&self, offset: u64, size: u64) {
        self.file.will_need(offset, size);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// A later writer may still hold the database when this one does not.
    fn can_be_shared(&self) -> bool {
        false
    }

    fn can_be_reopened(&self) -> bool {
        self.file.can_be_reopened()
    }
}
