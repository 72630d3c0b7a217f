//! Requests that change files: `PUT`, `DELETE`, `MKCOL`, `MOVE`.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, EXPECT};
use http::{HeaderName, StatusCode, Uri};
use nix::errno::Errno;
use percent_encoding::percent_decode;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::failure::{HttpFailure, READING_METHODS};
use super::location::UrlLocation;
use super::redirects::VIA;
use super::upload::exists_already;
use super::validators::{self, ConditionOutcome};
use super::{FileRequest, STALL_MAX};
use crate::auth::Action;
use crate::physical::{FileKind, Metadata, Opaque, Storage, StorageError, StoragePath};

pub(super) const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

const FOLDER_MODE: u32 = 0o755;

/// Bytes of a refused upload that are read, so that its client sees the answer rather than a broken connection.
const REFUSED_MAX: usize = 16 << 20;
/// The longest wait for them.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

impl FileRequest {
    /// Stores the body of the request as a file, and makes missing parent folders.
    pub(super) async fn put(&self, body: Body) -> Result<Response, HttpFailure> {
        let mut chunks = body.into_data_stream();
        let stored = self.stored(&mut chunks).await;
        if stored.is_err() {
            // The client sees the answer also if it has stopped sending.
            drop(timeout(REFUSED_WAIT, self.discard(&mut chunks)).await);
        }
        stored
    }

    /// Reads the rest of the body of a refused request, if the rest is small and the client does not wait for
    /// permission to send it.
    pub(super) async fn discard(&self, chunks: &mut BodyDataStream) {
        if self.headers.contains_key(EXPECT) {
            return;
        }
        let mut left = REFUSED_MAX;
        while let Ok(Some(chunk)) = next(chunks).await
            && chunk.len() <= left
        {
            left -= chunk.len();
        }
    }

    async fn stored(&self, chunks: &mut BodyDataStream) -> Result<Response, HttpFailure> {
        if self.headers.contains_key(CONTENT_RANGE) {
            let what = "parts of a file cannot be stored; send the whole file";
            return Err(HttpFailure::NotImplemented(what.to_owned()));
        }
        let size = self.header(&CONTENT_LENGTH).and_then(|text| text.parse().ok());
        let mut upload = self.begin_upload(size).await?;
        while let Some(chunk) = next(chunks).await? {
            upload.append(chunk).await?;
        }
        upload.complete().await?;
        let (replaces, stored) = self.finish_upload(&upload).await?;
        let code = if replaces { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        Ok((code, [(ETAG, validators::entity_tag(&stored))]).into_response())
    }

    /// Whether there is a file, which the client may replace.
    pub(super) async fn replaced(&self) -> Result<bool, HttpFailure> {
        let path = &self.location.path;
        let existing = self.existing().await?;
        if existing.is_some() {
            self.check(Action::Modify, path)?;
        }
        let is_folder = existing.as_ref().is_some_and(|found| found.kind == FileKind::Folder);
        if is_folder || self.location.is_slashed {
            return Err(HttpFailure::Conflict(format!(
                "{path} is a folder, and no file replaces it"
            )));
        }
        self.check_conditions(existing.as_ref())?;
        Ok(existing.is_some())
    }

    /// Removes a file or an empty folder.
    pub(super) async fn delete(&self) -> Result<Response, HttpFailure> {
        let path = self.changeable_path()?.clone();
        self.check(Action::Modify, &path)?;
        let existing = self.existing().await?;
        self.check_conditions(existing.as_ref())?;
        self.call(move |logical| logical.exports.remove(&path, Opaque::default())).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Makes a folder, whose parent must exist.
    pub(super) async fn mkcol(&self) -> Result<Response, HttpFailure> {
        let path = self.changeable_path()?.clone();
        self.check(Action::MakeFolder, &path)?;
        let made = self.call(move |logical| logical.exports.make_folder(&path, FOLDER_MODE, false));
        match made.await {
            Ok(()) => Ok(StatusCode::CREATED.into_response()),
            Err(HttpFailure::Storage(StorageError::Refused(Errno::EEXIST, what))) => {
                Err(HttpFailure::NotAllowed(what, "GET, HEAD, OPTIONS, PROPFIND, DELETE, MOVE"))
            }
            Err(failure) => Err(without_parent(failure)),
        }
    }

    /// Renames a file or a folder.
    pub(super) async fn rename(&self) -> Result<Response, HttpFailure> {
        let from = self.changeable_path()?.clone();
        let to = self.destination()?;
        let target = to.path.clone();
        self.check(Action::Modify, &from)?;
        // The right to a folder does not allow a file in its place.
        for action in [Action::Modify, Action::Create] {
            self.check(action, &target)?;
        }
        if to.is_federation || from == target {
            return Err(HttpFailure::Forbidden(format!("{from} cannot be moved to {target}")));
        }
        let Some(existing) = self.existing().await? else {
            return Err(StorageError::cannot("move", &from, Errno::ENOENT).into());
        };
        self.check_conditions(Some(&existing))?;
        let keeps = self.header(&OVERWRITE).is_some_and(|value| value.eq_ignore_ascii_case("F"));
        let replaced = self.metadata_at(&to).await?.is_some();
        let renamed = self.call(move |logical| {
            if keeps {
                logical.exports.rename_new(&from, &target)
            } else {
                logical.exports.rename(&from, &target)
            }
        });
        renamed.await.map_err(|failure| without_parent(exists_already(failure)))?;
        let code = if replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
        Ok(code.into_response())
    }

    /// The location in the header `Destination`: a URL of this server, or of the server that redirected the client
    /// here, or a path.
    pub(super) fn destination(&self) -> Result<UrlLocation, HttpFailure> {
        let header = self.header(&DESTINATION);
        let header = header.ok_or_else(|| {
            HttpFailure::Malformed("the header Destination is missing".to_owned())
        })?;
        let uri: Uri = header.parse().map_err(|error| {
            HttpFailure::Malformed(format!("the Destination {header:?} is not a URL: {error}"))
        })?;
        let opaque = self.location.opaque();
        let via = percent_decode(opaque.value_of(VIA).unwrap_or_default()).decode_utf8_lossy();
        if let (Some(there), Some(here)) = (uri.authority(), &self.host)
            && ![here, &*via].iter().any(|known| there.as_str().eq_ignore_ascii_case(known))
        {
            let what = format!("files can be moved only within {here}, not to {there}");
            return Err(HttpFailure::Elsewhere(what));
        }
        UrlLocation::of(&uri, &self.site.federations)
    }

    /// The path, if it can be changed over HTTP at all.
    pub(super) fn changeable_path(&self) -> Result<&StoragePath, HttpFailure> {
        let path = &self.location.path;
        if self.location.is_federation {
            let what = format!("{path} belongs to a federation, which is changed by transactions");
            return Err(HttpFailure::NotAllowed(what, READING_METHODS));
        }
        Ok(path)
    }

    /// The metadata of the path, if it exists.
    async fn existing(&self) -> Result<Option<Metadata>, HttpFailure> {
        self.metadata_at(&self.location).await
    }

    async fn metadata_at(&self, location: &UrlLocation) -> Result<Option<Metadata>, HttpFailure> {
        let location = location.clone();
        let found =
            self.call(move |logical| logical.exports.metadata(&location.path, location.opaque()));
        match found.await {
            Err(HttpFailure::Storage(StorageError::Refused(Errno::ENOENT, _))) => Ok(None),
            found => found.map(Some),
        }
    }

    fn check_conditions(&self, existing: Option<&Metadata>) -> Result<(), HttpFailure> {
        let tag = existing.map(validators::entity_tag);
        let modified = existing.map(|metadata| metadata.modified);
        match validators::check(&self.headers, tag.as_deref(), modified, false)? {
            ConditionOutcome::Proceed => Ok(()),
            ConditionOutcome::NotModified => {
                Err(HttpFailure::Precondition(format!("{} exists already", self.location.path)))
            }
        }
    }
}

/// The next bytes of a body; `None` at its end.
async fn next(chunks: &mut BodyDataStream) -> Result<Option<Bytes>, HttpFailure> {
    let Ok(chunk) = timeout(STALL_MAX, chunks.next()).await else {
        let what = format!("no bytes arrived for {} s", STALL_MAX.as_secs());
        return Err(HttpFailure::Malformed(what));
    };
    let incomplete =
        |error| HttpFailure::Malformed(format!("the body of the request is incomplete: {error}"));
    chunk.transpose().map_err(incomplete)
}

/// A missing parent is a conflict, not a missing resource (RFC 4918, 9.3.1 and 9.9.4).
fn without_parent(failure: HttpFailure) -> HttpFailure {
    match failure {
        HttpFailure::Storage(StorageError::Refused(Errno::ENOENT, what)) => {
            HttpFailure::Conflict(what)
        }
        other => other,
    }
}
