//! The request table with a server that answers in any order, late, with too many bytes or not at all.

use super::*;
use crate::framing::ResponseFramer;
use crate::response::Failure;
use crate::{ErrorCode, response::Wait};

const TIMEOUT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(600);

struct Harness {
    requests: RequestTable,
    framer: ResponseFramer,
    current: CurrentPart,
    began: Instant,
    now: Instant,
}

impl Harness {
    fn new() -> Self {
        let options =
            Options { request_timeout: TIMEOUT, patience: PATIENCE, ..Options::default() };
        Self::with(&options)
    }

    fn with(options: &Options) -> Self {
        let mut framer = ResponseFramer::new();
        framer.stream_all();
        let (requests, current) = (RequestTable::new(options), CurrentPart::default());
        let now = Instant::now();
        Harness { requests, framer, current, began: now, now }
    }

    fn ask(&mut self, bytes_max: u64) -> StreamId {
        self.requests.add(bytes_max, self.now).unwrap()
    }

    /// Feeds responses to the table in pieces of five bytes.
    fn serve(&mut self, stream: StreamId, responses: &[Response]) -> Result<()> {
        let mut bytes = Vec::new();
        responses.iter().for_each(|response| response.encode(stream, &mut bytes).unwrap());
        for piece in bytes.chunks(5) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(event) = self.framer.next(&mut input)? {
                self.requests.on_event(event, &mut self.current, self.now)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), AttemptError>>) {
        let delivery = self.requests.take_delivery(stream, Waker::noop());
        let bytes = delivery.arrivals.iter().flat_map(|arrival| match arrival {
            Arrival::Part(_) => &[],
            Arrival::Bytes(bytes) => &bytes[..],
        });
        (bytes.copied().collect(), delivery.end)
    }
}

fn ok(text: &'static str) -> Response {
    Response::Ok(text.into())
}

#[test]
fn answers_of_several_requests_may_interleave() {
    let mut harness = Harness::new();
    let (one, two) = (harness.ask(100), harness.ask(100));
    harness.serve(one, &[Response::OkSoFar("first ".into())]).unwrap();
    harness.serve(two, &[ok("other")]).unwrap();
    assert_eq!(harness.take(one), (b"first ".to_vec(), None));
    harness.serve(one, &[ok("second")]).unwrap();
    assert_eq!(harness.take(two), (b"other".to_vec(), Some(Ok(()))));
    assert_eq!(harness.take(one), (b"second".to_vec(), Some(Ok(()))));
    assert!(harness.requests.is_idle());
}

#[test]
fn an_answer_longer_than_allowed_is_an_error() {
    let mut harness = Harness::new();
    let stream = harness.ask(3);
    assert!(harness.serve(stream, &[ok("long")]).is_err());
    let stream = harness.ask(3);
    let delayed = Attention::Response { stream, response: Box::new(ok("long")) };
    assert!(harness.serve(StreamId::default(), &[Response::Attn(delayed)]).is_err());
}

#[test]
fn an_abandoned_request_keeps_its_stream_until_it_is_answered() {
    let mut harness = Harness::new();
    let stream = harness.ask(10);
    harness.requests.abandon(stream);
    assert!(!harness.requests.is_idle());
    harness.serve(stream, &[Response::OkSoFar("late".into()), ok("r")]).unwrap();
    assert!(harness.requests.is_idle());
}

#[test]
fn bytes_and_announced_delays_extend_the_timeout() {
    let mut harness = Harness::new();
    let (read, slow) = (harness.ask(100), harness.ask(100));
    harness.now += TIMEOUT / 2;
    harness.serve(read, &[Response::OkSoFar("some".into())]).unwrap();
    harness.serve(slow, &[Response::WaitResp(1000)]).unwrap();
    harness.now += TIMEOUT * 3 / 4;
    harness.requests.expire(harness.now);
    assert_eq!(harness.take(read).1, None);
    harness.now += TIMEOUT / 2;
    harness.requests.expire(harness.now);
    assert_eq!(harness.take(read).1, Some(Err(AttemptError::Silent(TIMEOUT * 5 / 4))));
    assert_eq!(harness.take(slow).1, None);
}

#[test]
fn a_request_outlives_its_timeout_while_others_are_answered_up_to_its_patience() {
    let mut harness = Harness::new();
    let behind = harness.ask(10);
    while harness.now.duration_since(harness.began) < PATIENCE - TIMEOUT {
        let other = harness.ask(10);
        harness.now += TIMEOUT * 3 / 4;
        harness.requests.expire(harness.now);
        harness.serve(other, &[ok("done")]).unwrap();
        assert_eq!(harness.take(behind).1, None);
        assert_eq!(harness.take(other).1, Some(Ok(())));
    }
    harness.now = harness.began + PATIENCE;
    harness.serve(StreamId::default(), &[ok("")]).unwrap();
    harness.requests.expire(harness.now);
    assert_eq!(harness.take(behind).1, Some(Err(AttemptError::Silent(PATIENCE))));
    assert!(!harness.requests.is_lost(), "others are answered");
}

#[test]
fn an_answer_that_drips_is_given_up_after_its_limit() {
    let options = Options { answer_timeout: Some(TIMEOUT), ..Options::default() };
    let mut harness = Harness::with(&options);
    let (dripping, other) = (harness.ask(100), harness.ask(100));
    for _ in 0..3 {
        harness.now += TIMEOUT / 3;
        harness.serve(dripping, &[Response::OkSoFar("drop".into())]).unwrap();
        assert_eq!(harness.take(dripping).1, None);
    }
    harness.now += TIMEOUT / 3;
    harness.serve(dripping, &[Response::OkSoFar("drop".into())]).unwrap();
    let late = Err(AttemptError::Silent(TIMEOUT * 4 / 3));
    assert_eq!(harness.take(dripping).1, Some(late.clone()));
    assert_eq!(harness.take(other).1, Some(late), "with its connection");
    assert!(harness.requests.is_lost());
}

#[test]
fn the_connection_is_lost_when_no_request_is_answered_in_time() {
    let mut harness = Harness::new();
    let stream = harness.ask(10);
    harness.requests.expire(harness.now + TIMEOUT);
    assert!(harness.requests.is_lost());
    assert_eq!(harness.take(stream).1, Some(Err(AttemptError::Silent(TIMEOUT))));
    assert!(matches!(harness.requests.add(1, harness.now), Err(AttemptError::Unreachable(_))));
}

#[test]
fn a_connection_that_takes_data_slowly_is_not_lost() {
    let mut harness = Harness::new();
    let stream = harness.ask(10);
    for _ in 0..3 {
        harness.now += TIMEOUT * 3 / 4;
        harness.requests.expire(harness.now);
        assert_eq!(harness.take(stream).1, None);
        harness.requests.note_sent(harness.now);
    }
    harness.requests.expire(harness.now + TIMEOUT);
    assert!(harness.requests.is_lost());
}

#[test]
fn an_error_or_wait_ends_only_its_own_request() {
    let mut harness = Harness::new();
    let (one, two, three) = (harness.ask(9), harness.ask(9), harness.ask(9));
    let failure = Failure::new(ErrorCode::NOT_FOUND, "no");
    let wait = Wait { seconds: 3, message: String::new() };
    harness.serve(one, &[Response::Error(failure.clone())]).unwrap();
    harness.serve(two, &[Response::Wait(wait.clone())]).unwrap();
    assert_eq!(harness.take(one).1, Some(Err(AttemptError::Failure(failure))));
    assert_eq!(harness.take(two).1, Some(Err(AttemptError::Wait(wait))));
    assert_eq!(harness.take(three).1, None);
    assert!(harness.serve(three, &[Response::AuthMore(Bytes::new())]).is_err());
}

#[test]
fn requests_in_flight_are_bounded() {
    let mut harness = Harness::new();
    for _ in 0..IN_FLIGHT_MAX {
        harness.ask(0);
    }
    assert!(harness.requests.add(0, harness.now).is_err());
}
