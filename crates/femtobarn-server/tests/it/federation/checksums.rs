//! Checksums of databases that are being written.
//!
//! A client that copies a file requests its checksum by the path alone, without the snapshot that it named in the open.
//! Every copy of a database that was being written used to fail.

use femtobarn_server::logical::Settings;
use femtobarn_server::logical::checksums::{CancelGuard, ChecksumKind};
use xrd::QueryCode;
use xrd::flags::OpenOptions;
use xrd::request::{Close, Query};
use xrd::response::Answer;
use xrd::response::query::ChecksumAnswer;

use super::Stage;
use crate::xroot::{Peer, Server};

fn checksum_of(peer: &mut Peer, location: &str) -> String {
    let argument = location.as_bytes().to_vec().into();
    let query = Query { kind: QueryCode::CHECKSUM, handle: Default::default(), argument };
    ChecksumAnswer::decode(&peer.ok(query)).unwrap().digest
}

#[test]
fn the_checksum_is_that_of_the_snapshot_that_the_client_has_open() {
    let stage = Stage::new().with_ten_events();
    let server = Server::with(Settings::default(), |_| stage.shown.clone());
    let digest = |opaque: &str| {
        let file = stage.open("/run7.root", opaque).unwrap();
        ChecksumKind::Adler32.compute(&*file, &CancelGuard::default().signal()).unwrap()
    };
    let (first, mut copying) = (stage.federation.head().unwrap(), server.client());
    let handle = copying.open(&format!("/run7.root?fb.csn={first}"), OpenOptions::READ);
    stage.append(10..20);
    let second = stage.federation.head().unwrap();
    let (old, new) = (digest(&format!("fb.csn={first}")), digest(""));
    assert_ne!(old, new);
    assert_eq!(checksum_of(&mut copying, "/run7.root?cks.type=adler32"), old);
    assert_eq!(checksum_of(&mut copying, &format!("/run7.root?fb.csn={second}")), new);
    assert_eq!(
        checksum_of(&mut server.client(), "/run7.root"),
        new,
        "another client has nothing open"
    );
    copying.ok(Close { handle });
    assert_eq!(checksum_of(&mut copying, "/run7.root"), new);

    let newest = copying.open("/run7.root", OpenOptions::READ);
    stage.append(20..30);
    assert_eq!(checksum_of(&mut copying, "/run7.root"), new, "opened before the append");
    copying.ok(Close { handle: newest });
    assert_ne!(checksum_of(&mut copying, "/run7.root"), new);
}
