//! An open file, shared by the clients whose URLs have the same opaque information.

use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;

use super::file::CachedFile;
use crate::physical::ahead::ReadAhead;
use crate::physical::{Metadata, ReadOrder, StorageError, StorageResult, StoredFile};

/// An open file of the cache, and the read-ahead of its readers.
#[derive(Debug)]
pub(super) struct OpenCachedFile {
    file: Arc<CachedFile>,
    ahead: ReadAhead,
}

impl OpenCachedFile {
    pub(super) fn new(file: Arc<CachedFile>, order: ReadOrder) -> Self {
        OpenCachedFile { file, ahead: ReadAhead::of_origin(order) }
    }

    /// The range that is likely to be read after another one. `None` for a file that is not kept: it would be fetched
    /// twice.
    fn next(&self, offset: u64, length: usize) -> Option<Range<u64>> {
        if self.file.is_whole || !self.file.is_settled() {
            return None;
        }
        self.ahead.after(offset, length)
    }
}

impl StoredFile for OpenCachedFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(self.file.metadata.clone())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let ahead = self.next(offset, buffer.len());
        self.file.read_at(offset, buffer, ahead)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        let length = buffer.len();
        let read = self.file.try_read_at(offset, buffer)?;
        if let Some(ahead) = read.and_then(|_| self.next(offset, length)) {
            self.file.will_need(ahead.start, ahead.end - ahead.start);
        }
        Ok(read)
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
        self.file.will_need(offset, size);
    }

    /// If the disk of a file failed, the file is opened again on another disk.
    fn can_be_shared(&self) -> bool {
        !self.file.is_given_up()
    }

    /// The origin keeps the shown bytes for as long as its file is open.
    fn can_be_reopened(&self) -> bool {
        self.file.is_whole
    }
}
