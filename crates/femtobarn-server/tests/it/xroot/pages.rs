//! Pages with checksums: pgread and pgwrite.

use xrd::page::{decode_pages, encode_pages};
use xrd::response::{Corrections, Status, StatusKind};

use super::*;

/// Reads with checksums; the data, joined. Each part but the last must end at a page border.
fn pgread(peer: &mut Peer, handle: FileHandle, offset: u64, length: u32) -> Vec<u8> {
    let segment = Segment { handle, length, offset };
    peer.send(PgRead { segment, path: Some(PathId(0)), flags: Some(PageFlags(0)) }, &[]);
    let mut data = Vec::new();
    loop {
        let received = peer.response();
        let Ok(Response::Status(status)) = received.response else { panic!("{received:?}") };
        assert_eq!(status.offset, offset + data.len() as u64);
        let bad = decode_pages(status.offset, &received.data, &mut data).unwrap();
        assert!(bad.is_empty(), "{bad:?}");
        if status.kind == StatusKind::FINAL {
            return data;
        }
        assert_eq!((offset + data.len() as u64) % 4096, 0);
    }
}

#[test]
fn pgread_reads_any_range() {
    let server = Server::start();
    let content = pattern(3_000_001);
    server.write("file", &content);
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    let ranges = [(0, 16_384), (1, 1), (4095, 2), (1000, 2_000_000), (0, 3_000_001), (7, 0)];
    for (offset, length) in ranges {
        let found = pgread(&mut peer, handle, offset, length);
        let start = offset as usize;
        assert!(found == content[start..start + length as usize], "{offset} {length}");
    }
    assert_eq!(pgread(&mut peer, handle, 2_999_999, 8 << 20), content[2_999_999..]);
    assert_eq!(pgread(&mut peer, handle, 3_000_001, 4096), b"");
    assert_eq!(pgread(&mut peer, handle, 1 << 40, 4096), b"");
}

fn written(peer: &mut Peer, request: PgWrite, wire: &[u8]) -> (Status, Option<Corrections>) {
    peer.send(request, wire);
    let received = peer.response();
    let Ok(Response::Status(status)) = received.response else { panic!("{received:?}") };
    let corrections = match received.data.len() {
        0 => None,
        _ => Some(Corrections::decode(&received.data).unwrap()),
    };
    (status, corrections)
}

#[test]
fn damaged_pages_are_reported_and_corrected() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let content = pattern(1_000_000);
    let mut wire = Vec::new();
    encode_pages(1000, &content, &mut wire);
    let mut damaged = wire.clone();
    damaged[50] ^= 1;
    damaged[wire.len() - 1] ^= 0x80;
    let request = pgwrite(handle, 1000, &damaged, PageFlags(0));
    let (status, corrections) = written(&mut peer, request, &damaged);
    assert_eq!((status.offset, status.kind), (1000, StatusKind::FINAL));
    let corrections = corrections.expect("two pages were damaged");
    let last = corrections.offsets[1];
    assert_eq!(corrections.offsets.len(), 2);
    assert_eq!((corrections.offsets[0], corrections.first_bytes), (1000, 3096));
    assert_eq!(u64::from(corrections.last_bytes), 1_001_000 - last);
    // Close fails while pages are uncorrected.
    for (offset, length) in [(1000, 3096), (last, 1_001_000 - last)] {
        let start = (offset - 1000) as usize;
        let mut page = Vec::new();
        encode_pages(offset, &content[start..start + length as usize], &mut page);
        let request = pgwrite(handle, offset, &page, PageFlags::RETRY);
        assert_eq!(written(&mut peer, request, &page).1, None);
    }
    peer.ok(Close { handle });
    assert!(server.bytes_of("file")[1000..] == content, "the file");
    let handle = peer.open("/file", OpenOptions::UPDATE);
    written(&mut peer, pgwrite(handle, 1000, &damaged, PageFlags(0)), &damaged);
    assert_eq!(peer.refused(Close { handle }, &[]), ErrorCode::CHECKSUM_ERROR);
}

#[test]
fn too_many_damaged_pages_are_refused() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let mut wire = Vec::new();
    encode_pages(0, &pattern(200 * 4096), &mut wire);
    for page in 0..200 {
        wire[page * 4100] ^= 1;
    }
    let request = pgwrite(handle, 0, &wire, PageFlags(0));
    assert_eq!(peer.refused(request, &wire), ErrorCode::TOO_MANY_ERRORS);
    peer.assert_well();
}

#[test]
fn impossible_page_writes_are_refused() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    for wire in [&b"abc"[..], &b"abcd"[..], &[0; 4102]] {
        let request = pgwrite(handle, 0, wire, PageFlags(0));
        assert_eq!(peer.refused(request, wire), ErrorCode::ARG_INVALID, "{}", wire.len());
    }
    let mut wire = Vec::new();
    encode_pages(0, b"ok", &mut wire);
    assert_eq!(written(&mut peer, pgwrite(handle, 0, &wire, PageFlags(0)), &wire).1, None);
}
