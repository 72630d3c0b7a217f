//! Requests that change files: `PUT`, `DELETE`, `MKCOL`, `MOVE`.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::header::{CONTENT_RANGE, ETAG};
use http::{HeaderName, StatusCode, Uri};
use nix::errno::Errno;
use tokio_stream::StreamExt;
use uuid::Uuid;

use super::FileRequest;
use super::failure::HttpFailure;
use super::location::UrlLocation;
use super::validators::{self, ConditionOutcome};
use crate::auth::Action;
use crate::logical::files::SharedFile;
use crate::physical::{
    Creation, FileKind, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath,
};
use crate::protocol::buffers::PIECE_BYTES;

const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

/// Permission bits of new files and folders.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

impl FileRequest {
    /// Stores the body of the request as a file, and makes the folders above it. The file is written beside its path,
    /// made durable, and renamed: nobody sees a part of it, and if the request fails, the old file stays.
    pub(super) async fn put(&self, body: Body) -> Result<Response, HttpFailure> {
        let path = self.changeable_path()?.clone();
        if self.headers.contains_key(CONTENT_RANGE) {
            let what = "parts of a file cannot be stored; send the whole file";
            return Err(HttpFailure::NotImplemented(what.to_owned()));
        }
        let existing = self.existing().await?;
        if self.location.is_slashed || existing.as_ref().is_some_and(is_folder) {
            return Err(HttpFailure::Conflict(format!(
                "{path} is a folder, and no file can be stored as it"
            )));
        }
        self.check(if existing.is_some() { Action::Modify } else { Action::Create }, &path)?;
        self.check_conditions(existing.as_ref())?;
        let Some((folder, _)) = path.parent() else {
            return Err(HttpFailure::Conflict("the top is no file".to_owned()));
        };
        let upload = folder.join(format!(".{}.upload", Uuid::new_v4().simple()).as_bytes())?;
        let stored = self.stored(&upload, &path, body).await;
        if stored.is_err() {
            // It may not have been created.
            let _ =
                self.call(move |logical| logical.exports.remove_file(&upload, Opaque(b""))).await;
        }
        let tag = validators::entity_tag(&stored?, None);
        let code = if existing.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        Ok((code, [(ETAG, tag)]).into_response())
    }

    /// Stores a body at a path, by way of another; returns the metadata.
    async fn stored(
        &self,
        upload: &StoragePath,
        path: &StoragePath,
        body: Body,
    ) -> Result<Metadata, HttpFailure> {
        let name = upload.clone();
        let how =
            OpenMode { write: true, creation: Creation::New, make_folders: true, mode: FILE_MODE };
        let (file, _) =
            self.call(move |logical| logical.files.open(&name, how, Opaque(b""))).await?;
        self.write(&file, body).await?;
        let (from, to) = (upload.clone(), path.clone());
        self.call(move |logical| {
            file.sync()?;
            logical.exports.rename(&from, &to)?;
            logical.exports.metadata(&to, Opaque(b""))
        })
        .await
    }

    async fn write(&self, file: &Arc<SharedFile>, body: Body) -> Result<(), HttpFailure> {
        let mut chunks = body.into_data_stream();
        let (mut piece, mut offset) = (BytesMut::with_capacity(PIECE_BYTES), 0);
        loop {
            let chunk = match chunks.next().await {
                Some(chunk) => Some(chunk.map_err(|error| {
                    HttpFailure::Malformed(format!(
                        "the body of the request is incomplete: {error}"
                    ))
                })?),
                None => None,
            };
            let is_last = chunk.is_none();
            piece.extend_from_slice(&chunk.unwrap_or_default());
            if !piece.is_empty() && (is_last || piece.len() >= PIECE_BYTES) {
                let (file, bytes) = (Arc::clone(file), piece.split().freeze());
                let count = bytes.len() as u64;
                self.call(move |_| file.write_at(offset, &bytes)).await?;
                offset += count;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Removes a file or an empty folder.
    pub(super) async fn delete(&self) -> Result<Response, HttpFailure> {
        let path = self.changeable_path()?.clone();
        self.check(Action::Modify, &path)?;
        let existing = self.existing().await?;
        self.check_conditions(existing.as_ref())?;
        let is_folder = existing.as_ref().is_some_and(is_folder);
        self.call(move |logical| {
            if is_folder {
                logical.exports.remove_folder(&path)
            } else {
                logical.exports.remove_file(&path, Opaque(b""))
            }
        })
        .await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Makes a folder, whose parent must exist.
    pub(super) async fn mkcol(&self) -> Result<Response, HttpFailure> {
        let path = self.changeable_path()?.clone();
        self.check(Action::Create, &path)?;
        let made = self.call(move |logical| logical.exports.make_folder(&path, FOLDER_MODE, false));
        match made.await {
            Ok(()) => Ok(StatusCode::CREATED.into_response()),
            Err(HttpFailure::Storage(StorageError::Refused(Errno::EEXIST, what))) => {
                Err(HttpFailure::NotAllowed(what))
            }
            // RFC 4918, 9.3.1: a missing parent is a conflict, not a missing resource.
            Err(HttpFailure::Storage(StorageError::Refused(Errno::ENOENT, what))) => {
                Err(HttpFailure::Conflict(what))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Renames a file or a folder.
    pub(super) async fn rename(&self) -> Result<Response, HttpFailure> {
        let from = self.changeable_path()?.clone();
        let to = self.destination()?;
        let target = to.path.clone();
        self.check(Action::Modify, &from)?;
        self.check(Action::Modify, &target)?;
        if to.has_snapshot || to.is_federation {
            return Err(HttpFailure::Conflict(format!("{target} cannot be changed over HTTP")));
        }
        let keeps = self.header(&OVERWRITE).is_some_and(|value| value.eq_ignore_ascii_case("F"));
        let is_there = move |error: &StorageError| !is_absent(error);
        let (name, place) = (from.clone(), target.clone());
        let replaced = self
            .call(move |logical| match logical.exports.metadata(&place, Opaque(b"")) {
                Ok(_) => Ok(true),
                Err(error) if is_there(&error) => Err(error),
                Err(_) => Ok(false),
            })
            .await?;
        if replaced && keeps {
            return Err(HttpFailure::Precondition(format!(
                "{target} exists, and may not be replaced"
            )));
        }
        self.call(move |logical| logical.exports.rename(&name, &target)).await?;
        let code = if replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        Ok(code.into_response())
    }

    /// The location in the header `Destination`, a URL of this server or its path.
    fn destination(&self) -> Result<UrlLocation, HttpFailure> {
        let header = self.header(&DESTINATION);
        let header =
            header.ok_or_else(|| HttpFailure::Malformed("there is no Destination".to_owned()))?;
        let uri: Uri = header.parse().map_err(|error| {
            HttpFailure::Malformed(format!("the Destination {header:?} is no URL: {error}"))
        })?;
        UrlLocation::of(&uri, &self.site.federations)
    }

    /// The path, if it can be changed over HTTP at all.
    fn changeable_path(&self) -> Result<&StoragePath, HttpFailure> {
        let path = &self.location.path;
        if self.location.is_federation {
            let what = format!("{path} belongs to a federation, which is changed by transactions");
            return Err(HttpFailure::NotAllowed(what));
        }
        Ok(path)
    }

    /// The metadata of the path, if it exists.
    async fn existing(&self) -> Result<Option<Metadata>, HttpFailure> {
        match self.metadata().await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(HttpFailure::Storage(error)) if is_absent(&error) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn check_conditions(&self, existing: Option<&Metadata>) -> Result<(), HttpFailure> {
        let tag = existing.map(|metadata| validators::entity_tag(metadata, None));
        let modified = existing.map(|metadata| metadata.modified);
        match validators::check(&self.headers, tag.as_deref(), modified)? {
            ConditionOutcome::Proceed => Ok(()),
            ConditionOutcome::NotModified => {
                Err(HttpFailure::Precondition(format!("{} exists already", self.location.path)))
            }
        }
    }
}

fn is_folder(metadata: &Metadata) -> bool {
    metadata.kind == FileKind::Folder
}

fn is_absent(error: &StorageError) -> bool {
    matches!(error, StorageError::Refused(Errno::ENOENT | Errno::ENOTDIR, _))
}
