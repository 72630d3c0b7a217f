//! A file that is being stored, piece by piece. It appears under its path when it is complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use nix::errno::Errno;

use super::failure::HttpFailure;
use super::{FileRequest, FileSite};
use crate::auth::Action;
use crate::logical::Logical;
use crate::logical::files::StoredPlace;
use crate::logical::uploads::{FILE_MODE, Upload};
use crate::physical::{Metadata, StorageError};
use crate::protocol::buffers::PIECE_BYTES;

/// An upload, which may be abandoned at any time.
pub(super) struct PendingUpload {
    site: Arc<FileSite>,
    upload: Arc<Upload>,
    /// The claim of the file on a descriptor.
    _place: StoredPlace,
    /// Bytes that are not written yet.
    piece: BytesMut,
    /// Bytes that are written.
    written: u64,
}

impl PendingUpload {
    /// Takes the next bytes of the file.
    pub(super) async fn append(&mut self, bytes: Bytes) -> Result<(), HttpFailure> {
        self.piece.extend_from_slice(&bytes);
        if self.piece.len() >= PIECE_BYTES { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<(), HttpFailure> {
        let (file, offset, bytes) =
            (Arc::clone(&self.upload), self.written, self.piece.split().freeze());
        let count = bytes.len() as u64;
        self.site.call(move |_| file.write_at(offset, &bytes)).await?;
        self.site.transferred.fetch_add(count, Ordering::Relaxed);
        self.written += count;
        Ok(())
    }

    /// Writes the remaining bytes, and makes all bytes durable.
    pub(super) async fn complete(&mut self) -> Result<(), HttpFailure> {
        if !self.piece.is_empty() {
            self.write().await?;
        }
        let file = Arc::clone(&self.upload);
        self.site.call(move |_| file.sync()).await
    }
}

impl FileRequest {
    /// Begins to store a file at the path, of this size if it is known, if the client has the right.
    pub(super) async fn begin_upload(
        &self,
        size: Option<u64>,
    ) -> Result<PendingUpload, HttpFailure> {
        let path = self.changeable_path()?.clone();
        self.check(Action::Create, &path)?;
        self.replaced().await?;
        let client = self.client;
        let begin = move |logical: &Logical| {
            let place = logical.files.hold(&path, client)?;
            Ok((Upload::begin(&logical.exports, &path, FILE_MODE, size)?, place))
        };
        let (upload, place) = self.call(begin).await?;
        Ok(PendingUpload {
            site: Arc::clone(&self.site),
            upload: Arc::new(upload),
            _place: place,
            piece: BytesMut::with_capacity(PIECE_BYTES),
            written: 0,
        })
    }

    /// Gives the file its path, and returns whether it replaces another one.
    pub(super) async fn finish_upload(
        &self,
        upload: &PendingUpload,
    ) -> Result<(bool, Metadata), HttpFailure> {
        // There may be another file by now.
        let replaces = self.replaced().await?;
        let file = Arc::clone(&upload.upload);
        let stored = self.call(move |_| file.finish(replaces)).await.map_err(exists_already)?;
        Ok((replaces, stored))
    }
}

/// The error if a file has appeared during the request, which must not be replaced.
pub(super) fn exists_already(failure: HttpFailure) -> HttpFailure {
    match failure {
        HttpFailure::Storage(StorageError::Refused(Errno::EEXIST, what)) => {
            HttpFailure::Precondition(what)
        }
        other => other,
    }
}
