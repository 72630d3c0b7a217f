//! The answer to `COPY`: markers, which report every five seconds how many bytes have moved, and the outcome.
//!
//! The answer begins before the copy, so its status reports only that the copy has begun, and a failure is counted
//! here.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use femtobarn_catalog::clock;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::logical::request_counts::{ClientProtocol, RequestCounts};
use crate::protocol::http::files::STALL_MAX;
use crate::protocol::http::files::failure::HttpFailure;

/// The time between two markers.
const MARKER_INTERVAL: Duration = Duration::from_secs(5);
/// The longest time of a copy without a byte that moves.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// The longest time, after all bytes have moved, until both sides have stored and summed them.
const SETTLE_MAX: Duration = Duration::from_secs(1800);

/// The progress of a copy.
#[derive(Debug, Default)]
pub(super) struct CopyProgress {
    moved: AtomicU64,
    is_settling: AtomicBool,
}

impl CopyProgress {
    /// No byte has moved in a new attempt.
    pub(super) fn restart(&self) {
        self.is_settling.store(false, Ordering::Relaxed);
        self.moved.store(0, Ordering::Relaxed);
    }

    /// Further bytes have moved.
    pub(super) fn add(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records that all bytes have moved.
    pub(super) fn settle(&self) {
        self.is_settling.store(true, Ordering::Relaxed);
    }

    /// The number of bytes moved, and whether they are all.
    fn state(&self) -> (u64, bool) {
        (self.moved.load(Ordering::Relaxed), self.is_settling.load(Ordering::Relaxed))
    }
}

type Lines = Sender<Result<Bytes, Infallible>>;

/// Makes a copy while its client listens, and reports its progress. `what` names it in the log.
pub(super) fn answer(
    progress: Arc<CopyProgress>,
    what: String,
    counts: Arc<RequestCounts>,
    copy: impl Future<Output = Result<(), HttpFailure>> + Send + 'static,
) -> Response {
    let (lines, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let _ = lines.send(Ok(marker(0).into())).await;
        let outcome = tokio::select! {
            outcome = copy => outcome,
            failure = watched(&progress, &lines, MARKER_INTERVAL) => Err(failure),
        };
        let bytes = progress.moved.load(Ordering::Relaxed);
        let last = match outcome {
            Ok(()) => {
                tracing::info!(what, bytes, "copied");
                "success: Created\n".to_owned()
            }
            Err(failure) => {
                let why = failure.text().replace(['\r', '\n'], " ");
                tracing::warn!(what, bytes, why, "not copied");
                counts.count_error(ClientProtocol::Http, failure.kind());
                format!("failure: {why}\n")
            }
        };
        // A client that does not read must not keep this task.
        let _ = timeout(STALL_MAX, lines.send(Ok(last.into()))).await;
    });
    let headers = [(CONTENT_TYPE, "text/perf-marker-stream"), (CACHE_CONTROL, "no-store")];
    let body = Body::from_stream(ReceiverStream::new(receiver));
    (StatusCode::ACCEPTED, headers, body).into_response()
}

/// Sends a marker after each interval, and returns when the copy must be given up: if its client has disconnected, or no
/// byte moves for too long.
async fn watched(progress: &CopyProgress, lines: &Lines, marker_interval: Duration) -> HttpFailure {
    let gone = || HttpFailure::Broken("the client has disconnected".to_owned());
    let mut last = LastMove { state: progress.state(), since: Instant::now() };
    let mut ticks = interval_at(last.since + marker_interval, marker_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = lines.closed() => return gone(),
        }
        let now = progress.state();
        if let Err(failure) = last.compare(now, Instant::now()) {
            return failure;
        }
        let sent = timeout(STALL_MAX, lines.send(Ok(marker(now.0).into()))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return gone();
        }
    }
}

/// The progress of a copy when it last changed, as far as was looked.
struct LastMove {
    state: (u64, bool),
    since: Instant,
}

impl LastMove {
    /// Compares the progress with the last one.
    ///
    /// # Errors
    /// [`HttpFailure::Elsewhere`] if it has not changed for too long.
    fn compare(&mut self, state: (u64, bool), now: Instant) -> Result<(), HttpFailure> {
        let (_, is_settling) = state;
        let time_max = if is_settling { SETTLE_MAX } else { IDLE_MAX };
        if state != self.state {
            *self = LastMove { state, since: now };
        } else if now - self.since >= time_max {
            let what = format!("no byte has moved for {} s", time_max.as_secs());
            return Err(HttpFailure::Elsewhere(what));
        }
        Ok(())
    }
}

fn marker(bytes: u64) -> String {
    let time = clock::utc().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!(
        "Perf Marker\n    Timestamp: {time}\n    Stripe Index: 0\n    Stripe Bytes Transferred: {bytes}\n    Total Stripe Count: 1\nEnd\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_without_a_byte_that_moves_is_given_up() {
        const INSTANT: Duration = Duration::from_nanos(1);
        let (progress, start) = (CopyProgress::default(), Instant::now());
        let mut last = LastMove { state: progress.state(), since: start };
        let given_up = |last: &mut LastMove, after| {
            last.compare(progress.state(), start + after).err().map(|failure| failure.text())
        };
        assert_eq!(given_up(&mut last, IDLE_MAX - INSTANT), None);
        progress.add(7);
        assert_eq!(given_up(&mut last, IDLE_MAX), None);
        assert_eq!(given_up(&mut last, IDLE_MAX * 2 - INSTANT), None);
        let idle = Some("no byte has moved for 60 s".to_owned());
        assert_eq!(given_up(&mut last, IDLE_MAX * 2), idle);
        progress.settle();
        assert_eq!(given_up(&mut last, IDLE_MAX * 2), None);
        assert_eq!(given_up(&mut last, IDLE_MAX * 2 + SETTLE_MAX - INSTANT), None);
        let settling = Some("no byte has moved for 1800 s".to_owned());
        assert_eq!(given_up(&mut last, IDLE_MAX * 2 + SETTLE_MAX), settling);
        progress.restart();
        assert_eq!(given_up(&mut last, IDLE_MAX * 2 + SETTLE_MAX), None);
        assert_eq!(given_up(&mut last, IDLE_MAX * 3 + SETTLE_MAX), idle);
    }

    #[tokio::test]
    async fn markers_are_sent_until_the_client_disconnects() {
        let progress = CopyProgress::default();
        progress.add(7);
        let (lines, mut told) = mpsc::channel::<Result<Bytes, Infallible>>(1);
        let listens = async move {
            for _ in 0..3 {
                let Some(Ok(marker)) = told.recv().await else { panic!("a marker is missing") };
                let text = std::str::from_utf8(&marker).expect("a text");
                assert!(text.starts_with("Perf Marker\n    Timestamp: "), "{text}");
                let end = "    Stripe Bytes Transferred: 7\n    Total Stripe Count: 1\nEnd\n";
                assert!(text.ends_with(end), "{text}");
            }
        };
        let interval = Duration::from_millis(1);
        let (failure, ()) = tokio::join!(watched(&progress, &lines, interval), listens);
        assert_eq!(failure.text(), "the client has disconnected");
    }

    #[tokio::test]
    async fn a_copy_that_fails_is_counted_though_its_answer_has_begun() {
        let counts = Arc::<RequestCounts>::default();
        let failed = async { Err(HttpFailure::Elsewhere("it does not answer".to_owned())) };
        let answer = answer(Arc::default(), String::new(), Arc::clone(&counts), failed);
        let told = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a text");
        assert!(told.ends_with(b"failure: it does not answer\n"), "{told:?}");
        let unavailable = counts.errors(ClientProtocol::Http)["unavailable"];
        assert_eq!(unavailable, 1);
    }

    #[tokio::test]
    async fn a_copy_ends_with_its_client() {
        let (running, ended) = tokio::sync::oneshot::channel::<()>();
        let copy = async move {
            let _running = running;
            std::future::pending().await
        };
        drop(answer(Arc::default(), String::new(), Arc::default(), copy));
        assert!(ended.await.is_err());
    }
}
