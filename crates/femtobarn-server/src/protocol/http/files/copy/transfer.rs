//! The bytes of a copy, and their checksum, which the other server is asked for when they have moved: to ask before would
//! delay the first byte until a large file was read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, EXPECT, IF_NONE_MATCH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use parking_lot::Mutex;
use simd_adler32::Adler32;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::markers::CopyProgress;
use super::order::{CopyOrder, DigestDemand, OtherFile};
use super::others::{OtherServers, ServerVisit, causes};
use crate::logical::files::SharedFile;
use crate::protocol::http::files::FileRequest;
use crate::protocol::http::files::content::{self, AnswerPart};
use crate::protocol::http::files::digests::DIGEST;
use crate::protocol::http::files::failure::HttpFailure;
use crate::protocol::http::files::upload::PendingUpload;

/// How long a server may think about a file before its bytes are sent: it may redirect, and would throw them away.
const GO_AHEAD_MAX: Duration = Duration::from_secs(1);

impl FileRequest {
    /// Stores a file of another server.
    pub(super) async fn pull(
        &self,
        order: &CopyOrder,
        mut upload: PendingUpload,
        progress: &CopyProgress,
    ) -> Result<(), HttpFailure> {
        let others = self.others()?;
        let answer = others.ask(&order.other, Method::GET, false).await?;
        if answer.status() != StatusCode::OK {
            return Err(refused(&order.other, answer.status()));
        }
        // Without either, a broken connection would look like the end of the file.
        if ![CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|it| answer.headers().contains_key(it)) {
            return Err(HttpFailure::Elsewhere(format!("{} does not tell its size", order.other)));
        }
        let mut sum = Adler32::new();
        let mut chunks = Body::new(answer.into_body()).into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let bytes = chunk.map_err(|error| {
                HttpFailure::Elsewhere(format!("{} broke off: {}", order.other, causes(&error)))
            })?;
            sum.write(&bytes);
            progress.add(bytes.len());
            upload.append(bytes).await?;
        }
        progress.settle();
        upload.complete().await?;
        verify(others, order, sum.finish()).await?;
        self.finish_upload(&upload).await?;
        Ok(())
    }

    /// Stores a file at another server.
    pub(super) async fn push(
        &self,
        order: &CopyOrder,
        (file, size): (Arc<SharedFile>, u64),
        progress: &Arc<CopyProgress>,
    ) -> Result<(), HttpFailure> {
        let others = self.others()?;
        // Not every server knows conditions.
        if order.keeps_existing {
            let existing = others.ask(&order.other, Method::HEAD, false).await?;
            if existing.status().is_success() {
                return Err(HttpFailure::Precondition(format!("{} exists already", order.other)));
            }
        }
        let mut visit = ServerVisit::of(&order.other);
        let (answer, sum) = loop {
            let parts = vec![AnswerPart::Range(0..size)];
            let body = content::body(&self.site, Arc::clone(&file), parts).await?;
            let (mut request, sum) = put(&visit, body, progress);
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
            if order.keeps_existing {
                request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
            }
            let answer = others.send(request, &visit.file).await?;
            if !others.is_redirected(&mut visit, &answer)? {
                break (answer, sum);
            }
        };
        if !answer.status().is_success() {
            return Err(refused(&order.other, answer.status()));
        }
        progress.settle();
        let sum = sum.lock().finish();
        verify(others, order, sum).await
    }

    fn others(&self) -> Result<&OtherServers, HttpFailure> {
        let none = || HttpFailure::Broken("there are no other servers".to_owned());
        self.site.others.as_ref().ok_or_else(none)
    }
}

/// A request that stores bytes, and their running checksum.
fn put(
    visit: &ServerVisit,
    body: Body,
    progress: &Arc<CopyProgress>,
) -> (Request<Body>, Arc<Mutex<Adler32>>) {
    let sum = Arc::new(Mutex::new(Adler32::new()));
    let go_ahead = Arc::new(Notify::new());
    let (summed, progress, awaited) =
        (Arc::clone(&sum), Arc::clone(progress), Arc::clone(&go_ahead));
    let chunks = (body.into_data_stream(), Some(awaited));
    let chunks = stream::unfold(chunks, move |(mut chunks, awaited)| {
        let (sum, progress) = (Arc::clone(&summed), Arc::clone(&progress));
        async move {
            if let Some(awaited) = awaited {
                // Servers that do not answer it get the bytes all the same.
                let _ = timeout(GO_AHEAD_MAX, awaited.notified()).await;
            }
            let chunk = chunks.next().await?;
            if let Ok(bytes) = &chunk {
                sum.lock().write(bytes);
                progress.add(bytes.len());
            }
            Some((chunk, (chunks, None)))
        }
    });
    let mut request = visit.request(&Method::PUT, Body::from_stream(chunks));
    request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            go_ahead.notify_one();
        }
    });
    (request, sum)
}

/// Compares a checksum with that of the other server.
async fn verify(others: &OtherServers, order: &CopyOrder, sum: u32) -> Result<(), HttpFailure> {
    if order.verification == DigestDemand::Unwanted {
        return Ok(());
    }
    let answer = others.ask(&order.other, Method::HEAD, true).await?;
    let told = if answer.status().is_success() { adler32_of(answer.headers()) } else { None };
    match told {
        Some(told) if told == sum => Ok(()),
        Some(told) => Err(HttpFailure::Elsewhere(format!(
            "checksums differ: adler32 of {} is {told:08x}, that of the bytes that moved {sum:08x}",
            order.other
        ))),
        None if order.verification == DigestDemand::Demanded => Err(HttpFailure::Elsewhere(
            format!("{} tells no adler32, and RequireChecksumVerification is true", order.other),
        )),
        None => Ok(()),
    }
}

fn adler32_of(headers: &HeaderMap) -> Option<u32> {
    let told = headers.get_all(DIGEST).into_iter().filter_map(|value| value.to_str().ok());
    told.flat_map(|value| value.split(',')).find_map(|one| {
        let (kind, value) = one.trim().split_once('=')?;
        if kind.eq_ignore_ascii_case("adler32") {
            u32::from_str_radix(value, 16).ok()
        } else {
            None
        }
    })
}

fn refused(file: &OtherFile, status: StatusCode) -> HttpFailure {
    HttpFailure::Elsewhere(format!("{file} answers {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_among_others() {
        let told = |text: &'static str| {
            adler32_of(&HeaderMap::from_iter([(DIGEST, HeaderValue::from_static(text))]))
        };
        assert_eq!(told("md5=HKMI32zbCov0DVm+KhfqwQ==, ADLER32=1A2b"), Some(0x1a2b));
        assert_eq!(told("adler32=x"), None);
        assert_eq!(told("adler32"), None);
    }
}
