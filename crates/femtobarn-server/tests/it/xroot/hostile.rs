//! Faulty and malicious clients get an error or a closed connection, and do not affect other clients.

use std::io::{Read as _, Write};

use xrd::flags::OpenOptions;
use xrd::request::*;
use xrd::segment::Segment;
use xrd::{ErrorCode, FileHandle, HANDSHAKE, PathId, RequestCode, SessionId};

use super::*;

/// The header of a request of any length.
fn head(code: RequestCode, length: i32) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend(code.0.to_be_bytes());
    bytes.extend([0; 16]);
    bytes.extend(length.to_be_bytes());
    bytes
}

#[test]
fn an_invalid_handshake_closes_the_connection() {
    let server = Server::start();
    let mut peer = Peer::connect(server.address);
    peer.send_bytes(&[9; 20]);
    peer.assert_closed();
    server.client().assert_well();
}

#[test]
fn requests_before_the_login_are_refused() {
    let server = Server::start();
    server.write("file", b"secret");
    let requests: [Request; 4] = [
        open("/file", OpenOptions::READ).into(),
        Ping.into(),
        Rm { location: at("/file") }.into(),
        read(FileHandle([0; 4]), 0, 10).into(),
    ];
    for request in requests {
        let mut peer = server.greeted();
        assert_eq!(peer.refused(request, &[]), ErrorCode::INVALID_REQUEST);
        peer.assert_closed();
    }
    assert_eq!(server.bytes_of("file"), b"secret");
}

#[test]
fn impossible_lengths_are_refused() {
    let server = Server::start();
    for length in [-1, i32::MIN, i32::MAX] {
        let mut peer = server.client();
        peer.send_bytes(&head(RequestCode::STAT, length));
        peer.assert_closed();
    }
    for code in [RequestCode::OPEN, RequestCode::STAT, RequestCode::READ_V] {
        let mut peer = server.client();
        peer.send_bytes(&head(code, 0));
        assert!(matches!(peer.joined(), Response::Error(_)));
        peer.assert_well();
    }
    server.client().assert_well();
}

/// The server closed the connection with unread bytes, so that the kernel reset it, and the client could lose the refusal.
#[test]
fn a_refusal_arrives_though_the_client_has_sent_more() {
    let server = Server::start();
    let mut peer = server.greeted();
    peer.send_bytes(&[head(RequestCode::PING, 0), vec![0; 1 << 20]].concat());
    assert!(matches!(peer.joined(), Response::Error(_)));
    assert_eq!(peer.socket.read(&mut [0]).unwrap(), 0, "the connection is closed, not reset");
}

#[test]
fn a_body_beyond_the_limit_is_refused_and_skipped() {
    let server = Server::start();
    let mut peer = server.client();
    let length = 1 << 20;
    peer.send_bytes(&head(RequestCode::OPEN, length));
    peer.send_bytes(&vec![b'/'; length as usize]);
    let Response::Error(failure) = peer.joined() else { panic!("the request was accepted") };
    assert_eq!(failure.code, ErrorCode::ARG_TOO_LONG);
    peer.assert_well();
}

#[test]
fn requests_that_arrive_byte_by_byte_are_answered() {
    let server = Server::start();
    let mut peer = server.client();
    let mut bytes = Vec::new();
    Request::from(Ping).encode(StreamId([7, 7]), &mut bytes).unwrap();
    for byte in bytes {
        peer.send_bytes(&[byte]);
    }
    assert_eq!(peer.response().header.stream, StreamId([7, 7]));
}

#[test]
fn an_incomplete_request_does_not_affect_other_clients() {
    let server = Server::start();
    let mut halves: Vec<_> = (0..50).map(|_| server.client()).collect();
    for half in &mut halves {
        half.send_bytes(&head(RequestCode::STAT, 100)[..13]);
    }
    server.client().assert_well();
    drop(halves);
    wait_until("forgetting the sessions", || server.logical.sessions.count() <= 1);
}

#[test]
fn unknown_handles_are_refused() {
    let server = Server::start();
    let mut peer = server.client();
    for handle in [FileHandle([0; 4]), FileHandle([0xff; 4]), FileHandle([0, 0, 0, 9])] {
        let segment = Segment { handle, length: 10, offset: 0 };
        let not_open = ErrorCode::FILE_NOT_OPEN;
        assert_eq!(peer.refused(read(handle, 0, 10), &[]), not_open);
        assert_eq!(peer.refused(PgRead { segment, path: None, flags: None }, &[]), not_open);
        let many = ReadV { path: PathId(0), segments: vec![segment; 3] };
        assert_eq!(peer.refused(many, &[]), not_open);
        assert_eq!(peer.refused(write(handle, 0, b"0123"), b"0123"), not_open);
        let many = WriteV { options: Default::default(), segments: vec![segment] };
        assert_eq!(peer.refused(many, b"0123456789"), not_open);
        assert_eq!(peer.refused(Sync { handle }, &[]), not_open);
        assert_eq!(peer.refused(Close { handle }, &[]), not_open);
        assert_eq!(peer.refused(Chkpoint::Begin(handle), &[]), not_open);
        let stat = Stat {
            options: Default::default(),
            wants: Default::default(),
            target: FileRef::Handle(handle),
        };
        assert_eq!(peer.refused(stat, &[]), not_open);
    }
    peer.assert_well();
}

#[test]
fn paths_that_lead_out_are_refused() {
    let server = Server::start();
    let mut peer = server.client();
    let long = format!("/{}", "a/".repeat(15_000));
    let piece = format!("/{}", "a".repeat(300));
    for path in ["/../etc/passwd", "/a/../../b", "relative", "/..", &long, &piece] {
        let code = peer.refused(open(path, OpenOptions::READ), &[]);
        assert_ne!(code, ErrorCode::SERVER_ERROR, "{path:.20}");
        let made = open(path, to_make() | OpenOptions::MAKE_PATH);
        peer.refused(made, &[]);
    }
    // A zero byte within a path.
    let mut bytes = head(RequestCode::OPEN, 4);
    bytes.extend(b"/a\0b");
    peer.send_bytes(&bytes);
    assert!(matches!(peer.joined(), Response::Error(_)));
    peer.assert_well();
    assert_eq!(std::fs::read_dir(server.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_readv_of_overlapping_ranges_is_answered() {
    let server = Server::start();
    let content = pattern(100_000);
    server.write("file", &content);
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    let segments: Vec<_> = (0..1024)
        .map(|index| Segment { handle, length: 5000, offset: (index * 37) % 95_000 })
        .collect();
    let body = peer.ok(ReadV { path: PathId(0), segments: segments.clone() });
    let found = xrd::segment::decode_segment_data(&body).unwrap();
    assert_eq!(found.len(), 1024);
    for (segment, found) in segments.iter().zip(found) {
        let start = segment.offset as usize;
        assert_eq!(found.segment, *segment);
        assert!(found.data == content[start..start + 5000], "the piece at {start} differs");
    }
    // One more is one too many.
    let mut bytes = head(RequestCode::READ_V, 1025 * 16);
    bytes.extend(vec![0; 1025 * 16]);
    peer.send_bytes(&bytes);
    assert!(matches!(peer.joined(), Response::Error(_)));
    peer.assert_well();
}

#[test]
fn a_session_cannot_open_more_files_than_its_limit() {
    let settings = Settings { files_per_session_max: 100, ..Settings::default() };
    let server = Server::with(settings, |folder| Arc::new(PosixStorage::new(folder).unwrap()));
    server.write("file", b"x");
    let mut peer = server.client();
    let handles: Vec<_> = (0..100).map(|_| peer.open("/file", OpenOptions::READ)).collect();
    let refused = peer.refused(open("/file", OpenOptions::READ), &[]);
    assert_eq!(refused, ErrorCode::OVERLOADED);
    // All handles share one file descriptor, and other sessions have their own limits.
    assert_eq!(server.logical.files.count(), 1);
    server.client().open("/file", OpenOptions::READ);
    peer.ok(Close { handle: handles[50] });
    assert_eq!(peer.open("/file", OpenOptions::READ), handles[50]);
}

/// Clients of one machine could have all open files of the server, in many sessions.
#[test]
fn the_sessions_of_one_machine_leave_open_files_for_others() {
    let settings = Settings { open_files_max: 100, ..Settings::default() };
    let server = Server::with(settings, |folder| Arc::new(PosixStorage::new(folder).unwrap()));
    server.write("file", b"x");
    let mut peers: Vec<_> = (0..4).map(|_| server.client()).collect();
    for number in 0..50 {
        peers[number % 4].open("/file", OpenOptions::READ);
    }
    let refused = peers[0].refused(open("/file", OpenOptions::READ), &[]);
    assert_eq!(refused, ErrorCode::OVERLOADED);
    let other = "10.0.0.1".parse().unwrap();
    assert!(server.logical.open_files.take(other).is_some());
    peers.truncate(2);
    wait_until("closing its files", || server.logical.sessions.count() == 2);
    peers[0].open("/file", OpenOptions::READ);
}

#[test]
fn a_client_that_receives_nothing_delays_no_other() {
    let server = Server::start();
    server.write("file", &pattern(8 << 20));
    let mut slow: Vec<_> = (0..20).map(|_| server.client()).collect();
    for peer in &mut slow {
        let handle = peer.open("/file", OpenOptions::READ);
        for _ in 0..20 {
            let segment = Segment { handle, length: 8 << 20, offset: 0 };
            peer.send(PgRead { segment, path: None, flags: None }, &[]);
            peer.send(read(handle, 0, 8 << 20), &[]);
        }
    }
    let mut quick = server.client();
    let handle = quick.open("/file", OpenOptions::READ);
    for _ in 0..100 {
        assert_eq!(quick.read(handle, 4096, 16_384).len(), 16_384);
    }
    // The server neither reads ahead for these clients nor keeps buffers for them.
    wait_until("giving buffers back", || server.buffers.used() <= 3);
    // The answer is still right when a slow client receives it.
    let Response::Status(status) = slow[3].response().response.unwrap() else { panic!() };
    assert_eq!(status.offset, 0);
}

#[test]
fn stalled_writers_delay_no_other_client() {
    let server = Server::start();
    let content = pattern(1 << 20);
    // More writers than there are buffers.
    let mut stalled: Vec<_> = (0..80)
        .map(|index| {
            let mut peer = server.client();
            let handle = peer.open(&format!("/stalled{index}"), to_make());
            peer.send(write(handle, 0, &content), &content[..100_000]);
            peer
        })
        .collect();
    let mut quick = server.client();
    let handle = quick.open("/quick", to_make());
    assert!(matches!(quick.ask(write(handle, 0, &content), &content), Response::Ok(_)));
    wait_until("giving buffers back", || server.buffers.used() <= 3);
    for peer in &mut stalled {
        peer.send_bytes(&content[100_000..]);
        assert!(matches!(peer.joined(), Response::Ok(_)));
    }
    assert!(server.bytes_of("stalled79") == content);
}

#[test]
fn an_interrupted_write_leaves_no_session_behind() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/kept", to_make());
    let posc = peer.open("/dropped", to_make() | OpenOptions::PERSIST_ON_CLOSE);
    // The right to write to an existing file does not include removing it.
    server.write("old", b"stays");
    peer.open("/old", OpenOptions::UPDATE | OpenOptions::PERSIST_ON_CLOSE);
    peer.ok(Ping);
    assert!(matches!(peer.ask(write(posc, 0, b"abc"), b"abc"), Response::Ok(_)));
    // A write of a gigabyte, of which only the beginning is sent.
    let promised = xrd::request::Write { length: 1 << 30, ..write(handle, 0, b"") };
    peer.send(promised, &pattern(100_000));
    peer.socket.shutdown(std::net::Shutdown::Write).unwrap();
    peer.assert_closed();
    wait_until("forgetting the session", || server.logical.sessions.count() == 0);
    wait_until("dropping what was not closed", || !server.folder.path().join("dropped").exists());
    assert_eq!(server.bytes_of("kept"), pattern(100_000));
    wait_until("closing its files", || server.logical.files.count() == 0);
    assert_eq!(server.bytes_of("old"), b"stays");
}

#[test]
fn clients_without_the_id_cannot_bind_to_or_end_a_session() {
    let server = Server::start();
    let mut peer = server.client();
    let mut guess = peer.session;
    guess.0[3] ^= 1;
    let mut stranger = server.greeted();
    assert_eq!(stranger.refused(Bind { session: guess }, &[]), ErrorCode::NOT_FOUND);
    stranger.assert_closed();
    server.client().ok(Endsess { session: guess });
    server.client().ok(Endsess { session: SessionId::default() });
    peer.assert_well();
}

#[test]
fn the_id_of_a_session_that_has_ended_leads_to_none() {
    let server = Server::start();
    server.write("file", b"x");
    let mut peer = server.client();
    let (id, handle) = (peer.session, peer.open("/file", OpenOptions::READ));
    drop(peer);
    wait_until("ending the session", || server.logical.sessions.count() == 0);
    let mut stranger = server.greeted();
    assert_eq!(stranger.refused(Bind { session: id }, &[]), ErrorCode::NOT_FOUND);
    stranger.assert_closed();
    let mut next = server.client();
    next.ok(Endsess { session: id });
    assert_eq!(next.refused(Close { handle }, &[]), ErrorCode::FILE_NOT_OPEN);
}

/// 1,024 pieces may announce 2 TiB; the server once waited for them.
#[test]
fn a_writev_of_too_many_bytes_is_refused_at_once() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let mut bytes = head(RequestCode::WRITE_V, 1024 * 16);
    for _ in 0..1024 {
        bytes.extend(handle.0);
        bytes.extend(i32::MAX.to_be_bytes());
        bytes.extend(0_u64.to_be_bytes());
    }
    peer.send_bytes(&bytes);
    let Response::Error(failure) = peer.joined() else { panic!("the request was accepted") };
    assert_eq!(failure.code, ErrorCode::ARG_TOO_LONG);
    peer.assert_closed();
    assert_eq!(server.bytes_of("file"), b"");
}

#[test]
fn random_bytes_do_no_harm() {
    let server = Server::start();
    server.write("file", &pattern(10_000));
    let mut well = server.client();
    let handle = well.open("/file", OpenOptions::READ);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut peer = if round % 3 == 0 { server.greeted() } else { server.client() };
        let mut bytes = Vec::new();
        for _ in 0..20 {
            // Headers that are nearly valid, with short bodies, so that many requests are accepted.
            let code = RequestCode(3000 + (random() % 34) as u16);
            let length = (random() % 64) as usize;
            let mut request = head(code, length as i32);
            request.resize(24 + length, 0);
            for byte in request[4..20].iter_mut().chain(&mut []) {
                *byte = if random() % 3 == 0 { random() as u8 } else { 0 };
            }
            for byte in &mut request[24..] {
                *byte = b"/\0. af\nile?&=\xff"[(random() % 14) as usize];
            }
            bytes.extend(request);
        }
        // The server may have closed the connection already.
        let _ = peer.socket.write_all(&bytes);
        let _ = peer.socket.shutdown(std::net::Shutdown::Write);
        if round % 50 == 0 {
            assert_eq!(well.read(handle, 0, 10_000), pattern(10_000));
        }
    }
    assert_eq!(well.read(handle, 0, 10_000), pattern(10_000));
    let mut garbage = Peer::connect(server.address);
    garbage.send_bytes(&HANDSHAKE);
    garbage.send_bytes(&[0xff; 1000]);
    garbage.assert_closed();
    drop(garbage);
    wait_until("forgetting the sessions", || server.logical.sessions.count() == 1);
}
