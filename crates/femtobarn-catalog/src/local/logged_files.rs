//! The files whose bytes, or first bytes, the catalogue has logged.
//!
//! 1. A file whose first bytes are logged may be missing after a crash of the machine, or have the bytes of an earlier
//!    file of that name. Then it is made again from the log, which has all bytes that were committed to it: a commit
//!    whose bytes were synced in the file is published only once the file's name is durable.
//! 2. A file with the UUID of the database in its front is never replaced, even if it is damaged otherwise.
//! 3. Any other missing file was lost, or removed with its database, and is not made again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use uuid::Uuid;

use super::file_writes::{self, is_in_file};
use crate::commit::FileWrite;
use crate::error::{Error, Result};
use crate::ids::DatabaseId;

/// Logged bytes of one database. No two writes overlap, so they may be made in any order.
pub(super) struct LoggedWrites {
    /// The path of the file, relative to the federation's folder.
    pub(super) path: String,
    /// The database's UUID, which is in the front of its file.
    pub(super) uuid: Uuid,
    pub(super) writes: Vec<FileWrite>,
}

/// Logged bytes by database.
pub(super) type LoggedFiles = BTreeMap<DatabaseId, LoggedWrites>;

impl LoggedWrites {
    /// The first bytes of the file, if they are logged.
    fn first(&self) -> Option<&FileWrite> {
        self.writes.iter().find(|write| write.offset == 0)
    }

    /// Whether the file below `root` has the bytes, or cannot be read at all.
    pub(super) fn are_in_file(&self, root: &Path) -> bool {
        match File::open(root.join(&self.path)) {
            Ok(file) => self.writes.iter().all(|write| is_in_file(&file, write)),
            Err(error) => error.kind() != ErrorKind::NotFound || self.first().is_none(),
        }
    }

    /// Writes the bytes to the file below `root`, which has the first ones if they are logged, and makes them durable.
    pub(super) fn store(&self, root: &Path) -> Result<()> {
        file_writes::store(&root.join(&self.path), &self.writes)
    }
}

/// Makes the files below `root` whose first bytes are logged, unless they exist, and makes their directory entries
/// durable.
pub(super) fn make_files<'a>(
    root: &Path,
    files: impl IntoIterator<Item = &'a LoggedWrites>,
) -> Result<()> {
    let mut made = vec![];
    for file in files {
        let Some(first) = file.first() else { continue };
        let path = root.join(&file.path);
        let begun = begin_file(&path, file.uuid, first);
        begun.map_err(|error| Error::io("cannot write committed bytes to", &path, error))?;
        made.push(file.path.as_str());
    }
    file_writes::sync_names(root, made)
}

fn begin_file(path: &Path, uuid: Uuid, first: &FileWrite) -> io::Result<()> {
    // The subfolder of its place may be missing, too.
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    if !is_in_file(&file, first) && !has_uuid(&file, uuid, first) {
        file.set_len(0)?;
        file.write_all_at(&first.bytes, 0)?;
    }
    Ok(())
}

/// Whether a file has the UUID of a database at the offset at which the database's first bytes have it.
fn has_uuid(file: &File, uuid: Uuid, first: &FileWrite) -> bool {
    let size = uuid.as_bytes().len();
    let places =
        first.bytes.windows(size).enumerate().filter(|(_, bytes)| bytes == uuid.as_bytes());
    let mut found = places.map(|(at, bytes)| (at as u64, bytes.to_vec()));
    found.any(|(offset, bytes)| is_in_file(file, &FileWrite { offset, bytes, ..*first }))
}
