//! The table of requests in flight on one session: stream ids, parts of answers, timeouts. It does no I/O.
//!
//! 1. An abandoned request keeps its stream id until its answer has ended, so that a late answer is never
//!    taken for that of another request.
//! 2. The table holds at most the bytes that a request allows for its answer, as they arrived, without a copy,
//!    until the caller takes them.
//! 3. A request times out `timeout` after the last byte of any answer, since a busy server may have queued it behind
//!    other requests, and `patience` after the last byte of its own. `answer_limit`, if set, is checked as bytes of the
//!    answer arrive: an answer that takes longer ends the connection.
//! 4. Loss of the connection ends all requests.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::attempt_error::AttemptError;
use super::options::Options;
use crate::error::{Error, Result};
use crate::framing::{ReceivedResponse, ResponseEvent};
use crate::ids::StreamId;
use crate::response::{Attention, Response, Status, StatusKind};

/// Requests in flight on one session, abandoned ones included.
const IN_FLIGHT_MAX: usize = 4096;
/// The longest delay, in seconds, that a server's waitresp is granted.
const DELAY_SECONDS_MAX: u32 = 24 * 3600;

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The start of a part, with its status if the part holds pages.
    Part(Option<Status>),
    /// The next bytes of the part.
    Bytes(Bytes),
}

/// The bytes that arrived for a request since the last delivery, and its result.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    pub arrivals: VecDeque<Arrival>,
    /// The result, if the answer has ended.
    pub end: Option<Result<(), AttemptError>>,
}

/// The requests in flight.
#[derive(Debug)]
pub(super) struct RequestTable {
    pending: HashMap<StreamId, PendingRequest>,
    last: u16,
    timeout: Duration,
    patience: Duration,
    answer_limit: Option<Duration>,
    /// When the last byte of any answer arrived, or the last piece of a request was taken by the socket.
    last_moved: Option<Instant>,
    lost: Option<AttemptError>,
}

#[derive(Debug)]
struct PendingRequest {
    delivery: Delivery,
    /// Bytes that the rest of the answer may have.
    bytes_left: u64,
    sent: Instant,
    /// When the request was sent or the last byte of its answer arrived.
    last_progress: Instant,
    /// The timeout, longer if the server announced a delay.
    allowed: Duration,
    waker: Option<Waker>,
    is_abandoned: bool,
}

/// The part of an answer whose data a channel is receiving.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CurrentPart {
    pub stream: StreamId,
    /// Whether this part is the last one of its answer.
    is_last: bool,
}

impl RequestTable {
    /// An empty table, with the time limits of these options.
    pub(super) fn new(options: &Options) -> Self {
        RequestTable {
            pending: HashMap::new(),
            last: 1,
            timeout: options.request_timeout,
            patience: options.patience,
            answer_limit: options.answer_timeout,
            last_moved: None,
            lost: None,
        }
    }

    /// Adds a request whose answer has at most `bytes_max` bytes, and returns its stream id.
    ///
    /// # Errors
    /// [`AttemptError::Unreachable`] if the connection is lost or too many requests are in flight.
    pub(super) fn add(&mut self, bytes_max: u64, now: Instant) -> Result<StreamId, AttemptError> {
        if let Some(lost) = &self.lost {
            return Err(AttemptError::Unreachable(describe(lost)));
        }
        if self.pending.len() >= IN_FLIGHT_MAX {
            let what = format!("{IN_FLIGHT_MAX} requests in flight, the maximum");
            return Err(AttemptError::Unreachable(what));
        }
        let stream = loop {
            self.last = self.last.wrapping_add(1);
            let stream = StreamId(self.last.to_be_bytes());
            if self.last != 0 && !self.pending.contains_key(&stream) {
                break stream;
            }
        };
        let (delivery, allowed) = (Delivery::default(), self.timeout);
        let bytes_left = bytes_max;
        let request = PendingRequest {
            delivery,
            bytes_left,
            sent: now,
            last_progress: now,
            allowed,
            waker: None,
            is_abandoned: false,
        };
        self.pending.insert(stream, request);
        Ok(stream)
    }

    /// Takes the bytes that arrived for a request. Registers the waker, which is woken when the answer has ended.
    pub(super) fn take_delivery(&mut self, stream: StreamId, waker: &Waker) -> Delivery {
        let Some(request) = self.pending.get_mut(&stream) else {
            let unknown = || AttemptError::Lost("the request is not in flight".to_owned());
            let lost = self.lost.clone().unwrap_or_else(unknown);
            return Delivery { end: Some(Err(lost)), ..Delivery::default() };
        };
        let delivery = std::mem::take(&mut request.delivery);
        if let Some(Err(AttemptError::Silent(_))) = delivery.end {
            request.is_abandoned = true;
        } else if delivery.end.is_some() {
            self.pending.remove(&stream);
        } else if !request.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            request.waker = Some(waker.clone());
        }
        delivery
    }

    /// Discards the answer of a request, also the part that has not arrived yet.
    pub(super) fn abandon(&mut self, stream: StreamId) {
        if let Some(request) = self.pending.get_mut(&stream) {
            match request.delivery.end {
                Some(_) => _ = self.pending.remove(&stream),
                None => {
                    request.is_abandoned = true;
                    request.delivery = Delivery::default();
                    request.waker = None;
                }
            }
        }
    }

    /// Removes a request that was not sent.
    pub(super) fn withdraw(&mut self, stream: StreamId) {
        self.pending.remove(&stream);
    }

    /// Wakes the waker of one unanswered request, so that its caller becomes the reader.
    pub(super) fn wake_one(&mut self) {
        let waker = self.pending.values_mut().find_map(|request| match request.delivery.end {
            None => request.waker.take(),
            Some(_) => None,
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Handles an event of a channel's framer, which must stream all data ([`ResponseEvent::Data`]).
    ///
    /// # Errors
    /// [`Error::Malformed`] if the server violates the protocol: the connection must be closed.
    pub(super) fn on_event(
        &mut self,
        event: ResponseEvent,
        current: &mut CurrentPart,
        now: Instant,
    ) -> Result<()> {
        self.last_moved = Some(now);
        match event {
            ResponseEvent::Response(received) => self.on_response(received, current, now),
            ResponseEvent::Data { bytes, remaining, .. } => {
                let count = bytes.len() as u64;
                self.deliver(current.stream, Arrival::Bytes(bytes), count, now)?;
                self.end_part(*current, remaining);
                Ok(())
            }
        }
    }

    /// Counts data that the caller read from the socket straight into their destination.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the answer is longer than the request allows.
    pub(super) fn on_data_read(
        &mut self,
        current: CurrentPart,
        count: u32,
        remaining: u32,
        now: Instant,
    ) -> Result<()> {
        self.last_moved = Some(now);
        self.count_bytes(current.stream, count.into(), now)?;
        self.end_part(current, remaining);
        Ok(())
    }

    fn on_response(
        &mut self,
        received: ReceivedResponse,
        current: &mut CurrentPart,
        now: Instant,
    ) -> Result<()> {
        let (stream, streamed_bytes) = (received.header.stream, received.streamed_bytes);
        let (status, is_last) = match received.response? {
            Response::Ok(_) => (None, true),
            Response::OkSoFar(_) => (None, false),
            Response::Status(status) if status.kind == StatusKind::PROGRESS => {
                *current = CurrentPart { stream, is_last: false };
                return Ok(());
            }
            Response::Status(status) => (Some(status), status.kind == StatusKind::FINAL),
            Response::Attn(Attention::Response { stream, response }) => {
                return self.on_delayed_response(stream, *response, now);
            }
            other => return self.on_other_response(stream, other, now),
        };
        *current = CurrentPart { stream, is_last };
        self.deliver(stream, Arrival::Part(status), 0, now)?;
        self.end_part(*current, streamed_bytes);
        Ok(())
    }

    fn on_delayed_response(
        &mut self,
        stream: StreamId,
        response: Response,
        now: Instant,
    ) -> Result<()> {
        let is_last = matches!(response, Response::Ok(_));
        match response {
            Response::Ok(body) | Response::OkSoFar(body) => {
                self.deliver(stream, Arrival::Part(None), 0, now)?;
                let count = body.len() as u64;
                self.deliver(stream, Arrival::Bytes(body), count, now)?;
                self.end_part(CurrentPart { stream, is_last }, 0);
                Ok(())
            }
            other => self.on_other_response(stream, other, now),
        }
    }

    fn on_other_response(
        &mut self,
        stream: StreamId,
        response: Response,
        now: Instant,
    ) -> Result<()> {
        match response {
            Response::Error(failure) => self.end(stream, Err(AttemptError::Failure(failure))),
            Response::Redirect(redirect) => self.end(stream, Err(AttemptError::Redirect(redirect))),
            Response::Wait(wait) => self.end(stream, Err(AttemptError::Wait(wait))),
            Response::WaitResp(seconds) => self.delay(stream, seconds, now),
            Response::Attn(_) => {}
            other => {
                let reason = format!("unexpected status {}", other.status());
                return Err(Error::malformed("response header", 2, reason));
            }
        }
        Ok(())
    }

    /// Extends a request's timeout by the delay that the server announces.
    fn delay(&mut self, stream: StreamId, seconds: u32, now: Instant) {
        if let Some(request) = self.pending.get_mut(&stream) {
            let announced = Duration::from_secs(seconds.min(DELAY_SECONDS_MAX).into());
            (request.last_progress, request.allowed) = (now, self.timeout + announced);
        }
    }

    fn deliver(
        &mut self,
        stream: StreamId,
        arrival: Arrival,
        count: u64,
        now: Instant,
    ) -> Result<()> {
        self.count_bytes(stream, count, now)?;
        if let Some(request) = self.pending.get_mut(&stream)
            && !request.is_abandoned
        {
            request.delivery.arrivals.push_back(arrival);
        }
        Ok(())
    }

    fn count_bytes(&mut self, stream: StreamId, count: u64, now: Instant) -> Result<()> {
        if let Some(request) = self.pending.get_mut(&stream) {
            request.last_progress = now;
            let took = now.duration_since(request.sent);
            if self.answer_limit.is_some_and(|limit| took > limit) && !request.is_abandoned {
                self.fail_all(AttemptError::Silent(took));
                return Ok(());
            }
            request.bytes_left = request.bytes_left.checked_sub(count).ok_or_else(|| {
                let reason = "more data than requested";
                Error::malformed("answer", 8, reason)
            })?;
        }
        Ok(())
    }

    fn end_part(&mut self, current: CurrentPart, remaining: u32) {
        if current.is_last && remaining == 0 {
            self.end(current.stream, Ok(()));
        }
    }

    fn end(&mut self, stream: StreamId, end: Result<(), AttemptError>) {
        let Some(request) = self.pending.get_mut(&stream) else { return };
        if request.is_abandoned {
            self.pending.remove(&stream);
            return;
        }
        request.delivery.end.get_or_insert(end);
        if let Some(waker) = request.waker.take() {
            waker.wake();
        }
    }

    /// Records that the socket took a piece of a request: a slow connection does not count as lost.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.last_moved = Some(now);
    }

    /// Ends requests that have timed out. If nothing was sent, no byte of any answer arrived and no delayed answer is
    /// announced, the connection counts as lost.
    pub(super) fn expire(&mut self, now: Instant) {
        let is_announced = self.pending.values().any(|request| request.allowed > self.timeout);
        let (last_moved, patience) = (self.last_moved, self.patience);
        let mut silence = None;
        for request in self.pending.values_mut().filter(|request| !request.is_abandoned) {
            let last = last_moved
                .map_or(request.last_progress, |last_moved| last_moved.max(request.last_progress));
            let is_silent = now.duration_since(last) >= request.allowed;
            let alone = now.duration_since(request.last_progress);
            if !is_silent && alone < patience.max(request.allowed) {
                continue;
            }
            let silent = AttemptError::Silent(alone);
            if is_silent && !is_announced {
                silence = Some(silent.clone());
            }
            request.delivery.end.get_or_insert(Err(silent));
            request.waker.take().into_iter().for_each(Waker::wake);
        }
        if let Some(silence) = silence {
            self.fail_all(silence);
        }
    }

    /// Ends all requests, since the connection is lost.
    pub(super) fn fail_all(&mut self, how: AttemptError) {
        for request in self.pending.values_mut() {
            request.delivery.end.get_or_insert(Err(how.clone()));
            request.waker.take().into_iter().for_each(Waker::wake);
        }
        self.pending.retain(|_, request| !request.is_abandoned);
        self.lost.get_or_insert(how);
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the connection is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}

fn describe(lost: &AttemptError) -> String {
    match lost {
        AttemptError::Lost(reason) => reason.clone(),
        AttemptError::Malformed(error) => error.to_string(),
        _ => "the connection was lost".to_owned(),
    }
}

#[cfg(test)]
mod tests;
