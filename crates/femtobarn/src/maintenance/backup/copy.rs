//! Copying one file into a backup, chunk by chunk.
//!
//! Only the bytes that the file held when it was opened are copied. Writers lengthen it meanwhile, so a chunk
//! that is short because the file ended there must be the last one.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use twox_hash::XxHash3_64;

use super::manifest::{FileEntry, chunk_bytes_for};
use crate::error::{Error, Result};
use crate::progress::{Progress, Watch};

/// Bytes between two calls of `progress`, which is also called at the end of each file.
pub(super) const PROGRESS_BYTES: u64 = 4 << 20;
/// Growth of the chunk size, by the file's size, from which on the file is stored in full again.
const GROWTH_MAX: u64 = 4;

/// A file that is being copied into a backup.
pub(super) struct FileCopy<'a> {
    pub from: &'a Path,
    pub to: &'a Path,
    pub path: &'a str,
    /// The file's entry in the earlier backup, if there is one.
    pub known: Option<&'a FileEntry>,
}

impl FileCopy<'_> {
    /// Copies the file, or its changed chunks; returns the bytes stored. `None` if the file no longer exists because
    /// its transaction was rolled back.
    pub(super) fn run(
        &self,
        state: &mut Progress,
        progress: &mut Watch<'_>,
    ) -> Result<Option<(FileEntry, u64)>> {
        let (from, to) = (self.from.join(self.path), self.to.join(self.path));
        let source = match File::open(&from) {
            Ok(source) => source,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &from, error)),
        };
        let cannot_read = |error| Error::io("read", &from, error);
        let cannot_write = |error| Error::io("write", &to, error);
        let (mut source, size) = limited_to_its_size(source).map_err(cannot_read)?;
        // A file that has grown a lot is stored in full, in larger chunks.
        let wanted = chunk_bytes_for(size);
        let known = self.known.filter(|known| known.chunk_bytes >= wanted / GROWTH_MAX);
        let chunk_bytes = known.map_or(wanted, |known| known.chunk_bytes);
        let mut target = File::create_new(&to).map_err(cannot_write)?;
        let mut entry = FileEntry {
            path: self.path.to_owned(),
            size: 0,
            chunk_bytes,
            chunks: vec![],
            stored: known.map(|_| vec![]),
        };
        let (mut chunk, mut stored) = (Vec::with_capacity(chunk_bytes as usize), 0);
        loop {
            read_chunk(&mut source, chunk_bytes, &mut chunk).map_err(cannot_read)?;
            if chunk.is_empty() {
                break;
            }
            let (checksum, number) = (XxHash3_64::oneshot(&chunk), entry.chunks.len());
            let is_known = known.is_some_and(|known| {
                known.chunks.get(number) == Some(&checksum)
                    && known.size.min(chunk_bytes * (number as u64 + 1))
                        == entry.size + chunk.len() as u64
            });
            if !is_known {
                put(&mut target, &chunk).map_err(cannot_write)?;
                stored += chunk.len() as u64;
                entry.stored.iter_mut().for_each(|stored| stored.push(number as u64));
            }
            entry.chunks.push(checksum);
            entry.size += chunk.len() as u64;
            let pieces_before = state.done / PROGRESS_BYTES;
            state.done += chunk.len() as u64;
            if state.done / PROGRESS_BYTES > pieces_before && !progress(state) {
                return Err(stopped("backup"));
            }
        }
        if !progress(state) {
            return Err(stopped("backup"));
        }
        // A hole at the end has not lengthened the file yet.
        target.set_len(stored).and_then(|()| target.sync_all()).map_err(cannot_write)?;
        Ok(Some((entry, stored)))
    }
}

/// The bytes that a file holds now, without those appended later.
fn limited_to_its_size(file: File) -> std::io::Result<(impl Read, u64)> {
    let bytes = file.metadata()?.len();
    Ok((file.take(bytes), bytes))
}

/// Reads the next chunk. A short one is the last; an empty one is the end.
fn read_chunk(source: &mut impl Read, bytes: u64, chunk: &mut Vec<u8>) -> std::io::Result<()> {
    chunk.clear();
    source.take(bytes).read_to_end(chunk).map(drop)
}

/// Writes a chunk; zeros become a hole.
pub(super) fn put(file: &mut File, chunk: &[u8]) -> std::io::Result<()> {
    if chunk.iter().all(|&byte| byte == 0) {
        file.seek(SeekFrom::Current(chunk.len() as i64)).map(drop)
    } else {
        file.write_all(chunk)
    }
}

pub(super) fn stopped(what: &str) -> Error {
    Error::Closed { what: format!("the {what} was stopped and is incomplete") }
}
