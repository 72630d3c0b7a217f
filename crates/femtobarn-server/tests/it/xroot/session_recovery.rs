//! Clients that reopen their files after a lost connection get the same snapshot.
//!
//! They used to continue at their old offset in the newest snapshot, so copies were mixtures of two snapshots.

use std::path::Path;
use std::time::UNIX_EPOCH;

use femtobarn::{
    Class, ContainerOptions, Federation, Transaction, TransactionOptions, VacuumOptions,
};
use femtobarn_catalog::LocalCatalogue;
use femtobarn_server::physical::FederationStorage;

use super::*;

const RUN: &str = "/run7.root";
/// A little more than the time that the server allows between a commit's timestamp and its visibility.
const MARGIN_MS: u64 = 2005;

/// A server of a federation with the database `run7`, which has one container.
fn serve_run() -> (Server, Federation) {
    let mut federation = None;
    let server = Server::with(Settings::default(), |folder| {
        let place = folder.join("test.fed");
        federation = Some(Federation::create(&place, "test").unwrap());
        shown(&place)
    });
    let federation = federation.unwrap();
    change(&federation, |transaction| create(transaction, "run7", "events"));
    (server, federation)
}

fn shown(place: &Path) -> Arc<dyn Storage> {
    let catalogue = Arc::new(LocalCatalogue::open(place).unwrap());
    Arc::new(FederationStorage::new(catalogue, Arc::new(PosixStorage::new(place).unwrap())))
}

fn change(federation: &Federation, work: impl FnOnce(&mut Transaction)) {
    let mut transaction = federation.transaction(TransactionOptions::default()).unwrap();
    work(&mut transaction);
    transaction.commit().unwrap();
}

fn create(transaction: &mut Transaction, database: &str, container: &str) {
    let json = r#"{"name": "Event", "version": 1, "fields": [{"name": "n", "type": "uint64"}]}"#;
    let class = Class::from_json(json).unwrap();
    let database = transaction.database_or_new(database, None).unwrap();
    transaction.create_container(database, container, &class, ContainerOptions::default()).unwrap();
}

/// Adds a container to `run7`, so that its file differs.
fn grow(federation: &Federation, name: &str) {
    change(federation, |transaction| create(transaction, "run7", name));
}

fn content(peer: &mut Peer) -> (FileHandle, Bytes) {
    let handle = peer.open(RUN, OpenOptions::READ);
    (handle, peer.read(handle, 0, 1 << 20))
}

fn refusal_text(peer: &mut Peer) -> String {
    match peer.ask(open(RUN, OpenOptions::READ), &[]) {
        Response::Error(failure) => failure.message,
        other => panic!("{other:?}"),
    }
}

/// A client that continues the session of another one, as after a lost connection.
fn recover(server: &Server, from: SessionId) -> Peer {
    let mut peer = server.client();
    peer.ok(Endsess { session: from });
    peer
}

/// The id of a session of another server, begun at a time in milliseconds since 1970.
fn session_elsewhere(server: &Server, began_ms: u64) -> SessionId {
    let mut id = server.client().session.0;
    id[..6].copy_from_slice(&began_ms.to_be_bytes()[2..]);
    id[6] ^= 1;
    SessionId(id)
}

/// The time of the newest commit, in milliseconds since 1970.
fn head_ms(federation: &Federation) -> u64 {
    let csn = federation.head().unwrap();
    federation.catalog().commit_by_csn(csn).unwrap().time_us as u64 / 1000
}

fn now_ms() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

#[test]
fn reopened_files_show_the_same_snapshot() {
    let (server, federation) = serve_run();
    let mut first = server.client();
    let before = content(&mut first).1;
    grow(&federation, "more");
    let mut second = recover(&server, first.session);
    // The client may reopen the file several times, from several threads.
    let (new, seen) = content(&mut second);
    let (again, seen_again) = content(&mut second);
    assert_eq!((&seen, &seen_again), (&before, &before));
    for handle in [new, again] {
        second.ok(Close { handle });
    }
    assert_ne!(content(&mut second).1, before, "all inherited files are closed");
}

#[test]
fn files_are_inherited_through_sessions_that_do_not_open_them() {
    let (server, federation) = serve_run();
    let mut first = server.client();
    let before = content(&mut first).1;
    grow(&federation, "more");
    let second = recover(&server, first.session);
    let mut third = recover(&server, second.session);
    assert_eq!(content(&mut third).1, before);
}

#[test]
fn a_vacuumed_snapshot_is_refused_once_and_then_the_newest_is_opened() {
    let (server, federation) = serve_run();
    let mut first = server.client();
    content(&mut first);
    let session = first.session;
    drop(first);
    wait_until("closing the file", || server.logical.files.count() == 0);
    grow(&federation, "more");
    let options =
        VacuumOptions { keep_from: Some(federation.head().unwrap()), ..Default::default() };
    federation.vacuum(&options, &mut |_| true).unwrap();
    let mut second = recover(&server, session);
    assert!(refusal_text(&mut second).contains("snapshot"));
    content(&mut second);
}

#[test]
fn after_a_server_restart_only_unchanged_files_are_reopened() {
    let (server, federation) = serve_run();
    let old = session_elsewhere(&server, head_ms(&federation) + MARGIN_MS);
    let mut first = recover(&server, old);
    let before = content(&mut first).1;
    let idle = recover(&server, old);
    std::thread::sleep(Duration::from_millis(10));
    grow(&federation, "more");
    assert_eq!(content(&mut recover(&server, first.session)).1, before);
    assert!(refusal_text(&mut recover(&server, idle.session)).contains("start again"));
    assert!(refusal_text(&mut recover(&server, old)).contains("start again"));
    content(&mut recover(&server, session_elsewhere(&server, now_ms() + MARGIN_MS)));
}

#[test]
fn a_dropped_container_or_a_reused_name_counts_as_a_changed_file() {
    let changes: [fn(&mut Transaction); 2] = [
        |transaction| {
            let database = transaction.database("run7").unwrap();
            transaction.drop_container(database, "more").unwrap();
        },
        |transaction| {
            transaction.drop_database("run7").unwrap();
            transaction.rename_database("older", "run7").unwrap();
        },
    ];
    for work in changes {
        let (server, federation) = serve_run();
        change(&federation, |transaction| create(transaction, "older", "events"));
        grow(&federation, "more");
        let old = session_elsewhere(&server, head_ms(&federation) + MARGIN_MS);
        std::thread::sleep(Duration::from_millis(10));
        change(&federation, work);
        assert!(refusal_text(&mut recover(&server, old)).contains("start again"));
    }
}
