//! A server's file read through the disk cache: what was read before comes from a disk here.

use std::sync::Arc;

use rntuple::{ByteSource, ReadRequest};

use crate::storage::file::DatabaseFile;
use crate::storage::remote::disk_cache::{CommitMark, Mirror};

/// A server's file, and the copy of it on a disk here, if one is kept.
#[derive(Clone, Debug)]
pub(crate) struct CachedRemoteFile {
    pub file: Arc<DatabaseFile>,
    pub kept: Option<DiskCopy>,
}

/// A mirror, and the commit that refers to what is read.
#[derive(Clone, Debug)]
pub(crate) struct DiskCopy {
    pub mirror: Arc<Mirror>,
    pub mark: CommitMark,
}

impl CachedRemoteFile {
    /// Fills all requests for what a commit refers to.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.read_with(requests, |missing| self.file.read_many(missing))
    }

    /// Fills all requests for what a commit refers to, ahead of its use.
    pub fn read_ahead(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        self.read_with(requests, |missing| self.file.read_ahead(missing))
    }

    /// Reads from `offset` on, ahead of its use; fewer bytes than fit only at the end. No commit may refer to
    /// all of it, so none of it is kept.
    pub fn read_ahead_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<usize> {
        let has_it = |kept: &DiskCopy, buffer: &mut [u8]| {
            kept.mirror.read(&mut ReadRequest { offset, buffer })
        };
        match self.kept.as_ref().is_some_and(|kept| has_it(kept, &mut *buffer)) {
            true => Ok(buffer.len()),
            false => self.file.read_ahead_at(offset, buffer),
        }
    }

    fn read_with(
        &self,
        requests: &mut [ReadRequest<'_>],
        fetch: impl FnOnce(&mut [ReadRequest<'_>]) -> rntuple::Result<()>,
    ) -> rntuple::Result<()> {
        let Some(DiskCopy { mirror, mark }) = &self.kept else { return fetch(requests) };
        let requests = requests.iter_mut().filter_map(|request| {
            (!mirror.read(request))
                .then_some(ReadRequest { offset: request.offset, buffer: &mut *request.buffer })
        });
        let mut missing: Vec<_> = requests.collect();
        if missing.is_empty() {
            return Ok(());
        }
        fetch(&mut missing)?;
        missing.iter().for_each(|read| mirror.keep(read.offset, read.buffer, *mark));
        Ok(())
    }
}
