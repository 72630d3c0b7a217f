//! The content of a file in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::room::{Attributes, Room, attribute_bytes, new_metadata};
use crate::physical::{FileKind, Metadata, StorageError, StoragePath, StorageResult, StoredFile};

/// Bytes of a chunk.
const CHUNK: u64 = 64 << 10;

/// A file, which exists for as long as it has a name or is open.
#[derive(Debug)]
pub(super) struct MemoryFile {
    id: u64,
    room: Arc<Room>,
    content: RwLock<Content>,
}

/// The bytes and metadata of a file.
#[derive(Debug)]
pub(super) struct Content {
    /// Chunks by number; missing chunks are zero.
    chunks: BTreeMap<u64, Box<[u8]>>,
    size: u64,
    mode: u32,
    modified: SystemTime,
    changed: SystemTime,
    pub(super) attributes: Attributes,
}

/// A file that one caller has open.
pub(super) struct OpenMemoryFile {
    pub(super) file: Arc<MemoryFile>,
    pub(super) path: StoragePath,
    pub(super) is_writable: bool,
}

impl MemoryFile {
    pub(super) fn new(room: Arc<Room>, mode: u32) -> Self {
        let now = clock::utc();
        let content = Content {
            chunks: BTreeMap::new(),
            size: 0,
            mode,
            modified: now,
            changed: now,
            attributes: Attributes::new(),
        };
        MemoryFile { id: room.next_id(), room, content: RwLock::new(content) }
    }

    pub(super) fn content(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write()
    }

    pub(super) fn metadata(&self) -> Metadata {
        let content = self.content.read();
        let metadata = new_metadata(FileKind::File, self.id, content.mode, content.changed);
        let modified = content.modified;
        Metadata { size: content.size, modified, accessed: modified, ..metadata }
    }

    pub(super) fn truncate(&self, size: u64) -> Result<(), Errno> {
        if size > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        let mut content = self.content();
        let beyond = content.chunks.split_off(&size.div_ceil(CHUNK));
        self.room.give_back(beyond.len() as u64 * CHUNK);
        if let Some(last) = content.chunks.get_mut(&(size / CHUNK)) {
            last[(size % CHUNK) as usize..].fill(0);
        }
        content.size = size;
        content.touch();
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= i64::MAX as u64);
        let end = end.ok_or(Errno::EFBIG)?;
        let mut content = self.content();
        let mut rest = bytes;
        let mut position = offset;
        while !rest.is_empty() {
            let within = (position % CHUNK) as usize;
            let (now, later) = rest.split_at(rest.len().min(CHUNK as usize - within));
            let chunk = content.chunk(position / CHUNK, &self.room)?;
            chunk[within..][..now.len()].copy_from_slice(now);
            position += now.len() as u64;
            content.size = content.size.max(position);
            rest = later;
        }
        debug_assert_eq!(position, end);
        content.touch();
        Ok(())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let content = self.content.get_mut();
        let chunks = content.chunks.len() as u64 * CHUNK;
        let attributes =
            content.attributes.iter().map(|(name, value)| attribute_bytes(name, value));
        self.room.give_back(chunks + attributes.sum::<u64>());
    }
}

impl Content {
    pub(super) fn set_mode(&mut self, mode: u32) {
        self.mode = mode;
        self.changed = clock::utc();
    }

    fn touch(&mut self) {
        self.modified = clock::utc();
        self.changed = self.modified;
    }

    fn chunk(&mut self, number: u64, room: &Room) -> Result<&mut [u8], Errno> {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.chunks.entry(number) {
            room.take(CHUNK)?;
            vacant.insert(vec![0; CHUNK as usize].into_boxed_slice());
        }
        Ok(self.chunks.get_mut(&number).expect("the chunk exists or was just inserted"))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let size = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < size {
            let position = offset + done as u64;
            let within = (position % CHUNK) as usize;
            let now = (size - done).min(CHUNK as usize - within);
            let into = &mut buffer[done..][..now];
            match self.chunks.get(&(position / CHUNK)) {
                Some(chunk) => into.copy_from_slice(&chunk[within..][..now]),
                None => into.fill(0),
            }
            done += now;
        }
        size
    }
}

impl OpenMemoryFile {
    fn check_writable(&self, what: &str) -> StorageResult<()> {
        if self.is_writable {
            Ok(())
        } else {
            Err(StorageError::cannot(what, &self.path, Errno::EBADF))
        }
    }
}

impl StoredFile for OpenMemoryFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        Ok(self.file.metadata())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        let content = self.file.content.read();
        Ok(content.read(offset, buffer))
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<Option<usize>> {
        Ok(self.file.content.try_read().map(|content| content.read(offset, buffer)))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        self.check_writable("write")?;
        let written = self.file.write(offset, bytes);
        written.map_err(|errno| StorageError::cannot("write", &self.path, errno))
    }

    /// There is nothing to do: the bytes live exactly as long as the process.
    fn sync(&self) -> StorageResult<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> StorageResult<()> {
        self.check_writable("truncate")?;
        let truncated = self.file.truncate(size);
        truncated.map_err(|errno| StorageError::cannot("truncate", &self.path, errno))
    }
}
