//! The bytes of a copy, and their checksum, which the other server is asked for when they have moved: an earlier
//! question would delay the first byte until it has read a large file.
//!
//! 1. A server may answer before it has accepted all bytes. A push succeeds only if they were all sent before its
//!    answer.
//! 2. After an answer that is not the last one, the connection is ended with the bytes that the server has not
//!    accepted.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use femtobarn_http::causes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, EXPECT, IF_NONE_MATCH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use simd_adler32::Adler32;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tokio_stream::StreamExt;

use super::markers::CopyProgress;
use super::order::{CopyOrder, DigestDemand, OtherFile};
use super::others::{OtherServers, ServerVisit};
use crate::logical::files::SharedFile;
use crate::protocol::http::files::FileRequest;
use crate::protocol::http::files::content::{self, AnswerPart};
use crate::protocol::http::files::digests::DIGEST;
use crate::protocol::http::files::failure::HttpFailure;
use crate::protocol::http::files::upload::PendingUpload;

/// How long a server may take to accept a request before the bytes are sent: it may redirect, and would throw them
/// away.
const GO_AHEAD_MAX: Duration = Duration::from_secs(1);

impl FileRequest {
    /// Stores a file of another server.
    pub(super) async fn pull(
        &self,
        others: &OtherServers,
        order: &CopyOrder,
        mut upload: PendingUpload,
        progress: &CopyProgress,
    ) -> Result<(), HttpFailure> {
        let answer = others.ask(&order.other, Method::GET, false).await?;
        if answer.status() != StatusCode::OK {
            return Err(refused(&order.other, answer.status()));
        }
        if !has_known_end(answer.headers()) {
            return Err(HttpFailure::Elsewhere(format!(
                "{} does not report its size",
                order.other
            )));
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
        verify(others, order, sum.finish(), None).await?;
        self.finish_upload(&upload).await?;
        Ok(())
    }

    /// Stores a file at another server.
    pub(super) async fn push(
        &self,
        others: &OtherServers,
        order: &CopyOrder,
        (file, size): (Arc<SharedFile>, u64),
        progress: &Arc<CopyProgress>,
    ) -> Result<(), HttpFailure> {
        // Not every server supports conditions.
        if order.keeps_existing {
            let existing = others.ask(&order.other, Method::HEAD, false).await?;
            if existing.status().is_success() {
                return Err(HttpFailure::Precondition(format!("{} exists already", order.other)));
            }
        }
        let mut visit = ServerVisit::of(&order.other);
        let (answer, sent) = loop {
            let parts = vec![AnswerPart::Range(0..size)];
            let body = content::body(&self.site, Arc::clone(&file), parts).await?;
            progress.restart();
            if size == 0 {
                progress.settle();
            }
            // Dropping it with this attempt ends the body.
            let (_attempt, ended) = oneshot::channel();
            let sent = Arc::new(Mutex::new(SentBytes { size, ..SentBytes::default() }));
            let mut request = put(&visit, body, (Arc::clone(&sent), Arc::clone(progress)), ended);
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
            if order.keeps_existing {
                request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
            }
            let answer = others.send(request, &visit.file).await?;
            if !others.is_redirected(&mut visit, &answer)? {
                let sent = sent.lock();
                break (answer, (sent.count, sent.sum.finish()));
            }
        };
        if !answer.status().is_success() {
            return Err(refused(&order.other, answer.status()));
        }
        let (count, sum) = sent;
        if count != size {
            let what = format!("{} answered after only {count} of {size} bytes", order.other);
            return Err(HttpFailure::Elsewhere(what));
        }
        verify(others, order, sum, Some(size)).await
    }
}

/// The bytes of one attempt to store a file.
#[derive(Default)]
struct SentBytes {
    /// The number of bytes.
    size: u64,
    /// The number of bytes sent, and their checksum.
    count: u64,
    sum: Adler32,
}

/// A request that stores bytes, until the attempt is `ended`.
fn put(
    visit: &ServerVisit,
    body: Body,
    (sent, progress): (Arc<Mutex<SentBytes>>, Arc<CopyProgress>),
    ended: oneshot::Receiver<Infallible>,
) -> Request<Body> {
    let go_ahead = Arc::new(Notify::new());
    let unsent = (body.into_data_stream(), ended, Some(Arc::clone(&go_ahead)));
    let chunks = stream::try_unfold(unsent, move |(mut chunks, mut ended, awaited)| {
        let (sent, progress) = (Arc::clone(&sent), Arc::clone(&progress));
        async move {
            if let Some(awaited) = awaited {
                tokio::select! {
                    () = awaited.notified() => {}
                    // Servers that do not send an interim answer get the bytes nevertheless.
                    () = sleep(GO_AHEAD_MAX) => {}
                    _ = &mut ended => return Err(not_wanted()),
                }
            }
            let chunk = tokio::select! {
                biased;
                _ = &mut ended => return Err(not_wanted()),
                chunk = chunks.next() => chunk,
            };
            let Some(chunk) = chunk else { return Ok(None) };
            let bytes = chunk.map_err(io::Error::other)?;
            progress.add(bytes.len());
            let mut sent = sent.lock();
            sent.sum.write(&bytes);
            sent.count += bytes.len() as u64;
            if sent.count == sent.size {
                progress.settle();
            }
            drop(sent);
            Ok(Some((bytes, (chunks, ended, None))))
        }
    });
    let mut request = visit.request(&Method::PUT, Body::from_stream(chunks));
    request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            go_ahead.notify_one();
        }
    });
    request
}

fn not_wanted() -> io::Error {
    io::Error::other("the server has answered already")
}

/// Whether the end of an answer differs from that of a broken connection.
fn has_known_end(headers: &HeaderMap) -> bool {
    let encodings: Vec<_> = headers.get_all(TRANSFER_ENCODING).into_iter().collect();
    match encodings[..] {
        [] => headers.contains_key(CONTENT_LENGTH),
        [only] => only.as_bytes().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Compares a checksum with that of the other server, and the size of a file that was stored there.
async fn verify(
    others: &OtherServers,
    order: &CopyOrder,
    sum: u32,
    stored: Option<u64>,
) -> Result<(), HttpFailure> {
    if order.verification == DigestDemand::Unwanted {
        return Ok(());
    }
    let answer = others.ask(&order.other, Method::HEAD, true).await?;
    if let Some(size) = stored {
        check_stored(order, &answer, size)?;
    }
    let told = if answer.status().is_success() { adler32_of(answer.headers()) } else { None };
    match told {
        Some(told) if told == sum => Ok(()),
        Some(told) => Err(HttpFailure::Elsewhere(format!(
            "checksums differ: adler32 of {} is {told:08x}, that of the copied bytes {sum:08x}",
            order.other
        ))),
        None if order.verification == DigestDemand::Demanded => Err(HttpFailure::Elsewhere(
            format!("{} reports no adler32, but RequireChecksumVerification is true", order.other),
        )),
        None => Ok(()),
    }
}

/// Fails if a file that was stored at the other server does not exist, or has another size.
fn check_stored<T>(order: &CopyOrder, answer: &Response<T>, size: u64) -> Result<(), HttpFailure> {
    let status = answer.status();
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
        return Err(refused(&order.other, status));
    }
    let told: Option<u64> =
        answer.headers().get(CONTENT_LENGTH).and_then(|told| told.to_str().ok()?.parse().ok());
    match told {
        Some(told) if status == StatusCode::OK && told != size => {
            let what = format!("{} has {told} bytes, but {size} were sent", order.other);
            Err(HttpFailure::Elsewhere(what))
        }
        _ => Ok(()),
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
    use http::HeaderName;

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

    #[test]
    fn an_answer_that_ends_with_its_connection_may_be_cut() {
        let tells = |headers: &[(HeaderName, &'static str)]| {
            let headers = headers.iter().cloned();
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            has_known_end(&headers.collect())
        };
        assert!(tells(&[(CONTENT_LENGTH, "7")]) && tells(&[(TRANSFER_ENCODING, "Chunked")]));
        for wrong in [
            &[][..],
            &[(TRANSFER_ENCODING, "gzip")],
            &[(TRANSFER_ENCODING, "chunked, gzip"), (CONTENT_LENGTH, "7")],
        ] {
            assert!(!tells(wrong), "{wrong:?}");
        }
    }
}
