//! Sessions of several connections.

use super::*;

/// A further connection of a session, and its number.
fn bound(server: &Server, session: SessionId) -> (Peer, PathId) {
    let mut peer = server.greeted();
    let body = peer.ok(Bind { session });
    (peer, PathId(body[0]))
}

#[test]
fn answers_are_sent_on_the_requested_stream() {
    let server = Server::start();
    let content = pattern(1 << 20);
    server.write("file", &content);
    let mut main = server.client();
    let handle = main.open("/file", OpenOptions::READ);
    let (mut one, one_path) = bound(&server, main.session);
    let (mut two, two_path) = bound(&server, main.session);
    assert_eq!((one_path, two_path), (PathId(1), PathId(2)));
    let segment = Segment { handle, length: 100_000, offset: 17 };
    let arguments = Some(ReadArguments { path: one_path, ahead: vec![segment; 3] });
    let asked = main.send(xrd::request::Read { segment, arguments }, &[]);
    let paged = main.send(PgRead { segment, path: Some(two_path), flags: None }, &[]);
    let many = main.send(ReadV { path: two_path, segments: vec![segment; 2] }, &[]);
    let received = one.response();
    assert_eq!(received.header.stream, asked);
    assert_eq!(received.response, Ok(Response::Ok(content[17..100_017].to_vec().into())));
    let received = two.response();
    assert_eq!(received.header.stream, paged);
    assert!(matches!(received.response, Ok(Response::Status(_))));
    assert_eq!(two.response().header.stream, many);
    main.assert_well();
    let arguments = Some(ReadArguments { path: PathId(9), ahead: vec![] });
    let nowhere = xrd::request::Read { segment, arguments };
    assert_eq!(main.refused(nowhere, &[]), ErrorCode::ARG_INVALID);
}

/// A write whose data come on a bound stream.
fn write_on(path: PathId, handle: FileHandle, offset: u64, data: &[u8]) -> xrd::request::Write {
    xrd::request::Write { path, ..write(handle, offset, data) }
}

/// The server once took the bytes of the next requests for the data, and answered with success.
#[test]
fn a_write_takes_its_data_from_the_named_stream() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    let (mut stream, path) = bound(&server, main.session);
    let content = pattern(5_000_001);
    let (first, second) = content.split_at(4_000_000);
    let one = main.send(write_on(path, handle, 0, first), &[]);
    let two = main.send(write_on(path, handle, 4_000_000, second), &[]);
    main.assert_well();
    stream.send_bytes(&content);
    for asked in [one, two] {
        let received = stream.response();
        assert_eq!(
            (received.header.stream, received.response),
            (asked, Ok(Response::Ok("".into())))
        );
    }
    assert!(server.bytes_of("file") == content, "the file differs");
    // The data may arrive before their request.
    stream.send_bytes(b"overtaken");
    std::thread::sleep(Duration::from_millis(50));
    main.send(write_on(path, handle, 0, b"overtaken"), &[]);
    assert!(matches!(stream.joined(), Response::Ok(_)));
    assert_eq!(&server.bytes_of("file")[..10], [b"overtaken", &content[9..10]].concat());
    // An empty write needs no data on the stream.
    assert!(matches!(main.ask(write_on(path, handle, 0, b""), &[]), Response::Ok(_)));
    main.assert_well();
}

#[test]
fn page_writes_and_checkpoint_changes_take_data_from_the_named_stream() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    let (mut stream, path) = bound(&server, main.session);
    let content = pattern(10_000);
    let mut wire = Vec::new();
    xrd::page::encode_pages(0, &content, &mut wire);
    main.send(PgWrite { path, ..pgwrite(handle, 0, &wire, PageFlags(0)) }, &[]);
    main.assert_well();
    stream.send_bytes(&wire);
    let received = stream.response();
    assert!(matches!(received.response, Ok(Response::Status(_))) && received.data.is_empty());
    assert!(server.bytes_of("file") == content, "the file differs");
    main.ok(Chkpoint::Begin(handle));
    let change = CheckpointWrite::Write(write_on(path, handle, 0, b"gone"));
    main.send(Chkpoint::Execute(change), &[]);
    stream.send_bytes(b"gone");
    assert!(matches!(stream.joined(), Response::Ok(_)));
    assert_eq!(&server.bytes_of("file")[..4], b"gone");
    main.ok(Chkpoint::Rollback(handle));
    assert!(server.bytes_of("file") == content, "the change is undone");
}

#[test]
fn a_write_that_names_an_unknown_stream_is_refused_and_skips_no_bytes() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    for path in [PathId(1), PathId(15), PathId(200)] {
        let refused = main.refused(write_on(path, handle, 0, &[1; 100]), &[]);
        assert_eq!(refused, ErrorCode::ARG_INVALID);
        let pages = PgWrite { path, ..pgwrite(handle, 0, &[1; 100], PageFlags(0)) };
        assert_eq!(main.refused(pages, &[]), ErrorCode::ARG_INVALID);
    }
    main.assert_well();
    assert_eq!(server.bytes_of("file"), b"");
}

#[test]
fn a_refused_write_consumes_its_data_on_the_named_stream() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    let (mut stream, path) = bound(&server, main.session);
    let lost = main.send(write_on(path, FileHandle([9; 4]), 0, &[1; 3_000_000]), &[]);
    main.send(write_on(path, handle, 0, b"kept"), &[]);
    stream.send_bytes(&vec![1; 3_000_000]);
    stream.send_bytes(b"kept");
    let received = stream.response();
    let Ok(Response::Error(failure)) = received.response else { panic!("{received:?}") };
    assert_eq!((received.header.stream, failure.code), (lost, ErrorCode::FILE_NOT_OPEN));
    assert!(matches!(stream.joined(), Response::Ok(_)));
    assert_eq!(server.bytes_of("file"), b"kept");
}

/// Its data once stayed on the stream, and were taken for those of the next write.
#[test]
fn a_malformed_write_with_a_named_stream_ends_the_session() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    let (mut stream, path) = bound(&server, main.session);
    let mut bytes = Vec::new();
    let lost = Request::from(write_on(path, handle, 0, b"lost"));
    lost.encode(StreamId([7, 7]), &mut bytes).unwrap();
    // An offset below 0.
    bytes[8..16].fill(0xff);
    main.send_bytes(&bytes);
    assert!(matches!(main.response().response, Ok(Response::Error(_))));
    main.assert_closed();
    stream.send_bytes(b"lost");
    stream.assert_closed();
}

#[test]
fn unexpected_bytes_on_a_bound_stream_are_not_a_request() {
    let server = Server::start();
    let mut main = server.client();
    let handle = main.open("/file", to_make());
    let (mut stream, path) = bound(&server, main.session);
    let mut ping = Vec::new();
    Request::from(Ping).encode(StreamId([7, 7]), &mut ping).unwrap();
    stream.send_bytes(&ping);
    main.send(write_on(path, handle, 0, &ping), &[]);
    assert!(matches!(stream.joined(), Response::Ok(_)));
    assert_eq!(server.bytes_of("file"), ping);
    // The server notices that the client has closed the stream, although it reads no bytes from it.
    stream.send_bytes(&ping);
    drop(stream);
    wait_until("a free stream", || bound(&server, main.session).1 == path);
    // A client does not know the number of a stream before it is bound, so bytes after the request are an error.
    let mut hasty = server.greeted();
    let mut bytes = Vec::new();
    Request::from(Bind { session: main.session }).encode(StreamId([0, 1]), &mut bytes).unwrap();
    hasty.send_bytes(&[bytes, ping].concat());
    hasty.assert_closed();
    main.assert_well();
}

#[test]
fn a_closed_stream_can_be_replaced() {
    let server = Server::start();
    let main = server.client();
    let streams: Vec<_> = (0..15).map(|_| bound(&server, main.session)).collect();
    let mut one_more = server.greeted();
    let refused = one_more.refused(Bind { session: main.session }, &[]);
    assert_eq!(refused, ErrorCode::OVERLOADED);
    drop(streams);
    wait_until("a free stream", || {
        let mut peer = server.greeted();
        matches!(peer.ask(Bind { session: main.session }, &[]), Response::Ok(_))
    });
}

#[test]
fn ending_a_session_ends_all_its_connections() {
    let server = Server::start();
    server.write("file", b"abc");
    let mut main = server.client();
    main.open("/file", OpenOptions::READ);
    let (mut stream, _) = bound(&server, main.session);
    // A client that has reconnected ends its old session like this.
    let mut anew = server.client();
    anew.ok(Endsess { session: main.session });
    main.assert_closed();
    stream.assert_closed();
    wait_until("forgetting the session", || server.logical.sessions.count() == 1);
    wait_until("closing its files", || server.logical.files.count() == 0);
    anew.assert_well();
}

#[test]
fn idle_sessions_are_ended() {
    let server = Server::start();
    let mut idle = server.client();
    let mut busy = server.client();
    server.logical.sessions.end_idle();
    busy.assert_well();
    server.logical.sessions.end_idle();
    idle.assert_closed();
    busy.assert_well();
}

#[test]
fn sessions_are_listed_with_their_traffic() {
    let server = Server::start();
    server.write("file", &pattern(10_000));
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    peer.read(handle, 0, 10_000);
    peer.ok(Set { modifier: 0, text: Bytes::from_static(b"appid reco 7\0") });
    let session = server.logical.sessions.get(&peer.session.0).unwrap();
    assert_eq!(
        (session.client.user.as_str(), session.client.program.as_str()),
        ("tester", "tests")
    );
    let files = session.handles.all();
    let read = files[0].bytes_read.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((files.len(), read), (1, 10_000));
    let out = session.counters.bytes_out.load(std::sync::atomic::Ordering::Relaxed);
    assert!((10_000..11_000).contains(&out), "{out}");
    drop(peer);
    wait_until("forgetting the session", || server.logical.sessions.count() == 0);
    let total = server.logical.sessions.totals();
    assert!(total.bytes_out.load(std::sync::atomic::Ordering::Relaxed) >= out);
}
