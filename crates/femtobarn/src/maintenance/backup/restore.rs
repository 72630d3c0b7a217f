//! Restoring a federation from a full backup and the incremental ones that follow it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use femtobarn_catalog::LocalCatalogue;
use twox_hash::XxHash3_64;

use super::copy::{PROGRESS_BYTES, put, stopped};
use super::make_empty;
use super::manifest::{FileEntry, Manifest};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::progress::{Progress, Watch};
use crate::storage::file;
use crate::storage::places;

/// Restores a federation into a new folder from a full backup and the incremental ones that follow it, in
/// order. Every chunk is verified.
///
/// # Errors
/// `Invalid` if the backups do not follow each other; `NotFound` if one is incomplete; `Corrupt` if one is
/// damaged; `Exists` if `folder` is not empty; `Closed` if `progress` stops it; `Io` or `Full` if a file
/// cannot be read or written. Then `folder` holds no federation.
pub fn restore(backups: &[&Path], folder: &Path, progress: &mut Watch<'_>) -> Result<Federation> {
    let chain = Chain::open(backups)?;
    make_empty(folder)?;
    let files = &chain.last().1.files;
    let total = files.iter().map(|file| file.size).sum();
    let mut state = Progress { doing: "restoring", of: String::new(), done: 0, total };
    // The catalogue, which makes the folder a federation, is first in the list and restored last.
    for entry in files.iter().rev() {
        state.of.clone_from(&entry.path);
        chain.restore_file(entry, folder, &mut state, progress)?;
    }
    places::folders(folder)?.iter().try_for_each(|folder| file::sync_folder(folder))?;
    file::sync_folder(folder)?;
    LocalCatalogue::open(folder)?.begin_new_epochs()?;
    Federation::open(folder)
}

/// Successive backups, with their folders.
struct Chain(Vec<(PathBuf, Manifest)>);

impl Chain {
    fn open(backups: &[&Path]) -> Result<Self> {
        let mut chain: Vec<(PathBuf, Manifest)> = vec![];
        for folder in backups {
            let manifest = Manifest::read(folder)?;
            let before = chain.last().map(|(_, manifest)| manifest.id);
            if manifest.parent != before {
                let reason = match (manifest.parent, before) {
                    (Some(_), None) => "is incremental; name the full backup first",
                    (None, _) => "is a full backup; name it first, or alone",
                    _ => "does not build on the backup before it; name them in order",
                };
                return Err(Error::invalid(format!("{} {reason}", folder.display())));
            }
            chain.push(((*folder).to_owned(), manifest));
        }
        if chain.is_empty() {
            Err(Error::invalid("name at least one backup"))
        } else {
            Ok(Chain(chain))
        }
    }

    fn last(&self) -> &(PathBuf, Manifest) {
        self.0.last().expect("a chain has at least one backup")
    }

    fn restore_file(
        &self,
        entry: &FileEntry,
        folder: &Path,
        state: &mut Progress,
        progress: &mut Watch<'_>,
    ) -> Result<()> {
        let path = folder.join(&entry.path);
        let cannot = |error| Error::io("write", &path, error);
        places::make_folder_of(&path)?;
        let mut target = File::create_new(&path).map_err(cannot)?;
        let mut holders = self.holders(entry);
        let mut chunk = vec![];
        for (number, &checksum) in (0..).zip(&entry.chunks) {
            let size = entry.chunk_bytes.min(entry.size - number * entry.chunk_bytes);
            read_chunk(&mut holders, entry, number, size, checksum, &mut chunk)?;
            put(&mut target, &chunk).map_err(cannot)?;
            let pieces_before = state.done / PROGRESS_BYTES;
            state.done += size;
            if state.done / PROGRESS_BYTES > pieces_before && !progress(state) {
                return Err(stopped("restoring"));
            }
        }
        if !progress(state) {
            return Err(stopped("restoring"));
        }
        target.set_len(entry.size).and_then(|()| target.sync_all()).map_err(cannot)
    }

    /// The backups that hold chunks of a file, newest first.
    fn holders(&self, entry: &FileEntry) -> Vec<ChunkFile<'_>> {
        let holders = self.0.iter().rev().filter_map(|(folder, manifest)| {
            // An entry with another chunk size is of an earlier state of the file, stored in full since.
            let of = manifest.file(&entry.path)?;
            let stored = of.stored.as_deref();
            (of.chunk_bytes == entry.chunk_bytes).then(|| ChunkFile {
                path: folder.join(&entry.path),
                stored,
                file: None,
            })
        });
        holders.collect()
    }
}

/// The chunks of a file in one backup.
struct ChunkFile<'a> {
    path: PathBuf,
    /// The numbers of its chunks; `None` if it holds all.
    stored: Option<&'a [u64]>,
    /// Opened when the first chunk is read.
    file: Option<File>,
}

impl ChunkFile<'_> {
    /// The position of a chunk among those stored.
    fn position(&self, number: u64) -> Option<u64> {
        match self.stored {
            None => Some(number),
            Some(stored) => stored.binary_search(&number).ok().map(|position| position as u64),
        }
    }

    fn open(&mut self) -> std::io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(File::open(&self.path)?)),
        }
    }
}

/// Reads a chunk from the newest backup that holds it.
fn read_chunk(
    holders: &mut [ChunkFile<'_>],
    entry: &FileEntry,
    number: u64,
    size: u64,
    checksum: u64,
    chunk: &mut Vec<u8>,
) -> Result<()> {
    let FileEntry { path, chunk_bytes, .. } = entry;
    let lost = |what: String| Error::Corrupt { what };
    let found = holders.iter_mut().find_map(|holder| Some((holder.position(number)?, holder)));
    let (position, holder) =
        found.ok_or_else(|| lost(format!("no backup holds chunk {number} of {path}")))?;
    let offset = position * chunk_bytes;
    chunk.clear();
    let read = holder.open().and_then(|file| {
        file.seek(SeekFrom::Start(offset))?;
        file.take(size).read_to_end(chunk)
    });
    read.map_err(|error| Error::io("read", &holder.path, error))?;
    if chunk.len() as u64 == size && XxHash3_64::oneshot(chunk) == checksum {
        Ok(())
    } else {
        Err(lost(format!(
            "{} is damaged at byte {offset}: wrong checksum of a chunk of {path}",
            holder.path.display()
        )))
    }
}
