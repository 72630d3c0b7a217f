//! The file of a database that is read in place.
//!
//! If a copy cannot be read, the file is read from the disk, where it may have arrived meanwhile, or from the next
//! copy. If there is none, the file is brought back, and its readers are asked to retry; then all sources are tried
//! again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use parking_lot::Mutex;

use super::copy::CopyReader;
use super::stores::InPlaceStores;
use crate::physical::federation::error::archive_error;
use crate::physical::federation::nearline::NearlineFile;
use crate::physical::{Metadata, StorageError, StorageResult, StoredFile};

/// The file of a database that is read in a store.
pub(in crate::physical::federation) struct InPlaceFile {
    stores: Arc<InPlaceStores>,
    file: Arc<NearlineFile>,
    /// As of the opening of the file: the shown metadata do not change with the copy that is read.
    metadata: Metadata,
    /// `adler32:0a1b2c3d`.
    checksum: String,
    /// `None` while no copy can be read.
    source: Mutex<Option<ReadSource>>,
    /// Held during the search for another source.
    looking: Mutex<()>,
}

/// The source of the bytes.
#[derive(Clone)]
enum ReadSource {
    Copy(Arc<CopyReader>),
    Disk(Arc<dyn StoredFile>),
}

impl ReadSource {
    fn is(&self, other: &Arc<CopyReader>) -> bool {
        matches!(self, ReadSource::Copy(copy) if Arc::ptr_eq(copy, other))
    }
}

impl InPlaceFile {
    /// Opens a database in a store that has it at hand; `None` if no store has.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub(in crate::physical::federation) fn open(
        stores: &Arc<InPlaceStores>,
        file: Arc<NearlineFile>,
    ) -> StorageResult<Option<Self>> {
        let found = stores.copy_at_hand(file.database, &[]);
        let found = found.map_err(|error| archive_error("open", &file.name, error))?;
        let (Some(copy), Some(metadata)) = (found, file.metadata()?) else { return Ok(None) };
        let checksum = copy.1.checksum.clone();
        let copy = Arc::new(CopyReader::new(Arc::clone(stores), copy));
        Ok(Some(InPlaceFile {
            stores: Arc::clone(stores),
            file,
            metadata,
            checksum,
            source: Mutex::new(Some(ReadSource::Copy(copy))),
            looking: Mutex::default(),
        }))
    }

    /// A source other than these stores.
    ///
    /// # Errors
    /// [`StorageError::NotBefore`] while the file is brought back; `EIO` with the reason if that failed.
    fn source(&self, failed: &[String]) -> StorageResult<ReadSource> {
        if let Some(source) = self.source.lock().clone() {
            return Ok(source);
        }
        // Of concurrent readers one searches for another source, and the others use the result.
        let _turn = self.looking.lock();
        if let Some(source) = self.source.lock().clone() {
            return Ok(source);
        }
        let copies = || self.stores.copy_at_hand(self.file.database, failed);
        let source = match self.file.on_disk() {
            Err(StorageError::Refused(Errno::ENOENT, _)) => match copies() {
                Ok(Some(copy)) => {
                    ReadSource::Copy(Arc::new(CopyReader::new(Arc::clone(&self.stores), copy)))
                }
                Ok(None) => ReadSource::Disk(self.file.recalled()?),
                Err(error) => return Err(archive_error("read", &self.file.name, error)),
            },
            opened => ReadSource::Disk(opened?),
        };
        *self.source.lock() = Some(source.clone());
        Ok(source)
    }

    /// Leaves a copy that could not be read.
    fn leave(&self, copy: &Arc<CopyReader>, error: &StorageError) {
        let mut source = self.source.lock();
        if source.as_ref().is_some_and(|source| source.is(copy)) {
            *source = None;
            let (database, store) = (&self.file.name, &copy.replica.store);
            tracing::warn!(database, store, ?error, "a copy cannot be read in place");
            self.stores.counts.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn known_source(&self) -> Option<ReadSource> {
        self.source.lock().clone()
    }
}

impl StoredFile for InPlaceFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(self.metadata.clone())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let mut failed = vec![];
        loop {
            match self.source(&failed)? {
                ReadSource::Disk(file) => return file.read_at(offset, buffer),
                ReadSource::Copy(copy) => match copy.read_at(offset, buffer) {
                    Ok(read) => return Ok(read),
                    Err(error) => {
                        self.leave(&copy, &error);
                        failed.push(copy.replica.store.clone());
                    }
                },
            }
        }
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        match self.known_source() {
            Some(ReadSource::Copy(copy)) => Ok(copy.try_read_at(offset, buffer)),
            Some(ReadSource::Disk(file)) => file.try_read_at(offset, buffer),
            None => Ok(None),
        }
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> StorageResult<()> {
        Err(StorageError::cannot("write", &self.file.path, Errno::EROFS))
    }

    fn sync(&self) -> StorageResult<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> StorageResult<()> {
        Err(StorageError::cannot("cut", &self.file.path, Errno::EROFS))
    }

    fn will_need(&self, offset: u64, size: u64) {
        match self.known_source() {
            Some(ReadSource::Copy(copy)) => copy.will_need(offset, size),
            Some(ReadSource::Disk(file)) => file.will_need(offset, size),
            None => {}
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn checksum(&self, kind: &str) -> Option<String> {
        let digest = self.checksum.strip_prefix(kind)?.strip_prefix(':')?;
        Some(digest.to_owned())
    }

    /// The file on the disk has another id.
    fn can_be_reopened(&self) -> bool {
        false
    }
}
