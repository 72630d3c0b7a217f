//! An open file as a byte source for RNTuple readers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;
use rntuple::{ByteSource, Error, Result};

use crate::physical::{StorageError, StoredFile};

/// Attempts of a deferred read.
const ATTEMPTS_MAX: usize = 100;

/// A file of a storage. Reading it may block.
pub(super) struct StoredFileSource(pub Arc<dyn StoredFile>);

impl ByteSource for StoredFileSource {
    fn size(&self) -> Result<u64> {
        Ok(self.0.metadata().map_err(|error| failed("stat", error))?.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.0.read_at(offset, buffer) {
                Ok(read) if read == buffer.len() => return Ok(()),
                Ok(_) => {
                    let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::Io { what: format!("read at byte {offset}"), source });
                }
                // The file is being brought back, which may take long, so the client is asked to retry.
                Err(StorageError::NotBefore(_, what)) if self.0.is_remote() => {
                    return Err(failed("read", StorageError::refused(Errno::EAGAIN, what)));
                }
                // Failing here would restart the whole synthesis, which might never finish.
                Err(StorageError::NotBefore(delay, _)) => std::thread::sleep(delay),
                Err(error) => return Err(failed("read", error)),
            }
        }
        Err(failed(
            "read",
            StorageError::refused(Errno::ETIMEDOUT, "the read was deferred too often"),
        ))
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.0.will_need(range.start, range.end.saturating_sub(range.start));
        }
    }
}

fn failed(what: &str, error: StorageError) -> Error {
    let source = match error {
        StorageError::Refused(errno, _) => errno.into(),
        other => io::Error::other(format!("{other:?}")),
    };
    Error::Io { what: what.to_owned(), source }
}
