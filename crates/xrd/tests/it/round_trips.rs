//! Encoded messages decode to the same messages, whatever the pieces in which they arrive.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use xrd::page::{PageDecoder, encode_pages, wire_bytes};
use xrd::{
    Request, RequestEvent, RequestFramer, Response, ResponseEvent, ResponseFramer, StreamId,
};

use crate::samples::{request, response, stream};

/// Feeds bytes in pieces of these sizes, over and over.
fn pieces(bytes: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let (mut left, mut pieces) = (bytes, Vec::new());
    for size in sizes.iter().cycle() {
        if left.is_empty() {
            break;
        }
        let (now, later) = left.split_at((*size).min(left.len()));
        pieces.push(Bytes::copy_from_slice(now));
        left = later;
    }
    pieces
}

fn data_of(request: &Request) -> Vec<u8> {
    (0..request.data_bytes()).map(|index| index as u8).collect()
}

fn data_bytes(response: &Response) -> u32 {
    match response {
        Response::Status(status) => status.data_bytes,
        _ => 0,
    }
}

proptest! {
    #[test]
    fn requests_decode_from_any_pieces(
        requests in vec((stream(), request()), 1..6),
        sizes in vec(1..100usize, 1..5),
    ) {
        let mut bytes = xrd::HANDSHAKE.to_vec();
        for (stream, request) in &requests {
            request.encode(*stream, &mut bytes).unwrap();
            bytes.extend(data_of(request));
        }
        let mut framer = RequestFramer::new();
        let mut heard: Vec<(StreamId, Request, Vec<u8>)> = Vec::new();
        for mut input in pieces(&bytes, &sizes) {
            while let Some(event) = framer.next(&mut input).unwrap() {
                match event {
                    RequestEvent::Handshake => prop_assert!(heard.is_empty()),
                    RequestEvent::Request(one) => {
                        heard.push((one.header.stream, one.request.unwrap(), Vec::new()));
                    }
                    RequestEvent::Data { stream, bytes, remaining } => {
                        let (of, request, data) = heard.last_mut().unwrap();
                        data.extend_from_slice(&bytes);
                        prop_assert_eq!(stream, *of);
                        prop_assert_eq!(data.len() as u64 + remaining, request.data_bytes());
                    }
                }
            }
            prop_assert!(input.is_empty());
        }
        let expected: Vec<_> = requests
            .into_iter()
            .map(|(stream, request)| { let data = data_of(&request); (stream, request, data) })
            .collect();
        prop_assert_eq!(heard, expected);
    }

    #[test]
    fn responses_decode_from_any_pieces(
        responses in vec((stream(), response()), 1..6),
        sizes in vec(1..100usize, 1..5),
        streamed_bytes in stream(),
    ) {
        let mut bytes = Vec::new();
        let mut framer = ResponseFramer::new();
        framer.stream_data_of(streamed_bytes);
        for (index, (stream, response)) in responses.iter().enumerate() {
            if index == 0 {
                framer.stream_data_of(*stream);
            }
            response.encode(*stream, &mut bytes).unwrap();
            bytes.extend(vec![7; data_bytes(response) as usize]);
        }
        let mut heard: Vec<(StreamId, Response, usize)> = Vec::new();
        for mut input in pieces(&bytes, &sizes) {
            while let Some(event) = framer.next(&mut input).unwrap() {
                match event {
                    ResponseEvent::Response(one) => {
                        heard.push((one.header.stream, one.response.unwrap(), one.data.len()));
                    }
                    ResponseEvent::Data { bytes, .. } => {
                        let (_, response, data) = heard.last_mut().unwrap();
                        match response {
                            Response::Ok(body) | Response::OkSoFar(body) => {
                                *body = [&body[..], &bytes[..]].concat().into();
                            }
                            _ => *data += bytes.len(),
                        }
                    }
                }
            }
            prop_assert!(input.is_empty());
        }
        let expected: Vec<_> = responses
            .into_iter()
            .map(|(stream, response)| {
                let data = data_bytes(&response) as usize;
                (stream, response, data)
            })
            .collect();
        prop_assert_eq!(heard, expected);
    }

    #[test]
    fn pages_decode_from_any_pieces(
        offset in 0..20_000u64,
        data in vec(any::<u8>(), 0..20_000),
        sizes in vec(1..6_000usize, 1..5),
    ) {
        let mut wire = Vec::new();
        encode_pages(offset, &data, &mut wire);
        prop_assert_eq!(wire.len() as u64, wire_bytes(offset, data.len() as u64));
        let mut decoder = PageDecoder::new(offset, wire.len() as u64).unwrap();
        let (mut again, mut bad) = (Vec::new(), Vec::new());
        for piece in pieces(&wire, &sizes) {
            decoder.push(&piece, &mut again, &mut bad);
        }
        prop_assert!(bad.is_empty());
        prop_assert_eq!(decoder.remaining(), 0);
        prop_assert_eq!(again, data);
    }
}
