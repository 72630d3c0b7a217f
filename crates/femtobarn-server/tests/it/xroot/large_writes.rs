//! Large writes: every byte arrives at its offset, with few calls to the storage.

use std::sync::Mutex;

use femtobarn_server::physical::{Call, CallKind, Gate, Gated, StorageResult};
use xrd::page::{decode_pages, encode_pages};
use xrd::response::StatusKind;

use super::*;

/// Offsets and sizes: at the borders of pieces and beside them.
const WRITES: [(u64, usize); 6] = [
    (0, 3 << 20),
    ((3 << 20) - 5, (2 << 20) + 9),
    (5 << 20, 1 << 20),
    ((6 << 20) + 1, (1 << 20) - 1),
    ((7 << 20) + 4095, (1 << 20) + 300_000),
    ((9 << 20) - 4097, 5000),
];

/// The content of the file after all writes.
fn expected() -> Vec<u8> {
    let mut content = Vec::new();
    for (index, (offset, size)) in WRITES.into_iter().enumerate() {
        let (start, end) = (offset as usize, offset as usize + size);
        content.resize(content.len().max(end), 0);
        content[start..end].copy_from_slice(&data(index, size));
    }
    content
}

/// The data of one of the writes.
fn data(index: usize, size: usize) -> Vec<u8> {
    let mut data = pattern(size + index);
    data.drain(..index);
    data
}

/// Sends bytes in parts that end anywhere, with pauses in which the server can read them.
fn send_in_parts(peer: &mut Peer, bytes: &[u8]) {
    let mut left = bytes;
    for size in [24, 1, 70_000, 300_007, 1 << 20].into_iter().cycle() {
        let (now, later) = left.split_at(size.min(left.len()));
        peer.send_bytes(now);
        left = later;
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn encoded(request: impl Into<Request>, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.into().encode(StreamId([0, 9]), &mut bytes).unwrap();
    bytes.extend_from_slice(data);
    bytes
}

#[test]
fn large_writes_are_complete_at_any_offset() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    // All of them, and a small request behind each, before any answer is read.
    let mut bytes = Vec::new();
    for (index, (offset, size)) in WRITES.into_iter().enumerate() {
        let data = data(index, size);
        bytes.extend(encoded(write(handle, offset, &data), &data));
        bytes.extend(encoded(Ping, &[]));
    }
    send_in_parts(&mut peer, &bytes);
    for _ in 0..2 * WRITES.len() {
        assert!(matches!(peer.joined(), Response::Ok(_)));
    }
    assert!(server.bytes_of("file") == expected());
}

#[test]
fn large_page_writes_are_complete_at_any_offset() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    for (index, (offset, size)) in WRITES.into_iter().enumerate() {
        let mut wire = Vec::new();
        encode_pages(offset, &data(index, size), &mut wire);
        let request = pgwrite(handle, offset, &wire, PageFlags(0));
        send_in_parts(&mut peer, &encoded(request, &wire));
        let received = peer.response();
        let Ok(Response::Status(status)) = received.response else { panic!("{received:?}") };
        assert_eq!((status.kind, received.data.len()), (StatusKind::FINAL, 0));
    }
    assert!(server.bytes_of("file") == expected());
}

#[test]
fn too_many_damaged_pages_of_a_large_write_keep_the_connection_usable() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let mut wire = vec![0xff; 4100 * 2000];
    let request = pgwrite(handle, 0, &wire, PageFlags(0));
    assert_eq!(peer.refused(request, &wire), ErrorCode::TOO_MANY_ERRORS);
    // All data were skipped, and the next request is understood.
    wire.clear();
    let content = pattern(2 << 20);
    encode_pages(0, &content, &mut wire);
    peer.send(pgwrite(handle, 0, &wire, PageFlags(0)), &wire);
    assert!(matches!(peer.response().response, Ok(Response::Status(_))));
    assert!(server.bytes_of("file")[..content.len()] == content);
    assert!(decode_pages(0, &wire, &mut Vec::new()).unwrap().is_empty());
}

/// Records the offset and size of each write.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<(u64, usize)>>>);

impl Gate for Noted {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        if call.kind == CallKind::Write {
            self.0.lock().unwrap().push((call.offset, call.size));
        }
        Ok(call.size)
    }
}

#[test]
fn a_large_write_takes_few_storage_calls() {
    let noted = Noted::default();
    let gate = noted.clone();
    let server = Server::with(Settings::default(), |folder| {
        Arc::new(Gated::new(Arc::new(PosixStorage::new(folder).unwrap()), gate))
    });
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let content = pattern(16 << 20);
    let (first, second) = content.split_at(8 << 20);
    assert!(matches!(peer.ask(write(handle, 0, first), first), Response::Ok(_)));
    // After one large write the server expects another, and reads its header without any data.
    let calls_before = noted.0.lock().unwrap().len();
    let request = write(handle, first.len() as u64, second);
    assert!(matches!(peer.ask(request, second), Response::Ok(_)));
    let calls = noted.0.lock().unwrap()[calls_before..].to_vec();
    // Of 2 MiB each; the kernel gathers less if memory is short.
    assert!(calls.len() <= 8, "{calls:?}");
    assert_eq!(calls.iter().map(|(_, size)| size).sum::<usize>(), second.len());
    assert!(server.bytes_of("file") == content);
}

#[test]
fn more_concurrent_large_writes_than_buffers_all_complete() {
    let server = Server::start();
    let content = pattern(3 << 20);
    // All writes begin before the first one ends, so that only some of them get a large buffer.
    let mut peers: Vec<_> = (0..100)
        .map(|index| {
            let mut peer = server.client();
            let handle = peer.open(&format!("/file{index}"), to_make());
            peer.send(write(handle, 0, &content), &content[..1000]);
            peer
        })
        .collect();
    std::thread::scope(|scope| {
        for peer in &mut peers {
            let content = &content;
            scope.spawn(move || {
                peer.send_bytes(&content[1000..]);
                assert!(matches!(peer.joined(), Response::Ok(_)));
            });
        }
    });
    wait_until("giving buffers back", || server.buffers.used() <= 3);
    for index in 0..peers.len() {
        assert!(server.bytes_of(&format!("file{index}")) == content, "file{index}");
    }
}
