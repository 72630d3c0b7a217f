//! Sessions of several connections.

use super::*;

/// A further connection of a session, and its number.
fn bound(server: &Server, session: SessionId) -> (Peer, PathId) {
    let mut peer = server.greeted();
    let body = peer.ok(Bind { session });
    (peer, PathId(body[0]))
}

#[test]
fn answers_come_where_they_are_wanted() {
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
    // A bound connection may also ask for itself.
    assert_eq!(one.read(handle, 0, 10), content[..10]);
    let arguments = Some(ReadArguments { path: PathId(9), ahead: vec![] });
    let nowhere = xrd::request::Read { segment, arguments };
    assert_eq!(main.refused(nowhere, &[]), ErrorCode::ARG_INVALID);
}

#[test]
fn a_stream_that_went_makes_room_for_another() {
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
    // As a client does that has connected anew.
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
fn sessions_can_be_watched() {
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
