//! A server's file as versions of containers read it: from a disk here what was read before.

use std::sync::Arc;

use rntuple::{ByteSource, ReadRequest};

use crate::disk_cache::{CommitMark, Mirror};
use crate::file::DatabaseFile;

/// A server's file, and what a disk here has of it.
#[derive(Clone, Debug)]
pub(crate) struct FarFile {
    pub file: Arc<DatabaseFile>,
    pub kept: Option<KeptOnDisk>,
}

/// A mirror, and the commit that refers to what is read.
#[derive(Clone, Debug)]
pub(crate) struct KeptOnDisk {
    pub mirror: Arc<Mirror>,
    pub mark: CommitMark,
}

impl FarFile {
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
        let has_it = |kept: &KeptOnDisk, buffer: &mut [u8]| {
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
        let Some(KeptOnDisk { mirror, mark }) = &self.kept else { return fetch(requests) };
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
