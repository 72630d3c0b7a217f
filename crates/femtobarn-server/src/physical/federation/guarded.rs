//! Who may write to the files of databases, and a file that only these write to.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use femtobarn_catalog::DatabaseId;
use uuid::Uuid;

use crate::physical::{Metadata, StoragePath, StorageResult, StoredFile};

/// Who may write to the files of databases.
pub trait Writers: Send + Sync + 'static {
    /// Lets a session write to a database for as long as it holds it.
    ///
    /// # Errors
    /// `ENOLCK` if it does not hold it; not before some time has passed if it may yet.
    fn admit(&self, session: Option<Uuid>, database: DatabaseId) -> StorageResult<Arc<dyn Permit>>;

    /// Notes that a file was made for a database that is not committed yet, by who may write to it.
    fn made(&self, path: &StoragePath, database: DatabaseId);

    /// Notes that such a file was removed.
    fn removed(&self, path: &StoragePath);

    /// The database of such a file.
    fn unborn(&self, path: &StoragePath) -> Option<DatabaseId>;
}

/// A right to write that may end.
pub trait Permit: Send + Sync + 'static {
    /// Writes, if the right has not ended; it does not end meanwhile.
    ///
    /// # Errors
    /// `ENOLCK` if it has; those of the write.
    fn during(&self, write: &mut dyn FnMut() -> StorageResult<()>) -> StorageResult<()>;
}

/// A file that is changed only while its writer may do so.
pub(super) struct Guarded {
    pub file: Arc<dyn StoredFile>,
    pub permit: Arc<dyn Permit>,
}

impl StoredFile for Guarded {
    fn metadata(&self) -> StorageResult<Metadata> {
        self.file.metadata()
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

    /// Who opens it later may write when this one may not any more.
    fn can_be_shared(&self) -> bool {
        false
    }

    fn can_be_reopened(&self) -> bool {
        self.file.can_be_reopened()
    }
}
