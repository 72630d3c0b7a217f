//! Files on this machine: copied with progress, and their checksums.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use simd_adler32::Adler32;

use super::store::ByteWatch;
use crate::error::{Error, Result};

/// Bytes between two calls of a watch.
const WATCHED_BYTES: u64 = 64 << 20;
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes per write of fetched data: with 8 MiB at once, the kernel takes three times as long for them.
const WRITE_BYTES: usize = 128 << 10;

/// Copies a file to a new one; returns the new file, and the checksum of the copied bytes.
pub(super) fn copy_file(
    from: &Path,
    to: &Path,
    watch: &mut ByteWatch<'_>,
) -> Result<(File, String)> {
    let mut target = File::create_new(to).map_err(|error| Error::io("create", to, error))?;
    let (_, sum) = read_all(from, watch, |bytes| {
        target.write_all(bytes).map_err(|error| Error::io("write", to, error))
    })?;
    Ok((target, sum))
}

/// Writes a fetched piece to its place in a file.
pub(super) fn write_piece((path, file): (&Path, &File), piece: &[u8], offset: u64) -> Result<()> {
    let mut at = offset;
    for bytes in piece.chunks(WRITE_BYTES) {
        file.write_all_at(bytes, at).map_err(|error| Error::io("write", path, error))?;
        at += bytes.len() as u64;
    }
    Ok(())
}

/// Removes a new file if the operation that writes it has failed.
pub(super) fn or_remove<T>(file: &Path, result: Result<T>) -> Result<T> {
    if result.is_err() {
        // A remainder has a name that is taken for no object.
        let _ = std::fs::remove_file(file);
    }
    result
}

/// Removes a file if it exists.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// The size and the checksum of a file.
pub(crate) fn checksum(path: &Path, watch: &mut ByteWatch<'_>) -> Result<(u64, String)> {
    read_all(path, watch, |_| Ok(()))
}

/// Adler-32, which XRootD and most mass storage support: `adler32:0a1b2c3d`.
#[derive(Default)]
pub(super) struct FileSum(Adler32);

impl FileSum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(super) fn text(&self) -> String {
        format!("adler32:{:08x}", self.0.finish())
    }
}

/// Reads a file from its beginning to its end; returns its size and its checksum.
fn read_all(
    path: &Path,
    watch: &mut ByteWatch<'_>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<(u64, String)> {
    let cannot = |error| Error::io("read", path, error);
    let mut file = File::open(path).map_err(cannot)?;
    let mut sum = FileSum::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut size, mut reported) = (0, None);
    loop {
        let read = file.read(&mut buffer).map_err(cannot)?;
        if reported.is_none_or(|reported| size - reported >= WATCHED_BYTES) {
            reported = Some(size);
            if !watch(size) {
                return Err(Error::Stopped { what: format!("reading {}", path.display()) });
            }
        }
        if read == 0 {
            return Ok((size, sum.text()));
        }
        sum.add(&buffer[..read]);
        take(&buffer[..read])?;
        size += read as u64;
    }
}
