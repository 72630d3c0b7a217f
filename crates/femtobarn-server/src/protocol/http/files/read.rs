//! `GET` and `HEAD` of files.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::response::Builder;
use nix::errno::Errno;
use uuid::Uuid;

use super::FileRequest;
use super::content::{self, AnswerPart};
use super::digests::DIGEST;
use super::failure::HttpFailure;
use super::ranges::{RequestedBytes, requested};
use super::validators::{self, ConditionOutcome, http_date};
use crate::auth::Action;
use crate::logical::files::SharedFile;
use crate::physical::{Metadata, OpenMode, Storage, StorageError};

const BYTES: &str = "application/octet-stream";

/// An open file, for an answer.
struct OpenedFile {
    file: Arc<SharedFile>,
    metadata: Metadata,
    tag: String,
}

impl FileRequest {
    /// The bytes of a file, or the list of a folder; without its body for `HEAD`, which clients with any right may send.
    pub(super) async fn get(&self, is_head: bool) -> Result<Response, HttpFailure> {
        if is_head {
            self.check_visible(&self.location.path)?;
        } else {
            self.check(Action::Read, &self.location.path)?;
        }
        let opened = match self.open().await {
            Err(HttpFailure::Storage(StorageError::Refused(Errno::EISDIR, _))) => {
                return self.folder_page(is_head).await;
            }
            opened => opened?,
        };
        let (tag, modified) = (Some(&*opened.tag), Some(opened.metadata.modified));
        let answer = self.described(&opened);
        if validators::check(&self.headers, tag, modified, true)? == ConditionOutcome::NotModified {
            return finished(answer.status(StatusCode::NOT_MODIFIED), Body::empty());
        }
        if self.wants_digest() {
            // A digest reveals the content of the file, so the client needs the right to read it.
            self.check(Action::Read, &self.location.path)?;
        }
        let digest = self.digest(&opened.file, &opened.metadata).await?;
        let answer = match digest {
            Some(digest) => answer.header(DIGEST, digest),
            None => answer,
        };
        let size = opened.metadata.size;
        let has_ranges = !is_head
            && validators::allows_ranges(&self.headers, &opened.tag, opened.metadata.modified);
        let header = if has_ranges { self.header(&RANGE) } else { None };
        match requested(header, size)? {
            RequestedBytes::Whole => {
                let answer = answer.header(CONTENT_LENGTH, size).header(CONTENT_TYPE, BYTES);
                if is_head || size == 0 {
                    return finished(answer, Body::empty());
                }
                finished(answer, self.body(opened.file, vec![AnswerPart::Range(0..size)]).await?)
            }
            RequestedBytes::Ranges(ranges) => {
                let answer = answer.status(StatusCode::PARTIAL_CONTENT);
                match &*ranges {
                    [range] => self.one_range(answer, opened.file, range.clone(), size).await,
                    _ => self.several_ranges(answer, opened.file, &ranges, size).await,
                }
            }
        }
    }

    /// The metadata of the path.
    pub(super) async fn metadata(&self) -> Result<Metadata, HttpFailure> {
        let location = self.location.clone();
        self.call(move |logical| logical.exports.metadata(&location.path, location.opaque()))
            .await
            .map_err(missing_below_a_file)
    }

    /// The file, opened for sending it to another server, and its size.
    pub(super) async fn open_to_push(&self) -> Result<(Arc<SharedFile>, u64), HttpFailure> {
        self.check(Action::Read, &self.location.path)?;
        let opened = self.open().await?;
        Ok((opened.file, opened.metadata.size))
    }

    async fn open(&self) -> Result<OpenedFile, HttpFailure> {
        let (location, client) = (self.location.clone(), self.client);
        let opened = self.call(move |logical| {
            logical.files.open(&location.path, OpenMode::default(), location.opaque(), client)
        });
        let (file, metadata) = opened.await.map_err(missing_below_a_file)?;
        let tag = validators::entity_tag(&metadata);
        Ok(OpenedFile { file, metadata, tag })
    }

    /// An answer with the headers of a file.
    fn described(&self, opened: &OpenedFile) -> Builder {
        let is_public = self.identity.how == "anonymous";
        let caching = match (self.location.is_immutable, self.location.is_federation) {
            (true, _) if is_public => "public, max-age=31536000, immutable",
            (true, _) => "private, max-age=31536000, immutable",
            (false, true) => "no-store",
            (false, false) => "no-cache",
        };
        Response::builder()
            .header(ETAG, &opened.tag)
            .header(LAST_MODIFIED, http_date(opened.metadata.modified))
            .header(ACCEPT_RANGES, "bytes")
            .header(CACHE_CONTROL, caching)
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
    }

    async fn one_range(
        &self,
        answer: Builder,
        file: Arc<SharedFile>,
        range: Range<u64>,
        size: u64,
    ) -> Result<Response, HttpFailure> {
        let answer = answer
            .header(CONTENT_LENGTH, range.end - range.start)
            .header(CONTENT_TYPE, BYTES)
            .header(CONTENT_RANGE, content_range(&range, size));
        finished(answer, self.body(file, vec![AnswerPart::Range(range)]).await?)
    }

    /// An answer with several ranges: exactly the requested ones, in the requested order, on which JSROOT and uproot
    /// rely.
    async fn several_ranges(
        &self,
        answer: Builder,
        file: Arc<SharedFile>,
        ranges: &[Range<u64>],
        size: u64,
    ) -> Result<Response, HttpFailure> {
        let boundary = Uuid::new_v4().simple();
        let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
        let mut length = 0;
        for range in ranges {
            let place = content_range(range, size);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {BYTES}\r\nContent-Range: {place}\r\n\r\n"
            );
            length += head.len() as u64 + (range.end - range.start);
            parts.extend([AnswerPart::Text(head.into()), AnswerPart::Range(range.clone())]);
        }
        let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
        length += end.len() as u64;
        parts.push(AnswerPart::Text(end));
        let answer = answer
            .header(CONTENT_LENGTH, length)
            .header(CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"));
        finished(answer, self.body(file, parts).await?)
    }

    async fn body(
        &self,
        file: Arc<SharedFile>,
        parts: Vec<AnswerPart>,
    ) -> Result<Body, HttpFailure> {
        content::body(&self.site, file, parts).await
    }
}

/// A path below a file does not exist, to readers.
fn missing_below_a_file(failure: HttpFailure) -> HttpFailure {
    match failure {
        HttpFailure::Storage(StorageError::Refused(Errno::ENOTDIR, what)) => {
            HttpFailure::Storage(StorageError::Refused(Errno::ENOENT, what))
        }
        other => other,
    }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// The answer with a body.
pub(super) fn finished(answer: Builder, body: Body) -> Result<Response, HttpFailure> {
    answer.body(body).map_err(|error| HttpFailure::Broken(error.to_string()))
}
