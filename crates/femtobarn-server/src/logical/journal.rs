//! Journals of checkpoints: what was in files before they were changed, on disk.
//!
//! A storage has its journals in a folder at its top, which clients do not see. A journal is a list of
//! records, each with its length and a checksum:
//!
//! | record | bytes |
//! |---|---|
//! | frame | `length` u32, `crc32c` u32, then so many bytes; numbers are big-endian |
//! | the first | `id` u64 and `size` u64 of the file, then its path |
//! | each other | `offset` u64, then what was there |
//!
//! 1. A record is durable before the file is changed. So a last record that is not whole is of a change that
//!    was never made.
//! 2. An empty journal is over: there is nothing to be undone.
//! 3. A server that has a journal open holds its kernel's lock, where the storage has files of the kernel.
//!    Another one on the same folder leaves it alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use uuid::Uuid;

use super::checkpoint::CHECKPOINT_BYTES_MAX;
use crate::physical::{
    Creation, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult, StoredFile,
};

/// The folder of journals, at the top of a storage.
pub(super) const JOURNALS: &[u8] = b".femtobarn-checkpoints";
/// Changes of one checkpoint.
pub(super) const CHANGES_MAX: u32 = 16 * 1024;
/// Bytes of a whole journal: all changes with their frames, and a path.
const JOURNAL_BYTES_MAX: u64 = CHECKPOINT_BYTES_MAX as u64 + CHANGES_MAX as u64 * 16 + (128 << 10);
/// Bytes before each record, and of each number in it.
const FRAME_BYTES: usize = 8;
const NUMBER_BYTES: usize = 8;
/// Permission bits of journals: they hold what only readers of the file may know.
const MODE: u32 = 0o600;

/// The file that a journal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Where it is in its storage.
    pub path: StoragePath,
    /// By which it is known again.
    pub id: u64,
    /// Bytes that it had when the checkpoint began.
    pub size: u64,
}

/// What a journal holds.
pub(super) struct Kept {
    pub target: Target,
    /// What was at these offsets, in the order of the changes.
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
    /// Begins a journal about a file.
    pub fn begin(storage: Arc<dyn Storage>, target: &Target) -> StorageResult<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // In the order in which they began.
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
        if let Err(trouble) = journal.append(&head) {
            // One that stays is empty.
            drop(journal.end());
            return Err(trouble);
        }
        Ok(journal)
    }

    /// Keeps what is at an offset of the file, durably.
    pub fn keep(&mut self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
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

    /// All that it holds.
    pub fn kept(&self) -> StorageResult<Kept> {
        kept(&*self.file)?.ok_or_else(|| self.damaged())
    }

    /// Nothing is to be undone any more.
    pub fn end(self) -> StorageResult<()> {
        // The name may come back after a loss of power; what is in it does not.
        self.file.truncate(0)?;
        self.file.sync()?;
        self.storage.remove_file(&self.path, Opaque::default())
    }

    fn damaged(&self) -> StorageError {
        StorageError::refused(Errno::EIO, format!("the journal {} is damaged", self.path))
    }
}

/// Undoes what killed servers left behind in a storage. What cannot be undone stays in its journal, and the
/// operator is told.
pub(crate) fn restore_all(storage: &Arc<dyn Storage>) {
    let listed = folder().and_then(|folder| storage.list(&folder, false, Opaque::default()));
    let Ok(mut entries) = listed else { return };
    // Of two checkpoints of a file, the later one is undone first.
    entries.sort_by(|one, other| other.name.cmp(&one.name));
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        match restore(storage, &entry.name) {
            Ok(Some(path)) => tracing::warn!(%path, "undid changes of a checkpoint that was left"),
            Ok(None) => {}
            Err(trouble) => tracing::error!(journal = name, ?trouble, "cannot undo a checkpoint"),
        }
    }
}

/// Undoes what is in a journal; which file that was, if there was anything to do.
fn restore(storage: &Arc<dyn Storage>, name: &[u8]) -> StorageResult<Option<StoragePath>> {
    let path = folder()?.join(name)?;
    let how = OpenMode { write: true, ..OpenMode::default() };
    let file = storage.open(&path, how, Opaque::default())?;
    if !lock(&*file) {
        return Ok(None);
    }
    let journal = Journal { storage: Arc::clone(storage), path, file, end: 0 };
    let Some(Kept { target, changes }) = kept(&*journal.file)? else {
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

/// What a journal holds; nothing if it is over, or was only about to begin.
fn kept(file: &dyn StoredFile) -> StorageResult<Option<Kept>> {
    let size = file.metadata()?.size;
    if size > JOURNAL_BYTES_MAX {
        return Err(StorageError::refused(Errno::EFBIG, "this is not the journal of a checkpoint"));
    }
    let mut bytes = vec![0; size as usize];
    let count = file.read_at(0, &mut bytes)?;
    let mut records = records(&bytes[..count]);
    let Some(target) = records.next().and_then(target_of) else { return Ok(None) };
    let changes = records.filter_map(|record| {
        let (offset, bytes) = number(record)?;
        Some((offset, bytes.to_vec()))
    });
    Ok(Some(Kept { target, changes: changes.collect() }))
}

/// The records that are whole.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (checksum, rest) = rest.split_first_chunk()?;
        let record = rest.get(..u32::from_be_bytes(*length) as usize)?;
        bytes = &bytes[FRAME_BYTES + record.len()..];
        (crc32c::crc32c(record) == u32::from_be_bytes(*checksum)).then_some(record)
    })
}

fn target_of(record: &[u8]) -> Option<Target> {
    let (id, rest) = number(record)?;
    let (size, path) = number(rest)?;
    Some(Target { path: StoragePath::new(path).ok()?, id, size })
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    Some((u64::from_be_bytes(*number), rest))
}

fn folder() -> StorageResult<StoragePath> {
    StoragePath::new(b"/")?.join(JOURNALS)
}

/// Locks a journal for as long as it is open; not if another server has it.
fn lock(file: &dyn StoredFile) -> bool {
    let Some(descriptor) = file.descriptor() else { return true };
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // Where the kernel cannot lock, one server is taken for the only one.
    !matches!(fcntl(descriptor, FcntlArg::F_OFD_SETLK(&whole)), Err(Errno::EAGAIN | Errno::EACCES))
}
