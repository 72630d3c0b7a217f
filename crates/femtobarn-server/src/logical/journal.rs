//! Journals of checkpoints: the overwritten bytes of files, on disk.
//!
//! A storage's journals lie in a folder at its top, which is hidden from clients. A journal is a list of records:
//!
//! | record | bytes |
//! |---|---|
//! | frame | `length` u32, `crc32c` u32, then `length` bytes; numbers are big-endian |
//! | first record | `id` u64 and `size` u64 of the file, then its path |
//! | other records | `offset` u64, then the bytes that were there |
//!
//! 1. A record is durable before the file is changed. So an incomplete last record belongs to a change that was never
//!    made.
//! 2. An empty journal is finished: there is nothing to undo.
//! 3. A server locks its open journals, if the storage has files of the kernel. Another server on the same folder skips
//!    locked journals.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use femtobarn_catalog::clock;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use uuid::Uuid;

use crate::physical::{
    Creation, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult, StoredFile,
};

/// The bytes that one checkpoint can undo.
pub const CHECKPOINT_BYTES_MAX: u32 = 1024 * 1024;
/// The folder of journals, at the top of a storage.
pub(super) const JOURNALS: &[u8] = b".femtobarn-checkpoints";
/// The changes that one checkpoint can undo.
pub(super) const CHANGES_MAX: u32 = 16 * 1024;
/// Bytes of a journal: all changes with their frames, and a path.
const JOURNAL_BYTES_MAX: u64 = CHECKPOINT_BYTES_MAX as u64 + CHANGES_MAX as u64 * 16 + (128 << 10);
/// Bytes of a frame's header, and of each number in a record.
const FRAME_BYTES: usize = 8;
const NUMBER_BYTES: usize = 8;
/// Permission bits of journals, which hold bytes of files that other users may not read.
const MODE: u32 = 0o600;

/// The file that a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournaledFile {
    /// The file's path within the storage.
    pub path: StoragePath,
    /// The file's id, which shows whether the path still leads to it.
    pub id: u64,
    /// The file's size in bytes when the checkpoint began.
    pub size: u64,
}

/// The content of a journal.
pub(super) struct JournalContent {
    pub target: JournaledFile,
    /// The overwritten bytes with their offsets, in the order of the changes.
    pub changes: Vec<(u64, Vec<u8>)>,
}

/// The journal of one checkpoint.
pub(super) struct Journal {
    storage: Arc<dyn Storage>,
    path: StoragePath,
    file: Arc<dyn StoredFile>,
    end: u64,
}

impl Journal {
    /// Begins a journal for a file.
    pub(super) fn begin(storage: Arc<dyn Storage>, target: &JournaledFile) -> StorageResult<Self> {
        let since = clock::utc().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Sorted by name, journals are in the order of their beginning.
        let name = format!("{:020}-{}", since.as_micros(), Uuid::new_v4().simple());
        let path = folder()?.join(name.as_bytes())?;
        let creation = Creation::New;
        let how = OpenMode { write: true, creation, make_folders: true, mode: MODE };
        let file = storage.open(&path, how, Opaque::default())?;
        lock(&*file);
        let mut journal = Journal { storage, path, file, end: 0 };
        let mut head = target.id.to_be_bytes().to_vec();
        head.extend(target.size.to_be_bytes());
        head.extend(target.path.as_bytes());
        if let Err(error) = journal.append(&head) {
            // If it cannot be removed, it has no complete record: nothing will be undone.
            drop(journal.end());
            return Err(error);
        }
        Ok(journal)
    }

    /// Appends the bytes that are at an offset of the file, durably.
    pub(super) fn record(&mut self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        self.append(&[&offset.to_be_bytes(), bytes].concat())
    }

    fn append(&mut self, record: &[u8]) -> StorageResult<()> {
        let mut framed = (record.len() as u32).to_be_bytes().to_vec();
        framed.extend(crc32c::crc32c(record).to_be_bytes());
        framed.extend(record);
        self.file.write_at(self.end, &framed)?;
        self.file.sync()?;
        self.end += framed.len() as u64;
        Ok(())
    }

    /// Reads the whole journal.
    pub(super) fn read(&self) -> StorageResult<JournalContent> {
        read_journal(&*self.file)?.ok_or_else(|| self.damaged())
    }

    /// Finishes the journal: nothing will be undone.
    pub(super) fn end(self) -> StorageResult<()> {
        // After a power failure the name may reappear, but with an empty file.
        self.file.truncate(0)?;
        self.file.sync()?;
        self.storage.remove_file(&self.path, Opaque::default())
    }

    fn damaged(&self) -> StorageError {
        StorageError::refused(Errno::EIO, format!("the journal {} is damaged", self.path))
    }
}

/// Undoes the changes of checkpoints that killed servers left in a storage. A journal that cannot be undone is logged,
/// and stays.
pub(crate) fn restore_all(storage: &Arc<dyn Storage>) {
    let listed = folder().and_then(|folder| storage.list(&folder, false, Opaque::default()));
    let Ok(mut entries) = listed else { return };
    // The latest journal first, since two of them may belong to one file.
    entries.sort_by(|one, other| other.name.cmp(&one.name));
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        match restore(storage, &entry.name) {
            Ok(Some(path)) => tracing::warn!(%path, "undid the changes of an abandoned checkpoint"),
            Ok(None) => {}
            Err(error) => tracing::error!(journal = name, ?error, "cannot undo a checkpoint"),
        }
    }
}

/// Undoes a journal, and returns the path of its file; `None` if there was nothing to do.
fn restore(storage: &Arc<dyn Storage>, name: &[u8]) -> StorageResult<Option<StoragePath>> {
    let path = folder()?.join(name)?;
    let how = OpenMode { write: true, ..OpenMode::default() };
    let file = storage.open(&path, how, Opaque::default())?;
    if !lock(&*file) {
        return Ok(None);
    }
    let journal = Journal { storage: Arc::clone(storage), path, file, end: 0 };
    let Some(JournalContent { target, changes }) = read_journal(&*journal.file)? else {
        return journal.end().map(|()| None);
    };
    let file = storage.open(&target.path, how, Opaque::default())?;
    if file.metadata()?.id != target.id {
        return Err(StorageError::cannot("undo changes of", &target.path, Errno::ESTALE));
    }
    for (offset, bytes) in changes.iter().rev() {
        file.write_at(*offset, bytes)?;
    }
    file.truncate(target.size)?;
    file.sync()?;
    journal.end()?;
    Ok(Some(target.path))
}

/// Reads a journal; `None` if it is finished, or its first record is incomplete.
fn read_journal(file: &dyn StoredFile) -> StorageResult<Option<JournalContent>> {
    let size = file.metadata()?.size;
    if size > JOURNAL_BYTES_MAX {
        return Err(StorageError::refused(Errno::EFBIG, "this is not the journal of a checkpoint"));
    }
    let mut bytes = vec![0; size as usize];
    let count = file.read_at(0, &mut bytes)?;
    let mut records = records(&bytes[..count]);
    let Some(target) = records.next().and_then(parse_target) else { return Ok(None) };
    let changes = records.filter_map(|record| {
        let (offset, bytes) = number(record)?;
        Some((offset, bytes.to_vec()))
    });
    Ok(Some(JournalContent { target, changes: changes.collect() }))
}

/// The complete records.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (checksum, rest) = rest.split_first_chunk()?;
        let record = rest.get(..u32::from_be_bytes(*length) as usize)?;
        bytes = &bytes[FRAME_BYTES + record.len()..];
        (crc32c::crc32c(record) == u32::from_be_bytes(*checksum)).then_some(record)
    })
}

fn parse_target(record: &[u8]) -> Option<JournaledFile> {
    let (id, rest) = number(record)?;
    let (size, path) = number(rest)?;
    Some(JournaledFile { path: StoragePath::new(path).ok()?, id, size })
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u64::from_be_bytes(*number), rest))
}

fn folder() -> StorageResult<StoragePath> {
    StoragePath::new(b"/")?.join(JOURNALS)
}

/// Locks a journal for as long as it is open; false if another server holds the lock.
fn lock(file: &dyn StoredFile) -> bool {
    let Some(descriptor) = file.descriptor() else { return true };
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // If the file system has no locks, this server is assumed to be the only one.
    !matches!(fcntl(descriptor, FcntlArg::F_OFD_SETLK(&whole)), Err(Errno::EAGAIN | Errno::EACCES))
}
