//! The requests of one session that are not answered yet, without I/O.
//!
//! 1. A request that nobody waits for any more keeps its stream id until its answer has ended, so
//!    that what comes late is no other request's answer.
//! 2. What is held for a request is at most what it asked for; it is held as it came, without being
//!    copied, until who waits for it takes it.
//! 3. A request lives as long as bytes of answers come, its own or, since it may be behind others on a
//!    server that has much to do, for a while those of others: its time counts from the last of them.
//! 4. A connection that is lost answers all its requests.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::failure::AttemptError;
use crate::error::{Error, Result};
use crate::framing::{ReceivedResponse, ResponseEvent};
use crate::ids::StreamId;
use crate::response::{Attention, Response, Status, StatusKind};

/// Requests in flight on one session, those that were given up among them.
const IN_FLIGHT_MAX: usize = 4096;
/// Seconds that a server may announce for a delayed answer.
const DELAY_SECONDS_MAX: u32 = 24 * 3600;

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A part begins; those of pages have a status.
    Part(Option<Status>),
    /// The next bytes of the part.
    Bytes(Bytes),
}

/// What has come for a request since it was looked at last.
#[derive(Debug, Default)]
pub(super) struct News {
    pub arrivals: VecDeque<Arrival>,
    /// Whether the answer has ended, and how.
    pub end: Option<Result<(), AttemptError>>,
}

/// Requests that are not answered yet.
#[derive(Debug)]
pub(super) struct Requests {
    waiting: HashMap<StreamId, Waiting>,
    last: u16,
    timeout: Duration,
    /// The same where others are answered meanwhile.
    patience: Duration,
    /// When anything came.
    heard: Option<Instant>,
    lost: Option<AttemptError>,
}

#[derive(Debug)]
struct Waiting {
    news: News,
    /// Bytes that the rest of the answer may have.
    bytes_left: u64,
    sent: Instant,
    allowed: Duration,
    waker: Option<Waker>,
    is_abandoned: bool,
}

/// The answer that a link is in the middle of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Current {
    pub stream: StreamId,
    /// Whether the answer ends with this part.
    is_last: bool,
}

impl Requests {
    /// Requests that may each go for `timeout` without a byte of any answer, and for `patience` without
    /// one of their own.
    pub fn new(timeout: Duration, patience: Duration) -> Self {
        Requests { waiting: HashMap::new(), last: 1, timeout, patience, heard: None, lost: None }
    }

    /// A name for a request, whose answer has at most so many bytes.
    pub fn add(&mut self, bytes_max: u64, now: Instant) -> Result<StreamId, AttemptError> {
        if let Some(lost) = &self.lost {
            return Err(AttemptError::Unreachable(describe(lost)));
        }
        if self.waiting.len() >= IN_FLIGHT_MAX {
            let what = format!("{IN_FLIGHT_MAX} requests are not answered");
            return Err(AttemptError::Unreachable(what));
        }
        let stream = loop {
            self.last = self.last.wrapping_add(1);
            let stream = StreamId(self.last.to_be_bytes());
            if self.last != 0 && !self.waiting.contains_key(&stream) {
                break stream;
            }
        };
        let (news, allowed) = (News::default(), self.timeout);
        let bytes_left = bytes_max;
        let waiting =
            Waiting { news, bytes_left, sent: now, allowed, waker: None, is_abandoned: false };
        self.waiting.insert(stream, waiting);
        Ok(stream)
    }

    /// What has come for a request; the waker is told of the end.
    pub fn take(&mut self, stream: StreamId, waker: &Waker) -> News {
        let Some(waiting) = self.waiting.get_mut(&stream) else {
            let nothing = || AttemptError::Lost("the request is not known".to_owned());
            let lost = self.lost.clone().unwrap_or_else(nothing);
            return News { end: Some(Err(lost)), ..News::default() };
        };
        let news = std::mem::take(&mut waiting.news);
        if let Some(Err(AttemptError::Silent(_))) = news.end {
            waiting.is_abandoned = true;
        } else if news.end.is_some() {
            self.waiting.remove(&stream);
        } else if !waiting.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            waiting.waker = Some(waker.clone());
        }
        news
    }

    /// Nobody waits for this answer any more.
    pub fn abandon(&mut self, stream: StreamId) {
        if let Some(waiting) = self.waiting.get_mut(&stream) {
            match waiting.news.end {
                Some(_) => _ = self.waiting.remove(&stream),
                None => {
                    waiting.is_abandoned = true;
                    waiting.news = News::default();
                    waiting.waker = None;
                }
            }
        }
    }

    /// Wakes somebody who waits, to read for all.
    pub fn wake_one(&mut self) {
        let waker = self.waiting.values_mut().find_map(|waiting| match waiting.news.end {
            None => waiting.waker.take(),
            Some(_) => None,
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what a link's framer, which hands out everything, made of the server's bytes.
    ///
    /// # Errors
    /// If the server does not keep to the protocol: the connection is of no use any more.
    pub fn hear(
        &mut self,
        event: ResponseEvent,
        current: &mut Current,
        now: Instant,
    ) -> Result<()> {
        self.heard = Some(now);
        match event {
            ResponseEvent::Response(received) => self.hear_response(received, current, now),
            ResponseEvent::Data { bytes, remaining, .. } => {
                let count = bytes.len() as u64;
                self.arrive(current.stream, Arrival::Bytes(bytes), count, now)?;
                self.end_part(*current, remaining);
                Ok(())
            }
        }
    }

    /// Counts bytes that a waiter read from a link to where they belong.
    ///
    /// # Errors
    /// As [`Requests::hear`].
    pub fn taken(
        &mut self,
        current: Current,
        count: u32,
        remaining: u32,
        now: Instant,
    ) -> Result<()> {
        self.heard = Some(now);
        self.count(current.stream, count.into(), now)?;
        self.end_part(current, remaining);
        Ok(())
    }

    fn hear_response(
        &mut self,
        received: ReceivedResponse,
        current: &mut Current,
        now: Instant,
    ) -> Result<()> {
        let (stream, handed_out) = (received.header.stream, received.handed_out);
        let (status, is_last) = match received.response? {
            Response::Ok(_) => (None, true),
            Response::OkSoFar(_) => (None, false),
            Response::Status(status) if status.kind == StatusKind::PROGRESS => {
                *current = Current { stream, is_last: false };
                return Ok(());
            }
            Response::Status(status) => (Some(status), status.kind == StatusKind::FINAL),
            Response::Attn(Attention::Response { stream, response }) => {
                return self.hear_delayed(stream, *response, now);
            }
            other => return self.hear_plain(stream, other, now),
        };
        *current = Current { stream, is_last };
        self.arrive(stream, Arrival::Part(status), 0, now)?;
        self.end_part(*current, handed_out);
        Ok(())
    }

    fn hear_delayed(&mut self, stream: StreamId, response: Response, now: Instant) -> Result<()> {
        let is_last = matches!(response, Response::Ok(_));
        match response {
            Response::Ok(body) | Response::OkSoFar(body) => {
                self.arrive(stream, Arrival::Part(None), 0, now)?;
                let count = body.len() as u64;
                self.arrive(stream, Arrival::Bytes(body), count, now)?;
                self.end_part(Current { stream, is_last }, 0);
                Ok(())
            }
            other => self.hear_plain(stream, other, now),
        }
    }

    fn hear_plain(&mut self, stream: StreamId, response: Response, now: Instant) -> Result<()> {
        match response {
            Response::Error(failure) => self.end(stream, Err(AttemptError::Failure(failure))),
            Response::Redirect(redirect) => self.end(stream, Err(AttemptError::Redirect(redirect))),
            Response::Wait(wait) => self.end(stream, Err(AttemptError::Wait(wait))),
            Response::WaitResp(seconds) => self.delay(stream, seconds, now),
            Response::Attn(_) => {}
            other => {
                let reason = format!("{} answers no request", other.status());
                return Err(Error::malformed("response header", 2, reason));
            }
        }
        Ok(())
    }

    /// The answer comes in about so many seconds.
    fn delay(&mut self, stream: StreamId, seconds: u32, now: Instant) {
        if let Some(waiting) = self.waiting.get_mut(&stream) {
            let announced = Duration::from_secs(seconds.min(DELAY_SECONDS_MAX).into());
            (waiting.sent, waiting.allowed) = (now, self.timeout + announced);
        }
    }

    fn arrive(
        &mut self,
        stream: StreamId,
        arrival: Arrival,
        count: u64,
        now: Instant,
    ) -> Result<()> {
        self.count(stream, count, now)?;
        if let Some(waiting) = self.waiting.get_mut(&stream)
            && !waiting.is_abandoned
        {
            waiting.news.arrivals.push_back(arrival);
        }
        Ok(())
    }

    fn count(&mut self, stream: StreamId, count: u64, now: Instant) -> Result<()> {
        if let Some(waiting) = self.waiting.get_mut(&stream) {
            waiting.sent = now;
            waiting.bytes_left = waiting.bytes_left.checked_sub(count).ok_or_else(|| {
                let reason = "there are more data than were asked for";
                Error::malformed("answer", 8, reason)
            })?;
        }
        Ok(())
    }

    fn end_part(&mut self, current: Current, remaining: u32) {
        if current.is_last && remaining == 0 {
            self.end(current.stream, Ok(()));
        }
    }

    fn end(&mut self, stream: StreamId, end: Result<(), AttemptError>) {
        let Some(waiting) = self.waiting.get_mut(&stream) else { return };
        if waiting.is_abandoned {
            self.waiting.remove(&stream);
            return;
        }
        waiting.news.end.get_or_insert(end);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }

    /// Ends requests of whose answers no byte came for too long. Where nothing else came either, nor
    /// was announced for later, the connection is taken for lost.
    pub fn expire(&mut self, now: Instant) {
        let is_announced = self.waiting.values().any(|waiting| waiting.allowed > self.timeout);
        let (heard, patience) = (self.heard, self.patience);
        let mut silence = None;
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.is_abandoned) {
            let last = heard.map_or(waiting.sent, |heard| heard.max(waiting.sent));
            let is_silent = now.duration_since(last) >= waiting.allowed;
            let alone = now.duration_since(waiting.sent);
            if !is_silent && alone < patience.max(waiting.allowed) {
                continue;
            }
            let silent = AttemptError::Silent(alone);
            if is_silent && !is_announced {
                silence = Some(silent.clone());
            }
            waiting.news.end.get_or_insert(Err(silent));
            waiting.waker.take().into_iter().for_each(Waker::wake);
        }
        if let Some(silence) = silence {
            self.lose(silence);
        }
    }

    /// The connection is lost: ends all requests.
    pub fn lose(&mut self, how: AttemptError) {
        for waiting in self.waiting.values_mut() {
            waiting.news.end.get_or_insert(Err(how.clone()));
            waiting.waker.take().into_iter().for_each(Waker::wake);
        }
        self.waiting.retain(|_, waiting| !waiting.is_abandoned);
        self.lost.get_or_insert(how);
    }

    /// Whether nothing is due.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the connection is lost.
    pub fn is_lost(&self) -> bool {
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
mod tests {
    use super::*;
    use crate::framing::ResponseFramer;
    use crate::response::Failure;
    use crate::{ErrorCode, response::Wait};

    const TIMEOUT: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(600);

    struct Session {
        requests: Requests,
        framer: ResponseFramer,
        current: Current,
        began: Instant,
        now: Instant,
    }

    impl Session {
        fn new() -> Self {
            let mut framer = ResponseFramer::new();
            framer.hand_out_all();
            let (requests, current) = (Requests::new(TIMEOUT, PATIENCE), Current::default());
            let now = Instant::now();
            Session { requests, framer, current, began: now, now }
        }

        fn ask(&mut self, bytes_max: u64) -> StreamId {
            self.requests.add(bytes_max, self.now).unwrap()
        }

        /// Lets the server say something, in pieces of a few bytes.
        fn hear(&mut self, stream: StreamId, responses: &[Response]) -> Result<()> {
            let mut bytes = Vec::new();
            responses.iter().for_each(|response| response.encode(stream, &mut bytes).unwrap());
            for piece in bytes.chunks(5) {
                let mut input = Bytes::copy_from_slice(piece);
                while let Some(event) = self.framer.next(&mut input)? {
                    self.requests.hear(event, &mut self.current, self.now)?;
                }
            }
            Ok(())
        }

        fn take(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), AttemptError>>) {
            let news = self.requests.take(stream, Waker::noop());
            let bytes = news.arrivals.iter().flat_map(|arrival| match arrival {
                Arrival::Part(_) => &[],
                Arrival::Bytes(bytes) => &bytes[..],
            });
            (bytes.copied().collect(), news.end)
        }
    }

    fn ok(text: &'static str) -> Response {
        Response::Ok(text.into())
    }

    #[test]
    fn answers_of_many_requests_come_in_any_order() {
        let mut session = Session::new();
        let (one, two) = (session.ask(100), session.ask(100));
        session.hear(one, &[Response::OkSoFar("first ".into())]).unwrap();
        session.hear(two, &[ok("other")]).unwrap();
        assert_eq!(session.take(one), (b"first ".to_vec(), None));
        session.hear(one, &[ok("second")]).unwrap();
        assert_eq!(session.take(two), (b"other".to_vec(), Some(Ok(()))));
        assert_eq!(session.take(one), (b"second".to_vec(), Some(Ok(()))));
        assert!(session.requests.is_idle());
    }

    #[test]
    fn an_answer_is_no_longer_than_asked_for() {
        let mut session = Session::new();
        let stream = session.ask(3);
        assert!(session.hear(stream, &[ok("long")]).is_err());
        let stream = session.ask(3);
        let delayed = Attention::Response { stream, response: Box::new(ok("long")) };
        assert!(session.hear(StreamId::default(), &[Response::Attn(delayed)]).is_err());
    }

    #[test]
    fn who_was_given_up_keeps_its_name_until_it_is_answered() {
        let mut session = Session::new();
        let stream = session.ask(10);
        session.requests.abandon(stream);
        assert!(!session.requests.is_idle());
        session.hear(stream, &[Response::OkSoFar("late".into()), ok("r")]).unwrap();
        assert!(session.requests.is_idle());
    }

    #[test]
    fn bytes_and_announced_delays_give_a_request_more_time() {
        let mut session = Session::new();
        let (read, slow) = (session.ask(100), session.ask(100));
        session.now += TIMEOUT / 2;
        session.hear(read, &[Response::OkSoFar("some".into())]).unwrap();
        session.hear(slow, &[Response::WaitResp(1000)]).unwrap();
        session.now += TIMEOUT * 3 / 4;
        session.requests.expire(session.now);
        assert_eq!(session.take(read).1, None);
        session.now += TIMEOUT / 2;
        session.requests.expire(session.now);
        assert_eq!(session.take(read).1, Some(Err(AttemptError::Silent(TIMEOUT * 5 / 4))));
        assert_eq!(session.take(slow).1, None);
    }

    #[test]
    fn a_request_waits_while_others_are_answered_but_not_for_ever() {
        let mut session = Session::new();
        let behind = session.ask(10);
        while session.now.duration_since(session.began) < PATIENCE - TIMEOUT {
            let other = session.ask(10);
            session.now += TIMEOUT * 3 / 4;
            session.requests.expire(session.now);
            session.hear(other, &[ok("done")]).unwrap();
            assert_eq!(session.take(behind).1, None);
            assert_eq!(session.take(other).1, Some(Ok(())));
        }
        session.now = session.began + PATIENCE;
        session.hear(StreamId::default(), &[ok("")]).unwrap();
        session.requests.expire(session.now);
        assert_eq!(session.take(behind).1, Some(Err(AttemptError::Silent(PATIENCE))));
        assert!(!session.requests.is_lost(), "others are answered");
    }

    #[test]
    fn silence_of_all_loses_the_connection() {
        let mut session = Session::new();
        let stream = session.ask(10);
        session.requests.expire(session.now + TIMEOUT);
        assert!(session.requests.is_lost());
        assert_eq!(session.take(stream).1, Some(Err(AttemptError::Silent(TIMEOUT))));
        assert!(matches!(session.requests.add(1, session.now), Err(AttemptError::Unreachable(_))));
    }

    #[test]
    fn what_is_no_answer_ends_its_request_alone() {
        let mut session = Session::new();
        let (one, two, three) = (session.ask(9), session.ask(9), session.ask(9));
        let failure = Failure::new(ErrorCode::NOT_FOUND, "no");
        let wait = Wait { seconds: 3, message: String::new() };
        session.hear(one, &[Response::Error(failure.clone())]).unwrap();
        session.hear(two, &[Response::Wait(wait.clone())]).unwrap();
        assert_eq!(session.take(one).1, Some(Err(AttemptError::Failure(failure))));
        assert_eq!(session.take(two).1, Some(Err(AttemptError::Wait(wait))));
        assert_eq!(session.take(three).1, None);
        assert!(session.hear(three, &[Response::AuthMore(Bytes::new())]).is_err());
    }

    #[test]
    fn requests_in_flight_are_bounded() {
        let mut session = Session::new();
        for _ in 0..IN_FLIGHT_MAX {
            session.ask(0);
        }
        assert!(session.requests.add(0, session.now).is_err());
    }
}
