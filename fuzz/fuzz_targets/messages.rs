//! Arbitrary bytes in pieces of some size, decoded as XRootD requests and as XRootD responses.
//!
//! A decoded message that can be encoded decodes to the same message again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use xrd::page::decode_pages;
use xrd::request::RequestHeader;
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{
    Answer, AttributeList, AttributeOutcomes, BindAnswer, CheckpointAnswer, Corrections,
    DirectoryList, LoginAnswer, OpenAnswer, ProtocolAnswer, SpaceLine, StatLine,
    decode_locate_answer,
};
use xrd::segment::decode_segment_data;
use xrd::{
    AnswerJoiner, HandshakeAnswer, Request, RequestEvent, RequestFramer, Response, ResponseEvent,
    ResponseFramer, StreamId,
};

const HEADER_BYTES: usize = 24;
const STREAM: StreamId = StreamId([1, 2]);

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else { return };
    let pieces = || bytes.chunks(usize::from(size) + 1).map(Bytes::copy_from_slice);
    for framer in [RequestFramer::new(), RequestFramer::after_handshake()] {
        decode_requests(framer, pieces());
    }
    decode_responses(pieces());
    decode_answers(&Bytes::copy_from_slice(bytes));
});

fn decode_requests(mut framer: RequestFramer, pieces: impl Iterator<Item = Bytes>) {
    for mut piece in pieces {
        loop {
            match framer.next(&mut piece) {
                Ok(Some(RequestEvent::Request(received))) => {
                    if let Ok(request) = received.request {
                        check_request(&request);
                    }
                }
                Ok(Some(RequestEvent::Data { bytes, .. })) => assert!(!bytes.is_empty()),
                Ok(Some(RequestEvent::Handshake)) => {}
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(framer.next(&mut piece), Err(error), "an error is final");
                    return;
                }
            }
        }
        assert!(piece.is_empty(), "the framer consumes the whole piece");
    }
}

fn check_request(request: &Request) {
    let mut encoded = Vec::new();
    request.encode(STREAM, &mut encoded).expect("a decoded request can be encoded");
    let (header, body) =
        encoded.split_first_chunk::<HEADER_BYTES>().expect("requests have a header");
    let header = RequestHeader::decode(header).expect("the header is valid");
    let body = Bytes::copy_from_slice(body);
    assert_eq!(Request::decode(&header, &body).as_ref(), Ok(request));
}

fn decode_responses(pieces: impl Iterator<Item = Bytes>) {
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    for mut piece in pieces {
        loop {
            match framer.next(&mut piece) {
                Ok(Some(ResponseEvent::Response(received))) => {
                    if let Ok(response) = &received.response {
                        check_response(response);
                    }
                    // An invalid response is an error; the responses after it are decoded.
                    drop(answers.push(received));
                }
                Ok(Some(ResponseEvent::Data { bytes, .. })) => assert!(!bytes.is_empty()),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn check_response(response: &Response) {
    let mut encoded = Vec::new();
    // Texts of servers may have bytes that the encoder refuses.
    if response.encode(STREAM, &mut encoded).is_err() {
        return;
    }
    encoded.extend(match response {
        Response::Status(status) => vec![0; status.data_bytes.min(1 << 20) as usize],
        _ => vec![],
    });
    if let Ok(Some(ResponseEvent::Response(again))) =
        ResponseFramer::new().next(&mut Bytes::from(encoded))
    {
        assert_eq!(again.response.as_ref(), Ok(response));
    }
}

fn decode_answers(body: &Bytes) {
    drop(ProtocolAnswer::decode(body));
    drop(LoginAnswer::decode(body));
    drop(BindAnswer::decode(body));
    drop(OpenAnswer::decode(body));
    drop(CheckpointAnswer::decode(body));
    drop(StatLine::decode(body));
    drop(SpaceLine::decode(body));
    drop(DirectoryList::decode(body));
    drop(ChecksumAnswer::decode(body));
    drop(ConfigAnswer::decode(body));
    drop(AttributeOutcomes::decode(body));
    drop(AttributeList::decode(body, true));
    drop(AttributeList::decode(body, false));
    drop(HandshakeAnswer::decode(body));
    drop(Corrections::decode(body));
    drop(decode_locate_answer(body));
    drop(decode_segment_data(body));
    drop(decode_pages(4000, body, &mut Vec::new()));
}
