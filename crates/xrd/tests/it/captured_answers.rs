//! Answers of a real server, recorded from Debian's XRootD 5.5.3 with a file of ten bytes. Each decodes to
//! the right answer and encodes to the same bytes again.

use bytes::Bytes;
use xrd::page::decode_pages;
use xrd::response::query::ChecksumAnswer;
use xrd::response::{
    Answer, Corrections, DirectoryList, LoginAnswer, OpenAnswer, ProtocolAnswer, StatLine,
    decode_locate_answer, encode_locate_answer,
};
use xrd::segment::decode_segment_data;
use xrd::{
    AnswerJoiner, ErrorCode, HandshakeAnswer, Joined, Pages, ProtocolVersion, Response,
    ResponseEvent, ResponseFramer,
};

use crate::captured::bytes_of;

/// The answers that the responses in these bytes join to. Each response must encode to the same bytes again.
fn answers_of(hex: &str) -> Vec<Joined> {
    let bytes = bytes_of(hex);
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    let (mut input, mut again, mut all) = (Bytes::from(bytes.clone()), Vec::new(), Vec::new());
    while let Some(ResponseEvent::Response(received)) = framer.next(&mut input).unwrap() {
        let response = received.response.clone().unwrap();
        response.encode(received.header.stream, &mut again).unwrap();
        again.extend_from_slice(&received.data);
        all.extend(answers.push(received).unwrap().map(|(_, joined)| joined));
    }
    assert_eq!(again, bytes);
    all
}

fn body_of(hex: &str) -> Bytes {
    match answers_of(hex).pop() {
        Some(Joined::Response(Response::Ok(body))) => body,
        other => panic!("{other:?}"),
    }
}

fn pages_of(hex: &str) -> Pages {
    match answers_of(hex).pop() {
        Some(Joined::Pages(pages)) if pages.len() == 1 => pages[0].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_to_handshake_protocol_and_login_round_trip() {
    let hello = HandshakeAnswer::decode(&body_of("0000000000000008 00000511 00000001")).unwrap();
    assert!(hello.data_server && hello.version == ProtocolVersion::PAGES);
    let protocol = body_of("0000000000000008 00000511 00300001");
    assert_eq!(ProtocolAnswer::decode(&protocol).unwrap().encode().unwrap(), protocol);
    let login = body_of("0000000000000010 04000000f33c00001700000004000000");
    assert_eq!(LoginAnswer::decode(&login).unwrap().encode().unwrap(), login);
}

#[test]
fn answers_to_open_and_stat_have_a_stat_line() {
    let body = body_of(
        "0100000000000056 00000000 00000000 00000000
         343438393533313937393938353838363820313020343820313730303030303030302031373935333431303637
         20313730303030303030302030363434206e6f626f647920726f6f7400",
    );
    let open = OpenAnswer::decode(&body).unwrap();
    let stat = open.stat.clone().unwrap();
    assert_eq!((stat.size, stat.modified, stat.flags.0), (10, 1_700_000_000, 48));
    assert_eq!(open.encode().unwrap(), body);
    let body = body_of(
        "010000000000004a
         343438393533333137393938353838363820313020343820313739353334313036382031373935333431303638
         20313739353334313036382030363434206e6f626f647920726f6f7400",
    );
    let stat = StatLine::decode(&body).unwrap();
    assert_eq!(stat.extension.as_ref().unwrap().owner, "nobody");
    assert_eq!(stat.encode().unwrap(), body);
}

#[test]
fn answers_to_pgread_have_checksums_and_those_to_pgwrite_corrections() {
    let read = pages_of(
        "01000fa700000018 ae057454 0100 1e 00 00000000 0000000e 0000000000000000
         280c069e 30313233343536373839",
    );
    let mut data = Vec::new();
    assert_eq!(decode_pages(read.status.offset, &read.data, &mut data), Ok(vec![]));
    assert_eq!(data, b"0123456789");

    // The only page is the first and the last one.
    let written = pages_of(
        "01000fa700000018 6d8705e2 0100 1a 00 00000000 00000010 0000000000000000
         f9b36114 000a 000a 0000000000000000",
    );
    let corrections = Corrections::decode(&written.data).unwrap();
    let expected = Corrections { first_bytes: 10, last_bytes: 10, offsets: vec![0] };
    assert_eq!(corrections, expected);
    assert_eq!(corrections.encode().unwrap(), written.data);
}

#[test]
fn close_fails_while_pages_are_uncorrected() {
    let answers = answers_of(
        "01000fa300000022 00000bcb
         3120756e636f7272656374656420636865636b73756d206572726f727300",
    );
    let [Joined::Response(Response::Error(failure))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(failure.code, ErrorCode::CHECKSUM_ERROR);
    assert_eq!(failure.message, "1 uncorrected checksum errors");
}

#[test]
fn answers_to_readv_dirlist_and_locate_follow_the_reference() {
    let body = body_of("0100000000000013 00000000 00000003 0000000000000002 323334");
    assert_eq!(decode_segment_data(&body).unwrap()[0].data, "234");
    let body = body_of(
        "0100000000000056 2e0a302030203020300a 660a
         343438393533333137393938353838363820313020343820313739353334313036382031373935333431303638
         20313739353334313036372030363434206e6f626f647920726f6f7400",
    );
    let list = DirectoryList::decode(&body).unwrap();
    assert_eq!((list.with_stat, &list.entries[0].name[..]), (true, &b"f"[..]));
    assert_eq!(list.encode().unwrap(), body);
    let body = body_of("0100000000000016 53775b3a3a3132372e302e302e315d3a333130393400");
    let servers = decode_locate_answer(&body).unwrap();
    assert_eq!(servers[0].address, "[::127.0.0.1]:31094");
    assert_eq!(encode_locate_answer(&servers).unwrap(), body);
}

#[test]
fn a_delayed_checksum_arrives_as_an_attention() {
    // The answer waitresp has a text after its seconds, which programs ignore.
    let bytes = bytes_of(
        "01000fa600000012 00000258 4a6f62207363686564756c65642e
         00000fa100000021 00001390 00000000 0100 0000 00000011
         61646c6572333220306166663032306500",
    );
    let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
    let (mut input, mut all) = (Bytes::from(bytes), Vec::new());
    while let Some(ResponseEvent::Response(received)) = framer.next(&mut input).unwrap() {
        all.extend(answers.push(received).unwrap());
    }
    let [(first, Joined::Response(Response::WaitResp(600))), (second, Joined::Response(last))] =
        &all[..]
    else {
        panic!("{all:?}");
    };
    assert_eq!(first, second);
    let Response::Ok(body) = last else { panic!("{last:?}") };
    let checksum = ChecksumAnswer::decode(body).unwrap();
    assert_eq!((checksum.kind.as_str(), checksum.digest.as_str()), ("adler32", "0aff020e"));
}
