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
            failure = watched(&progress, &lines, (MARKER_INTERVAL, IDLE_MAX)) => Err(failure),
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

/// Sends markers, and returns when the copy must be given up: if its client has disconnected, or no byte moves for this
/// time.
async fn watched(
    progress: &CopyProgress,
    lines: &Lines,
    (marker_interval, idle_max): (Duration, Duration),
) -> HttpFailure {
    let gone = || HttpFailure::Broken("the client has disconnected".to_owned());
    let (mut last, mut since) = (progress.state(), Instant::now());
    let mut ticks = interval_at(since + marker_interval, marker_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = lines.closed() => return gone(),
        }
        let now = progress.state();
        let (bytes, is_settling) = now;
        let time_max = if is_settling { SETTLE_MAX } else { idle_max };
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= time_max {
            let what = format!("no byte has moved for {} s", time_max.as_secs());
            return HttpFailure::Elsewhere(what);
        }
        let sent = timeout(STALL_MAX, lines.send(Ok(marker(bytes).into()))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return gone();
        }
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

    #[tokio::test]
    async fn a_copy_without_a_byte_that_moves_is_given_up() {
        let progress = CopyProgress::default();
        progress.add(7);
        let (lines, mut told) = mpsc::channel(100);
        let times = (Duration::from_millis(10), Duration::from_millis(50));
        let failure = watched(&progress, &lines, times).await;
        assert_eq!(failure.text(), "no byte has moved for 0 s");
        drop(lines);
        let mut markers = 0;
        while let Some(Ok(marker)) = told.recv().await {
            let text = std::str::from_utf8(&marker).expect("a text");
            assert!(text.starts_with("Perf Marker\n    Timestamp: "), "{text}");
            assert!(
                text.ends_with("    Stripe Bytes Transferred: 7\n    Total Stripe Count: 1\nEnd\n")
            );
            markers += 1;
        }
        assert!((1..=5).contains(&markers), "{markers} markers");
    }

    #[tokio::test]
    async fn a_copy_whose_bytes_have_all_moved_has_no_time_limit() {
        let progress = CopyProgress::default();
        progress.settle();
        let (lines, _told) = mpsc::channel(100);
        let times = (Duration::from_millis(10), Duration::from_millis(50));
        let waited = timeout(Duration::from_millis(200), watched(&progress, &lines, times));
        assert!(waited.await.is_err());
        progress.restart();
        watched(&progress, &lines, times).await;
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
