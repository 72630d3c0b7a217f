//! Requests of a real client, recorded by `real_client` from the `xrootd` package 6.2.1 for Python. Each
//! decodes to the right request and encodes to the same bytes again.

use bytes::Bytes;
use xrd::codes::Expect;
use xrd::flags::{
    Ability, MkdirOptions, Mode, OpenOptions, PageFlags, PrepareOptions, ProtocolOptions,
    StatOptions,
};
use xrd::request::{AttributeAction, FileRef};
use xrd::segment::Segment;
use xrd::{
    FileHandle, HANDSHAKE, PathId, ProtocolVersion, QueryCode, Request, RequestEvent,
    RequestFramer, StreamId,
};

const HANDLE: FileHandle = FileHandle([0, 0, 0, 9]);

/// The bytes that hexadecimal digits stand for.
pub(crate) fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// The request in these bytes. It must encode to the same bytes again.
fn request_of(hex: &str) -> Request {
    let bytes = bytes_of(hex);
    let mut input = Bytes::from(bytes.clone());
    let event = RequestFramer::after_handshake().next(&mut input).unwrap();
    let Some(RequestEvent::Request(received)) = event else { panic!("no request") };
    let request = received.request.unwrap();
    let mut again = Vec::new();
    request.encode(received.header.stream, &mut again).unwrap();
    assert_eq!(again, bytes[..bytes.len() - input.len()]);
    assert_eq!(input.len() as u64, request.data_bytes().min(input.len() as u64));
    request
}

macro_rules! captured {
    ($hex:expr, $kind:ident) => {
        match request_of($hex) {
            Request::$kind(request) => request,
            other => panic!("{other:?}"),
        }
    };
}

#[test]
fn handshake_and_protocol_request_arrive_in_one_piece() {
    let bytes = bytes_of(
        "0000000000000000 0000000000000004 000007dc
         0000 0bbe 00000520 09 03 00000000000000000000 00000000",
    );
    assert_eq!((bytes.len(), &bytes[..20]), (44, &HANDSHAKE[..]));
    let mut framer = RequestFramer::new();
    let mut input = Bytes::from(bytes);
    assert_eq!(framer.next(&mut input).unwrap(), Some(RequestEvent::Handshake));
    let Some(RequestEvent::Request(received)) = framer.next(&mut input).unwrap() else { panic!() };
    let Ok(Request::Protocol(protocol)) = received.request else { panic!() };
    assert_eq!(protocol.version, ProtocolVersion::CURRENT);
    assert_eq!(protocol.options, ProtocolOptions::SECURITY | ProtocolOptions::BIND_INTERFACES);
    assert_eq!(protocol.expect, Expect::LOGIN);
}

#[test]
fn a_login_has_the_clients_abilities() {
    let login = captured!(
        "0000 0bbf 000026e4 726f6f7400000000 00 dd 85 00 00000051
         7872642e63633d7573267872642e747a3d30267872642e6170706e616d653d707974686f6e332e3131267872
         642e696e666f3d267872642e686f73746e616d653d766d267872642e726e3d76362e322e31",
        Login
    );
    assert_eq!((login.process, login.user_name()), (0x26e4, &b"root"[..]));
    let expected = Ability::FULL_URL | Ability::READ_REDIRECT | Ability::DUAL_STACK;
    assert!(login.ability.contains(expected | Ability::REDIRECT_FLAGS | Ability::LOCAL_FILE));
    assert_eq!(login.capability.generation(), 5);
    assert!(login.capability.takes_delayed_answers());
    let pairs: Vec<_> = xrd::opaque_pairs(&login.opaque).collect();
    assert_eq!(pairs[2], (&b"xrd.appname"[..], &b"python3.11"[..]));
}

#[test]
fn paths_with_spaces_are_sent_unescaped() {
    let stat = captured!(
        "0100 0bc9 00 00000000000000 00000000 00000000 0000000e 2f6469722f66696c65206e616d65",
        Stat
    );
    let FileRef::Location(location) = stat.target else { panic!() };
    assert_eq!(location.path(), b"/dir/file name");
    let space = captured!("01000bc901000000000000000000000000000000000000042f646972", Stat);
    assert_eq!(space.options, StatOptions::FILE_SYSTEM);

    // The parameters have the length of the old name, so its space does not end it.
    let renamed = captured!(
        "01000bc1 0000000000000000000000000000 000e 0000001c
         2f6469722f66696c65206e616d65 20 2f6469722f6e6577206e616d65",
        Mv
    );
    assert_eq!(
        (renamed.from.path(), renamed.to.path()),
        (&b"/dir/file name"[..], &b"/dir/new name"[..])
    );

    let made = captured!("01000bc001000000000000000000000000000180000000082f6469722f6e6577", Mkdir);
    assert_eq!(made.options, MkdirOptions::MAKE_PATH);
    assert_eq!(made.mode, Mode::OWNER_READ | Mode::OWNER_WRITE);
    let truncated = captured!(
        "01000bd400000000000000000000000c000000000000000d2f6469722f6e6577206e616d65",
        Truncate
    );
    assert_eq!(truncated.size, 12);
}

#[test]
fn queries_may_end_with_a_zero_byte() {
    let config = captured!(
        "01000bb9 0007 0000 00000000 0000000000000000 00000016
         72656164765f696f725f6d617820756e6b6e6f776e00",
        Query
    );
    assert_eq!(config.kind, QueryCode::CONFIG);
    assert_eq!(config.words().collect::<Vec<_>>(), [&b"readv_ior_max"[..], b"unknown"]);
    let checksum = captured!(
        "01000bb9000300000000000000000000000000000000000f2f6469722f66696c65206e616d6500",
        Query
    );
    assert_eq!(checksum.location().unwrap().path(), b"/dir/file name");
}

#[test]
fn opens_have_mode_options_and_opaque_values() {
    let open = captured!(
        "01000bc2 0000 0450 0000 000000000000 00000000 0000001a
         2f6469722f66696c652532306e616d653f66622e63736e3d3431",
        Open
    );
    let read = OpenOptions::READ | OpenOptions::ASYNC | OpenOptions::RETURN_STAT;
    assert_eq!((open.mode, open.options), (Mode::default(), read));
    assert_eq!(open.location.path(), b"/dir/file%20name", "the path stays escaped");
    assert_eq!(open.location.value_of("fb.csn"), Some(&b"41"[..]));

    let upload = captured!(
        "01000bc201a40462000000000000000000000000000000172f6469722f75703f6f73732e6173697a653d3230303030",
        Open
    );
    let write = OpenOptions::UPDATE | OpenOptions::DELETE | OpenOptions::ASYNC;
    assert_eq!((upload.mode, upload.options), (Mode(0o644), write | OpenOptions::RETURN_STAT));
    assert_eq!(upload.location.value_of("oss.asize"), Some(&b"20000"[..]));
}

#[test]
fn reads_have_segments_paths_and_flags() {
    let read = captured!("01000bc500000009000000000000138800001f40000000080000000000000000", Read);
    assert_eq!(read.segment, Segment { handle: HANDLE, offset: 5000, length: 8000 });
    let arguments = read.arguments.unwrap();
    assert_eq!((arguments.path, arguments.ahead), (PathId(0), vec![]));

    let many = captured!(
        "01000bd1 000000000000000000000000000000 00 00000030
         00000009 00000010 0000000000000000
         00000009 00000003 0000000000002710
         00000009 000003e8 0000000000004a38",
        ReadV
    );
    let pieces: Vec<_> = many.segments.iter().map(|piece| (piece.offset, piece.length)).collect();
    assert_eq!(pieces, [(0, 16), (10_000, 3), (19_000, 1000)]);

    let pages = captured!("01000bd600000009000000000000000000004e20000000020000", PgRead);
    assert_eq!((pages.path, pages.flags), (Some(PathId(0)), Some(PageFlags(0))));
    let again = captured!("01000bd600000009000000000000100000001000000000020001", PgRead);
    assert_eq!(again.flags, Some(PageFlags::RETRY));
}

#[test]
fn writes_have_offsets_lengths_and_flags() {
    let hex = "01000bcb 00000009 0000000000000005 00 000000 0000000a 30313233343536373839";
    let write = captured!(hex, Write);
    assert_eq!((write.handle, write.offset, write.length), (HANDLE, 5, 10));
    let pages = captured!("01000bd2 00000009 0000000000001000 00 01 0000 00001004", PgWrite);
    assert_eq!((pages.offset, pages.length, pages.flags), (4096, 4100, PageFlags::RETRY));
}

#[test]
fn attribute_requests_have_names_and_values() {
    let set = captured!(
        "01000bcc 00000000 03 02 00 000000000000000000 0000001e
         2f6469722f6600 00006f6e6500 000074776f00 0000000131 000000023232",
        Fattr
    );
    let pairs = vec![("one".into(), "1".into()), ("two".into(), "22".into())];
    assert_eq!(set.action, AttributeAction::Set(pairs));
    let listed = captured!("01000bcc00000000020010000000000000000000000000072f6469722f6600", Fattr);
    assert_eq!((listed.action, listed.options.0), (AttributeAction::List, 0x10));
    let got = captured!(
        "01000bcc00000000010200000000000000000000000000132f6469722f660000006f6e6500000074776f00",
        Fattr
    );
    assert_eq!(got.action, AttributeAction::Get(vec!["one".into(), "two".into()]));
}

#[test]
fn other_requests_follow_the_reference() {
    let staged =
        captured!("01000bcd08000000000000000000000000000000000000092f610a2f623f783d31", Prepare);
    assert_eq!((staged.options, staged.locations.len()), (PrepareOptions::STAGE, 2));
    let text = "01000bca000000000000000000000000000000000000001d6d6f6e69746f7220696e666f20736f6d6520\
                696e666f726d6174696f6e";
    assert_eq!(&captured!(text, Set).text[..], b"monitor info some information");
    assert_eq!(captured!("01000bbb0000000900000000000000000000000000000000", Close).handle, HANDLE);
    assert_eq!(captured!("01000bc80000000900000000000000000000000000000000", Sync).handle, HANDLE);
    captured!("01000bc30000000000000000000000000000000000000000", Ping);
    let stream = StreamId([1, 0]);
    let mut bytes = Vec::new();
    Request::from(xrd::request::Ping).encode(stream, &mut bytes).unwrap();
    assert_eq!(bytes, bytes_of("01000bc30000000000000000000000000000000000000000"));
}
