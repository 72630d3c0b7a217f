//! Arbitrary bytes are decoded or refused: never a panic, and never more memory than a limit allows.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use xrd::page::decode_pages;
use xrd::request::RequestHeader;
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{
    Answer, AttributeList, AttributeOutcomes, BindAnswer, CheckpointAnswer, Corrections,
    DirectoryList, LoginAnswer, OpenAnswer, ProtocolAnswer, ResponseHeader, SpaceLine, StatLine,
    decode_locate_answer,
};
use xrd::segment::decode_segment_data;
use xrd::{
    AnswerJoiner, ErrorCode, ErrorKind, HandshakeAnswer, Request, RequestCode, RequestEvent,
    RequestFramer, Response, ResponseEvent, ResponseFramer, StreamId, limits,
};

use crate::samples::{request, response};

/// Decodes requests until the end of the bytes or an error.
fn decode_requests(mut framer: RequestFramer, bytes: &[u8]) -> Vec<RequestEvent> {
    let (mut input, mut events) = (Bytes::copy_from_slice(bytes), Vec::new());
    loop {
        match framer.next(&mut input) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return events,
            Err(error) => {
                assert_eq!(framer.next(&mut input), Err(error), "an error is final");
                return events;
            }
        }
    }
}

fn count_responses(bytes: &[u8]) -> usize {
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    let (mut input, mut count) = (Bytes::copy_from_slice(bytes), 0);
    while let Ok(Some(event)) = framer.next(&mut input) {
        count += 1;
        if let ResponseEvent::Response(received) = event {
            _ = answers.push(received);
        }
    }
    count
}

fn header(code: RequestCode, length: u32) -> Vec<u8> {
    let stream = StreamId([0, 1]);
    RequestHeader { stream, code, parameters: [0; 16], length }.encode().to_vec()
}

/// The first event in these bytes.
fn one_event(bytes: &[u8]) -> Result<Option<RequestEvent>, xrd::Error> {
    RequestFramer::after_handshake().next(&mut Bytes::copy_from_slice(bytes))
}

#[test]
fn a_negative_length_is_fatal_to_the_connection() {
    for length in [1 << 31, u32::MAX] {
        let error = one_event(&header(RequestCode::STAT, length)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        let bytes = [&[0, 1, 0, 0][..], &length.to_be_bytes()].concat();
        assert!(ResponseFramer::new().next(&mut bytes.into()).is_err());
    }
}

#[test]
fn a_body_beyond_its_limit_is_refused_and_skipped() {
    let mut bytes = header(RequestCode::READ_V, 48_000);
    bytes.extend(vec![0; 48_000]);
    bytes.extend(header(RequestCode::PING, 0));
    let events = decode_requests(RequestFramer::after_handshake(), &bytes);
    let [RequestEvent::Request(refused), RequestEvent::Request(ping)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(refused.request.as_ref().unwrap_err().code(), ErrorCode::ARG_TOO_LONG);
    assert!(ping.request.is_ok());
}

#[test]
fn a_length_of_almost_two_gigabytes_takes_no_memory() {
    let longest = i32::MAX as u32;
    assert_eq!(
        one_event(&header(RequestCode::STAT, longest)).unwrap_err().kind(),
        ErrorKind::TooLong
    );
    assert_eq!(
        one_event(&header(RequestCode::WRITE_V, longest)).unwrap_err().kind(),
        ErrorKind::TooLong
    );
    let Ok(Some(RequestEvent::Request(write))) = one_event(&header(RequestCode::WRITE, longest))
    else {
        panic!()
    };
    assert_eq!(write.request.unwrap().data_bytes(), u64::from(longest));
    let bytes = [&[0, 1, 0, 0][..], &longest.to_be_bytes()].concat();
    assert!(ResponseFramer::new().next(&mut bytes.into()).is_err());
}

#[test]
fn data_of_a_refused_write_are_not_taken_for_a_request() {
    let mut bytes = header(RequestCode::WRITE, 3);
    bytes[8] = 0x80; // a negative offset
    bytes.extend(b"abc");
    bytes.extend(header(RequestCode::PING, 0));
    let events = decode_requests(RequestFramer::after_handshake(), &bytes);
    let [RequestEvent::Request(refused), RequestEvent::Data { .. }, RequestEvent::Request(_)] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert!(refused.request.is_err());
}

#[test]
fn an_unknown_request_is_skipped_and_the_next_one_decoded() {
    for code in [0, 2999, 3005, 3033, 65535] {
        let mut bytes = header(RequestCode(code), 2);
        bytes.extend(b"ab");
        bytes.extend(header(RequestCode::PING, 0));
        assert_eq!(decode_requests(RequestFramer::after_handshake(), &bytes).len(), 2);
    }
}

#[test]
fn another_protocol_is_refused_by_its_first_bytes() {
    let mut framer = RequestFramer::new();
    let error = framer.next(&mut Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n")).unwrap_err();
    assert_eq!(error.to_string(), "handshake at byte 0: not an XRootD handshake");
}

#[test]
fn a_body_beyond_a_lowered_limit_is_refused() {
    let mut framer = RequestFramer::after_handshake();
    framer.set_body_bytes_max(1024);
    let mut input = Bytes::from(header(RequestCode::LOGIN, 1025));
    let Ok(Some(RequestEvent::Request(refused))) = framer.next(&mut input) else { panic!() };
    assert!(refused.request.is_err());
}

#[test]
fn a_checkpoint_must_repeat_its_stream_and_hold_a_write() {
    let outer = |inner: &[u8]| {
        let mut bytes = header(RequestCode::CHKPOINT, 24);
        bytes[19] = 4;
        bytes.extend(inner);
        one_event(&bytes)
    };
    assert!(matches!(outer(&header(RequestCode::WRITE, 5)), Ok(Some(_))));
    let mut other_stream = header(RequestCode::WRITE, 5);
    other_stream[0] = 9;
    assert!(outer(&other_stream).is_err());
    assert!(outer(&header(RequestCode::READ, 0)).is_err());
    assert!(outer(&header(RequestCode::CHKPOINT, 24)).is_err());
    assert!(outer(&header(RequestCode::TRUNCATE, 5)).is_err());
    assert!(outer(&header(RequestCode::WRITE_V, 1 << 20)).is_err());
    assert!(outer(&header(RequestCode::WRITE, 1 << 31)).is_err());
}

#[test]
fn joined_answers_stay_within_their_limit() {
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    answers.set_bytes_max(100);
    let mut bytes = Vec::new();
    for stream in 0..3 {
        Response::OkSoFar(vec![1; 40].into()).encode(StreamId([0, stream]), &mut bytes).unwrap();
    }
    let mut input = Bytes::from(bytes);
    let mut outcomes = Vec::new();
    while let Some(ResponseEvent::Response(received)) = framer.next(&mut input).unwrap() {
        outcomes.push(answers.push(received).is_ok());
    }
    assert_eq!(outcomes, [true, true, false]);
}

#[test]
fn lists_longer_than_their_limits_are_refused() {
    let names = Bytes::from("a\n".repeat(limits::DIRECTORY_ENTRIES_MAX + 1));
    assert_eq!(DirectoryList::decode(&names).unwrap_err().kind(), ErrorKind::TooLong);
    let attributes = Bytes::from(vec![0; limits::ATTRIBUTES_LISTED_MAX + 1]);
    assert_eq!(AttributeList::decode(&attributes, false).unwrap_err().kind(), ErrorKind::TooLong);
    let segments = Bytes::from(vec![0; (limits::SEGMENTS_MAX + 1) * 16]);
    assert_eq!(decode_segment_data(&segments).unwrap_err().kind(), ErrorKind::TooLong);
    let servers = "Sra ".repeat(limits::LOCATED_SERVERS_MAX + 1);
    assert_eq!(decode_locate_answer(servers.as_bytes()).unwrap_err().kind(), ErrorKind::TooLong);
}

/// Every decoder of an answer.
fn decode_all(body: &Bytes) {
    _ = ProtocolAnswer::decode(body);
    _ = LoginAnswer::decode(body);
    _ = BindAnswer::decode(body);
    _ = OpenAnswer::decode(body);
    _ = CheckpointAnswer::decode(body);
    _ = StatLine::decode(body);
    _ = SpaceLine::decode(body);
    _ = DirectoryList::decode(body);
    _ = ChecksumAnswer::decode(body);
    _ = ConfigAnswer::decode(body);
    _ = AttributeOutcomes::decode(body);
    _ = AttributeList::decode(body, true);
    _ = AttributeList::decode(body, false);
    _ = HandshakeAnswer::decode(body);
    _ = Corrections::decode(body);
    _ = decode_locate_answer(body);
    _ = decode_segment_data(body);
    _ = decode_pages(4000, body, &mut Vec::new());
}

proptest! {
    #[test]
    fn every_truncation_of_a_request_waits_for_more(request in request()) {
        let mut bytes = Vec::new();
        request.encode(StreamId([3, 4]), &mut bytes).unwrap();
        for length in 0..bytes.len() {
            prop_assert_eq!(one_event(&bytes[..length]), Ok(None));
        }
    }

    #[test]
    fn every_truncated_body_is_refused_or_another_request(request in request()) {
        let mut bytes = Vec::new();
        request.encode(StreamId([3, 4]), &mut bytes).unwrap();
        let (header, body) = bytes.split_at(24);
        let header = RequestHeader::decode(header.try_into().unwrap()).unwrap();
        for length in 0..body.len() {
            _ = Request::decode(&header, &Bytes::copy_from_slice(&body[..length]));
        }
    }

    #[test]
    fn random_bodies_of_every_request_are_decoded_or_refused(
        code in 3000..3034u16,
        parameters in any::<[u8; 16]>(),
        body in vec(prop_oneof![Just(0u8), Just(b' '), Just(b'\n'), any::<u8>()], 0..200),
    ) {
        let stream = StreamId([0, 1]);
        let length = body.len() as u32;
        let header = RequestHeader { stream, code: RequestCode(code), parameters, length };
        if let Ok(request) = Request::decode(&header, &body.into()) {
            request.encode(stream, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn random_bytes_are_requests_or_errors(bytes in vec(any::<u8>(), 0..400)) {
        decode_requests(RequestFramer::new(), &bytes);
        decode_requests(RequestFramer::after_handshake(), &bytes);
        count_responses(&bytes);
    }

    #[test]
    fn damaged_messages_are_messages_or_errors(
        request in request(),
        response in response(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        request.encode(StreamId([3, 4]), &mut bytes).unwrap();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        decode_requests(RequestFramer::after_handshake(), &bytes);
        let mut bytes = Vec::new();
        response.encode(StreamId([3, 4]), &mut bytes).unwrap();
        let index = at.index(bytes.len());
        bytes[index] = byte;
        count_responses(&bytes);
    }

    #[test]
    fn random_answers_are_decoded_or_refused(
        body in vec(prop_oneof![Just(0u8), Just(b' '), Just(b'\n'), any::<u8>()], 0..200),
        status in 3999..4009u16,
        text in "[ -~\n\0]{0,100}",
    ) {
        let body = Bytes::from(body);
        decode_all(&body);
        decode_all(&Bytes::from(text));
        let length = body.len() as u32;
        let header = ResponseHeader { stream: StreamId([0; 2]), status: xrd::StatusCode(status), length };
        _ = Response::decode(&header, &body);
    }
}
