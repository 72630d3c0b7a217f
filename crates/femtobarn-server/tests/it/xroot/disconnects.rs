//! Work of the server is cancelled when its client disconnects.
//!
//! The checksum of a huge file used to run for minutes after its client had disconnected.

use femtobarn_server::physical::{DiskModel, MachineClock, ThrottledStorage};
use xrd::QueryCode;
use xrd::flags::DirlistOptions;

use super::*;

/// A disk that is so slow, rather than a file that is so large, that a checksum takes far longer than [`PATIENCE`]: reading
/// terabytes of a sparse file would fill the machine's memory, and hold up other tests.
const SLOW_DISK: DiskModel = DiskModel {
    bytes_per_second: 4 << 20,
    seeks_per_second: 1000,
    block_size: 64 << 10,
    cache_bytes: 0,
    write_behind: Duration::ZERO,
    defer_above: None,
};
const HUGE_BYTES: u64 = 8 << 30;

/// One more than the answers that a connection computes in the background.
const CROWD: usize = 9;

/// A server with a huge file.
fn with_a_huge_file() -> Server {
    let server = Server::with(Settings::default(), |folder| {
        let files = Arc::new(PosixStorage::new(folder).unwrap());
        let clock = Arc::new(MachineClock::default());
        Arc::new(ThrottledStorage::throttled(files, SLOW_DISK, &[], clock))
    });
    let file = std::fs::File::create(server.folder.path().join("huge")).unwrap();
    file.set_len(HUGE_BYTES).unwrap();
    server
}

fn checksum() -> Query {
    let argument = Bytes::from_static(b"/huge\0");
    Query { kind: QueryCode::CHECKSUM, handle: FileHandle::default(), argument }
}

fn list() -> Dirlist {
    Dirlist { options: DirlistOptions::CHECKSUM, location: at("/") }
}

fn wait_until_read(logical: &Logical, is_read: bool) {
    wait_until("a file's checksum", || (logical.files.count() > 0) == is_read);
}

/// Requests `count` checksums, each of which is answered with a delay. They are sent together: a connection that computes
/// as many as it may reads no request that comes later.
fn ask(peer: &mut Peer, count: usize) {
    let mut bytes = Vec::new();
    for _ in 0..count {
        Request::from(checksum()).encode(StreamId([0, 9]), &mut bytes).unwrap();
    }
    peer.send_bytes(&bytes);
    for _ in 0..count {
        assert!(matches!(peer.response().response, Ok(Response::WaitResp(_))));
    }
}

#[test]
fn a_checksum_is_cancelled_when_its_client_disconnects() {
    let server = with_a_huge_file();
    let asks: [fn(&mut Peer); 3] = [
        |peer| ask(peer, 1),
        |peer| ask(peer, CROWD),
        |peer| {
            peer.send(list(), &[]);
        },
    ];
    for ask in asks {
        let mut peer = server.client();
        ask(&mut peer);
        wait_until_read(&server.logical, true);
        drop(peer);
        wait_until_read(&server.logical, false);
        wait_until("forgetting the client", || server.logical.sessions.count() == 0);
    }
}

#[test]
fn a_checksum_is_cancelled_when_its_session_ends() {
    let server = with_a_huge_file();
    let mut peer = server.client();
    ask(&mut peer, CROWD);
    wait_until_read(&server.logical, true);
    server.client().ok(Endsess { session: peer.session });
    wait_until_read(&server.logical, false);
}

#[test]
fn a_checksum_is_cancelled_when_the_server_stops() {
    let server = with_a_huge_file();
    let mut peer = server.client();
    peer.send(checksum(), &[]);
    wait_until_read(&server.logical, true);
    let logical = Arc::clone(&server.logical);
    drop(server);
    wait_until_read(&logical, false);
}

#[test]
fn a_list_with_checksums_does_not_delay_other_requests() {
    let server = with_a_huge_file();
    let mut peer = server.client();
    peer.send(list(), &[]);
    peer.assert_well();
}
