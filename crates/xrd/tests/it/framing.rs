//! Guarantees of the framers beyond separating messages: a body that arrives in one piece is not copied, the
//! caller may read data from the socket without them, and partial answers are joined.

use bytes::Bytes;
use xrd::request::{PgRead, Ping, Request, Write};
use xrd::response::{Attention, Status, StatusKind};
use xrd::segment::Segment;
use xrd::{
    AnswerJoiner, ErrorCode, Failure, FileHandle, Joined, PathId, RequestCode, RequestEvent,
    RequestFramer, Response, ResponseEvent, ResponseFramer, StreamId,
};

const STREAM: StreamId = StreamId([0, 1]);
const OTHER: StreamId = StreamId([0, 2]);

fn sent(responses: &[(StreamId, Response)]) -> Bytes {
    let mut bytes = Vec::new();
    for (stream, response) in responses {
        response.encode(*stream, &mut bytes).unwrap();
        if let Response::Status(status) = response {
            bytes.extend(vec![b'x'; status.data_bytes as usize]);
        }
    }
    bytes.into()
}

fn joined(responses: &[(StreamId, Response)]) -> Vec<(StreamId, Joined)> {
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    let (mut input, mut all) = (sent(responses), Vec::new());
    while let Some(ResponseEvent::Response(received)) = framer.next(&mut input).unwrap() {
        all.extend(answers.push(received).unwrap());
    }
    all
}

fn ok(text: &'static str) -> Response {
    Response::Ok(text.into())
}

fn part(text: &'static str) -> Response {
    Response::OkSoFar(text.into())
}

fn status(kind: StatusKind, offset: u64) -> Status {
    Status { request: RequestCode::PG_READ, kind, offset, data_bytes: 5 }
}

#[test]
fn bodies_and_data_in_one_piece_are_not_copied() {
    let handle = FileHandle::default();
    let mut bytes = Vec::new();
    let write = Write { handle, offset: 0, path: PathId(0), length: 1000 };
    Request::from(write).encode(STREAM, &mut bytes).unwrap();
    bytes.extend([5; 1000]);
    let mut input = Bytes::from(bytes);
    let data = input.as_ptr().wrapping_add(24);
    let mut framer = RequestFramer::after_handshake();
    framer.next(&mut input).unwrap();
    let Some(RequestEvent::Data { bytes, remaining: 0, .. }) = framer.next(&mut input).unwrap()
    else {
        panic!()
    };
    assert_eq!((bytes.as_ptr(), bytes.len()), (data, 1000));
}

#[test]
fn data_may_bypass_the_framer() {
    let handle = FileHandle::default();
    let write = Request::from(Write { handle, offset: 0, path: PathId(0), length: 1000 });
    let mut bytes = Vec::new();
    write.encode(STREAM, &mut bytes).unwrap();
    let mut framer = RequestFramer::after_handshake();
    framer.next(&mut Bytes::from(bytes.clone())).unwrap();
    assert_eq!(framer.data_remaining(), 1000);
    framer.data_taken(999);
    let last = framer.next(&mut Bytes::from_static(b"!")).unwrap();
    assert!(matches!(last, Some(RequestEvent::Data { remaining: 0, .. })));
    assert!(matches!(framer.next(&mut bytes.into()), Ok(Some(RequestEvent::Request(_)))));
}

#[test]
fn data_on_a_bound_stream_are_expected_there() {
    let handle = FileHandle::default();
    let write = Request::from(Write { handle, offset: 0, path: PathId(3), length: 5 });
    assert_eq!((write.data_bytes(), write.data_elsewhere()), (0, Some((PathId(3), 5))));
    let mut bytes = Vec::new();
    for request in [write, Ping.into()] {
        request.encode(STREAM, &mut bytes).unwrap();
    }
    // A malformed write keeps the connection in step, too.
    let mut broken = bytes.clone();
    broken[8] = 0x80;
    for mut input in [Bytes::from(bytes), Bytes::from(broken)] {
        let mut framer = RequestFramer::after_handshake();
        framer.next(&mut input).unwrap();
        let Some(RequestEvent::Request(ping)) = framer.next(&mut input).unwrap() else { panic!() };
        assert_eq!(ping.request, Ok(Ping.into()));
    }
    let mut there = RequestFramer::after_handshake();
    there.expect_data(OTHER, 5);
    let event = there.next(&mut Bytes::from_static(b"12345")).unwrap();
    let data = RequestEvent::Data { stream: OTHER, bytes: "12345".into(), remaining: 0 };
    assert_eq!(event, Some(data));
    there.expect_data(STREAM, 1);
    assert_eq!(there.data_remaining(), 1);
}

#[test]
fn data_of_a_response_may_be_streamed() {
    let mut framer = ResponseFramer::new();
    framer.stream_data_of(STREAM);
    let mut input = sent(&[(STREAM, ok("abc")), (OTHER, ok("def"))]);
    let Some(ResponseEvent::Response(first)) = framer.next(&mut input).unwrap() else { panic!() };
    assert_eq!((first.response, first.streamed_bytes), (Ok(ok("")), 3));
    framer.data_taken(1);
    _ = input.split_to(1);
    let event = framer.next(&mut input).unwrap();
    let rest = ResponseEvent::Data { stream: STREAM, bytes: "bc".into(), remaining: 0 };
    assert_eq!(event, Some(rest));
    let Some(ResponseEvent::Response(second)) = framer.next(&mut input).unwrap() else { panic!() };
    assert_eq!((second.response, second.streamed_bytes), (Ok(ok("def")), 0));
}

#[test]
fn parts_are_joined_for_each_stream_separately() {
    let all = joined(&[
        (STREAM, part("a")),
        (OTHER, part("1")),
        (STREAM, part("b")),
        (OTHER, ok("2")),
        (STREAM, ok("")),
    ]);
    let expected = [(OTHER, Joined::Response(ok("12"))), (STREAM, Joined::Response(ok("ab")))];
    assert_eq!(all, expected);
}

#[test]
fn an_error_response_drops_earlier_parts_of_the_answer() {
    let failure = Response::Error(Failure::new(ErrorCode::IO_ERROR, "lost"));
    let all = joined(&[(STREAM, part("a")), (STREAM, failure.clone()), (STREAM, ok("b"))]);
    let expected = [(STREAM, Joined::Response(failure)), (STREAM, Joined::Response(ok("b")))];
    assert_eq!(all, expected);
}

#[test]
fn a_delayed_answer_belongs_to_its_request() {
    let response = Box::new(ok("late"));
    let delayed = Response::Attn(Attention::Response { stream: OTHER, response });
    let all = joined(&[(OTHER, Response::WaitResp(5)), (StreamId::default(), delayed)]);
    let expected =
        [(OTHER, Joined::Response(Response::WaitResp(5))), (OTHER, Joined::Response(ok("late")))];
    assert_eq!(all, expected);
}

#[test]
fn pages_are_joined_as_a_list() {
    let all = joined(&[
        (STREAM, Response::Status(status(StatusKind::PARTIAL, 0))),
        (STREAM, Response::Status(status(StatusKind::PROGRESS, 0))),
        (STREAM, Response::Status(status(StatusKind::FINAL, 4096))),
    ]);
    let [(STREAM, Joined::Pages(pages))] = &all[..] else { panic!("{all:?}") };
    let offsets: Vec<_> = pages.iter().map(|pages| pages.status.offset).collect();
    assert_eq!((offsets, &pages[1].data[..]), (vec![0, 4096], &b"xxxxx"[..]));
}

#[test]
fn a_status_with_a_wrong_checksum_is_fatal_to_the_connection() {
    let mut bytes = sent(&[(STREAM, Response::Status(status(StatusKind::FINAL, 0)))]).to_vec();
    bytes[23] ^= 1;
    assert!(ResponseFramer::new().next(&mut bytes.into()).is_err());
}

#[test]
fn requests_know_their_codes() {
    let segment = Segment { handle: FileHandle::default(), length: 1, offset: 0 };
    let request = Request::from(PgRead { segment, path: None, flags: None });
    assert_eq!((request.code(), request.code().name()), (RequestCode::PG_READ, Some("pgread")));
}
