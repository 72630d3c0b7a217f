//! Responses whose bytes are known from the reference, and lists and lines in all their forms.

use bytes::Bytes;
use xrd::flags::ServerFlags;
use xrd::page::{PageRange, checksum, decode_pages, encode_pages, pages, wire_bytes};
use xrd::request::{CheckpointWrite, Chkpoint, Mv, PgWrite, Request, Write, WriteV};
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{
    Access, Answer, Attention, Corrections, DirectoryList, LocatedKind, LoginAnswer, OpenAnswer,
    ProtocolAnswer, Redirect, ResponseHeader, StatLine, Status, StatusKind, Wait,
    decode_locate_answer, encode_locate_answer,
};
use xrd::segment::Segment;
use xrd::{
    ErrorCode, Failure, FileHandle, Location, PathId, ProtocolVersion, RequestCode, Response,
    StreamId,
};

use crate::captured::bytes_of;

const STREAM: StreamId = StreamId([1, 2]);

fn encoded(response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    response.encode(STREAM, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_error_is_a_code_and_a_text_with_a_zero_byte() {
    let failure = Response::Error(Failure::new(ErrorCode::NOT_FOUND, "no"));
    assert_eq!(encoded(&failure), bytes_of("0102 0fa3 00000007 00000bc3 6e6f00"));
}

#[test]
fn a_wait_is_seconds_and_a_text_with_a_zero_byte() {
    let wait = |message: &str| Response::Wait(Wait { seconds: 300, message: message.into() });
    let decoded = |bytes: &str| {
        let bytes = bytes_of(bytes);
        let header = ResponseHeader::decode(bytes[..8].try_into().unwrap()).unwrap();
        Response::decode(&header, &Bytes::from(bytes[8..].to_vec())).unwrap()
    };
    let bytes = "0102 0fa5 00000009 0000012c 7461706500";
    assert_eq!(encoded(&wait("tape")), bytes_of(bytes));
    assert_eq!(decoded(bytes), wait("tape"));
    assert_eq!(decoded("0102 0fa5 00000008 0000012c 74617065"), wait("tape"));
    assert_eq!(decoded("0102 0fa5 00000004 0000012c"), wait(""));
}

#[test]
fn a_waitresp_has_only_seconds() {
    assert_eq!(encoded(&Response::WaitResp(600)), bytes_of("0102 0fa6 00000004 00000258"));
}

#[test]
fn a_delayed_answer_has_two_headers() {
    let response = Box::new(Response::Ok("x".into()));
    let delayed = Response::Attn(Attention::Response { stream: STREAM, response });
    let mut bytes = Vec::new();
    delayed.encode(StreamId::default(), &mut bytes).unwrap();
    let expected = "0000 0fa1 00000011  00001390 00000000  0102 0000 00000001 78";
    assert_eq!(bytes, bytes_of(expected));
}

#[test]
fn the_checksum_of_a_status_covers_all_that_follows_it() {
    let status = Status {
        request: RequestCode::PG_READ,
        kind: StatusKind::PARTIAL,
        offset: 4096,
        data_bytes: 4100,
    };
    let bytes = encoded(&Response::Status(status));
    let covered = bytes_of("0102 1e 01 00000000 00001004 0000000000001000");
    assert_eq!(bytes[..8], bytes_of("0102 0fa7 00000018"));
    assert_eq!(bytes[8..12], checksum(&covered).to_be_bytes());
    assert_eq!(bytes[12..], covered);
}

#[test]
fn checksums_are_crc32c_as_in_iscsi() {
    // RFC 7143, A.4: 32 bytes of zeros, of ones, and of 0 to 31.
    assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
    assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(checksum(&std::array::from_fn::<u8, 32, _>(|index| index as u8)), 0x46dd_794e);
    // The first page that the client of `captured` uploads.
    let page: Vec<u8> = (0..4096u32).map(|index| (index % 251) as u8).collect();
    assert_eq!(checksum(&page), 0x7190_77fc);
}

#[test]
fn corrections_are_a_checksum_two_lengths_and_offsets() {
    let corrections = Corrections { first_bytes: 4096, last_bytes: 100, offsets: vec![0, 8192] };
    let bytes = corrections.encode().unwrap();
    assert_eq!(bytes[4..], bytes_of("1000 0064 0000000000000000 0000000000002000"));
    assert_eq!(Corrections::decode(&bytes), Ok(corrections));
    let mut damaged = bytes.clone();
    damaged[9] ^= 1;
    assert!(Corrections::decode(&damaged).is_err());
}

#[test]
fn a_redirect_has_a_port_or_inverted_flags() {
    let host = Redirect::Host { port: 1094, host: "b?x=1?t=2".into() };
    assert_eq!(host.parts(), ("b", Some("x=1"), Some("t=2")));
    let bytes = encoded(&Response::Redirect(host));
    assert_eq!(bytes, bytes_of("0102 0fa4 0000000d 00000446 623f783d313f743d32"));
    let url = Redirect::Url { flags: ServerFlags::COLLAPSE_REDIRECT, url: "a://b".into() };
    let bytes = encoded(&Response::Redirect(url));
    assert_eq!(bytes, bytes_of("0102 0fa4 00000009 ffffdfff 613a2f2f62"));
}

#[test]
fn a_protocol_answer_may_have_two_more_parts() {
    let body =
        Bytes::from(bytes_of("00000520 00200001 4200 0008 6162636400000000 5300 00 01 02 01 0a02"));
    let answer = ProtocolAnswer::decode(&body).unwrap();
    assert_eq!((answer.version, answer.flags), (ProtocolVersion::CURRENT, ServerFlags(0x20_0001)));
    assert_eq!(answer.bind_interfaces.as_deref(), Some(&b"abcd\0\0\0\0"[..]));
    let signing = answer.signing.clone().unwrap();
    assert_eq!((signing.options, signing.level.0, signing.exceptions), (1, 2, vec![(10, 2)]));
    assert_eq!(answer.encode().unwrap(), body);
}

#[test]
fn a_login_answer_lists_security_protocols() {
    let body = [&[7; 16][..], b"&P=ztn,0:4096:&P=unix\0"].concat().into();
    let answer = LoginAnswer::decode(&body).unwrap();
    let protocols: Vec<_> = answer.security_protocols().collect();
    assert_eq!(protocols, [("ztn", "0:4096:"), ("unix", "")]);
    assert_eq!(answer.encode().unwrap(), body);
}

#[test]
fn an_open_answer_has_three_lengths() {
    let short = OpenAnswer::decode(&bytes_of("00000009").into()).unwrap();
    assert_eq!((short.compression, short.stat), (None, None));
    let body = [&bytes_of("00000009 00000000 00000000")[..], b"7 20 51 1700000000\0"].concat();
    let long = OpenAnswer::decode(&body.clone().into()).unwrap();
    assert_eq!(long.stat.as_ref().map(|stat| stat.size), Some(20));
    assert_eq!(long.encode().unwrap(), body);
}

#[test]
fn stat_lines_have_four_words_or_nine() {
    let long = StatLine::decode(&"-7 4096 51 1 2 3 0755 alice users\0".into()).unwrap();
    let more = long.extension.clone().unwrap();
    assert_eq!((long.id, more.mode.0, more.owner.as_str()), (-7, 0o755, "alice"));
    assert_eq!(long.encode().unwrap(), b"-7 4096 51 1 2 3 0755 alice users\0");
    assert!(StatLine::decode(&"1 2 3".into()).is_err());
    assert!(StatLine::decode(&"1 -2 3 4".into()).is_err());
}

#[test]
fn directories_list_names_stat_lines_and_checksums() {
    let plain = DirectoryList::decode(&"a\nb c\0".into()).unwrap();
    assert_eq!((plain.with_stat, plain.entries.len()), (false, 2));
    let text = ".\n0 0 0 0\na\n7 8 16 9 [ adler32:084b021f ]\nb\n7 8 18 9 1 2 0755 u g\0";
    let full = DirectoryList::decode(&text.into()).unwrap();
    assert_eq!(full.entries[0].checksum.as_ref().unwrap().digest, "084b021f");
    assert!(full.entries[1].stat.as_ref().unwrap().extension.is_some());
    assert_eq!(full.encode().unwrap(), text.as_bytes());
    for empty in ["", ".\n0 0 0 0\0", ".\n0 0 0 0\n\0"] {
        assert_eq!(DirectoryList::decode(&empty.into()).unwrap().entries, []);
    }
}

#[test]
fn located_servers_are_two_letters_and_an_address() {
    let text = "Sw[::127.0.0.1]:1094 mrhost:2000\0";
    let servers = decode_locate_answer(text.as_bytes()).unwrap();
    assert_eq!((servers[0].kind, servers[0].access), (LocatedKind::Server, Access::Write));
    assert_eq!((servers[1].kind, servers[1].online), (LocatedKind::Manager, false));
    assert_eq!(encode_locate_answer(&servers).unwrap(), text.as_bytes());
}

#[test]
fn answers_to_queries_are_words_or_lines() {
    let checksum = ChecksumAnswer::decode(&"adler32 084b021f\0".into()).unwrap();
    assert_eq!(checksum.encode().unwrap(), b"adler32 084b021f\0");
    let config = ConfigAnswer::decode(&"1024\nunknown\n\0".into()).unwrap();
    assert_eq!(config.values, ["1024", "unknown"]);
    assert_eq!(config.encode().unwrap(), b"1024\nunknown\n");
}

#[test]
fn the_first_space_separates_names_of_unknown_length() {
    let bytes = bytes_of("0102 0bc1 00000000000000000000000000000000 00000005 2f61202f62");
    let (header, body) = bytes.split_at(24);
    let header = xrd::request::RequestHeader::decode(header.try_into().unwrap()).unwrap();
    let request = Request::decode(&header, &Bytes::copy_from_slice(body)).unwrap();
    let (from, to) = (Location::new("/a").unwrap(), Location::new("/b").unwrap());
    assert_eq!(request, Request::Mv(Mv { from, to }));
}

#[test]
fn a_write_in_a_checkpoint_repeats_the_stream_and_counts_only_its_header() {
    let handle = FileHandle([0, 0, 0, 9]);
    let write = Write { handle, offset: 1, path: PathId(0), length: 5 };
    let request = Request::from(Chkpoint::Execute(CheckpointWrite::Write(write)));
    let mut bytes = Vec::new();
    request.encode(STREAM, &mut bytes).unwrap();
    let outer = "0102 0bc4 00000000 0000000000000000000000 04 00000018";
    let inner = "0102 0bcb 00000009 0000000000000001 00 000000 00000005";
    assert_eq!(bytes, bytes_of(&format!("{outer} {inner}")));
    assert_eq!(request.data_bytes(), 5);

    let segments = vec![Segment { handle, length: 3, offset: 7 }; 2];
    let many = WriteV { options: Default::default(), segments };
    let request = Request::from(Chkpoint::Execute(CheckpointWrite::WriteV(many)));
    let mut bytes = Vec::new();
    request.encode(STREAM, &mut bytes).unwrap();
    assert_eq!((bytes.len(), &bytes[20..24]), (24 + 24 + 32, &[0, 0, 0, 24][..]));
    assert_eq!((bytes[47], request.data_bytes()), (32, 6));
}

#[test]
fn messages_that_the_protocol_cannot_express_are_refused() {
    let handle = FileHandle::default();
    let long =
        PgWrite { handle, offset: 0, path: PathId(0), flags: Default::default(), length: 1 << 31 };
    let far = Write { handle, offset: 1 << 63, path: PathId(0), length: 1 };
    let text = Failure::new(ErrorCode::IO_ERROR, "a\0b");
    let mut out = vec![1];
    assert!(Request::from(long).encode(STREAM, &mut out).is_err());
    assert!(Request::from(far).encode(STREAM, &mut out).is_err());
    assert!(Response::Error(text).encode(STREAM, &mut out).is_err());
    assert_eq!(out, [1], "a failed encoding leaves no bytes");
    assert!(Location::new("").is_err() && Location::new("/a\0b").is_err());
}

#[test]
fn pages_are_aligned_to_the_file() {
    let lengths: Vec<_> = pages(1000, 8000).map(|page| page.length).collect();
    assert_eq!(lengths, [3096, 4096, 808]);
    assert_eq!((wire_bytes(1000, 8000), wire_bytes(4096, 4096), wire_bytes(5, 0)), (8012, 4100, 0));
    let mut wire = Vec::new();
    encode_pages(1000, &[7; 8000], &mut wire);
    wire[3100 + 4 + 50] ^= 1;
    let mut data = Vec::new();
    let bad = decode_pages(1000, &wire, &mut data).unwrap();
    assert_eq!(bad, [PageRange { offset: 4096, length: 4096 }]);
    assert_eq!(data.len(), 8000);
    assert!(decode_pages(0, &[0; 4], &mut data).is_err());
    assert!(decode_pages(0, &[0; 4102], &mut data).is_err());
    assert!(decode_pages(u64::MAX, &[0; 10], &mut data).is_err());
}
