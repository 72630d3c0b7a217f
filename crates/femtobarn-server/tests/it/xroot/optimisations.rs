//! Optimisations of the logical layer, and switching them off.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use femtobarn_server::physical::{
    FolderEntry, Metadata, Opaque, OpenMode, Space, StorageError, StorageResult, StoredFile,
};

use super::*;

/// A folder that counts opens and syncs.
struct Counting {
    below: PosixStorage,
    opens: Arc<AtomicUsize>,
    syncs: Arc<AtomicUsize>,
}

struct CountingFile {
    below: Arc<dyn StoredFile>,
    syncs: Arc<AtomicUsize>,
}

impl Storage for Counting {
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        if path.as_bytes() == b"/tape" {
            return Err(StorageError::NotBefore(Duration::from_secs(7), "mounting".to_owned()));
        }
        self.opens.fetch_add(1, Ordering::SeqCst);
        let below = self.below.open(path, how, opaque)?;
        Ok(Arc::new(CountingFile { below, syncs: Arc::clone(&self.syncs) }))
    }
    fn metadata(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<Metadata> {
        self.below.metadata(path, opaque)
    }
    fn list(
        &self,
        path: &StoragePath,
        metadata: bool,
        opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        self.below.list(path, metadata, opaque)
    }
    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        self.below.make_folder(path, mode, parents)
    }
    fn remove_file(&self, path: &StoragePath, opaque: Opaque<'_>) -> StorageResult<()> {
        self.below.remove_file(path, opaque)
    }
    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        self.below.remove_folder(path)
    }
    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        self.below.rename(from, to)
    }
    fn set_mode(&self, path: &StoragePath, mode: u32) -> StorageResult<()> {
        self.below.set_mode(path, mode)
    }
    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        self.below.truncate(path, size)
    }
    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        self.below.space(path)
    }
    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        self.below.attributes(path)
    }
    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>> {
        self.below.attribute(path, name)
    }
    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        new: bool,
    ) -> StorageResult<()> {
        self.below.set_attribute(path, name, value, new)
    }
    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        self.below.remove_attribute(path, name)
    }
}

/// The file has no descriptor and no cached bytes, so that all reads use `read_at`.
impl StoredFile for CountingFile {
    fn metadata(&self) -> StorageResult<Metadata> {
        self.below.metadata()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<usize> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> StorageResult<()> {
        if bytes.starts_with(b"full") {
            return Err(StorageError::refused(nix::errno::Errno::ENOSPC, "the disk is full"));
        }
        self.below.write_at(offset, bytes)
    }
    fn sync(&self) -> StorageResult<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.below.sync()
    }
    fn truncate(&self, size: u64) -> StorageResult<()> {
        self.below.truncate(size)
    }
}

struct Counted {
    server: Server,
    opens: Arc<AtomicUsize>,
    syncs: Arc<AtomicUsize>,
}

fn counted(settings: Settings) -> Counted {
    let (opens, syncs) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (to_opens, to_syncs) = (Arc::clone(&opens), Arc::clone(&syncs));
    let storage = move |folder: &Path| -> Arc<dyn Storage> {
        let below = PosixStorage::new(folder).unwrap();
        Arc::new(Counting { below, opens: to_opens, syncs: to_syncs })
    };
    Counted { server: Server::with(settings, storage), opens, syncs }
}

#[test]
fn sessions_share_one_open_file() {
    for (reuse_files, expected) in [(true, 1), (false, 10)] {
        let Counted { server, opens, .. } =
            counted(Settings { reuse_files, ..Settings::default() });
        server.write("file", b"abc");
        let mut peers: Vec<_> = (0..10).map(|_| server.client()).collect();
        for peer in &mut peers {
            let handle = peer.open("/file", OpenOptions::READ);
            assert_eq!(peer.read(handle, 0, 10), &b"abc"[..]);
        }
        assert_eq!(opens.load(Ordering::SeqCst), expected);
    }
}

#[test]
fn a_replaced_file_is_not_shared_with_the_old_one() {
    let Counted { server, .. } = counted(Settings::default());
    server.write("file", b"old");
    let mut peer = server.client();
    let old = peer.open("/file", OpenOptions::READ);
    std::fs::remove_file(server.folder.path().join("file")).unwrap();
    server.write("other", b"new");
    std::fs::rename(server.folder.path().join("other"), server.folder.path().join("file")).unwrap();
    let new = peer.open("/file", OpenOptions::READ);
    assert_eq!(peer.read(old, 0, 3), &b"old"[..]);
    assert_eq!(peer.read(new, 0, 3), &b"new"[..]);
}

#[test]
fn idle_files_are_closed_and_transparently_reopened() {
    let Counted { server, opens, .. } = counted(Settings::default());
    server.write("file", b"abc");
    server.write("gone", b"abc");
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    let gone = peer.open("/gone", OpenOptions::READ);
    let writer = peer.open("/new", to_make());
    server.logical.files.close_idle();
    server.logical.files.close_idle();
    assert_eq!(opens.load(Ordering::SeqCst), 3);
    assert_eq!(peer.read(handle, 1, 10), &b"bc"[..]);
    assert_eq!(opens.load(Ordering::SeqCst), 4);
    assert_eq!(peer.read(handle, 1, 10), &b"bc"[..]);
    // Files that are written to stay open.
    assert!(matches!(peer.ask(write(writer, 0, b"x"), b"x"), Response::Ok(_)));
    assert_eq!(opens.load(Ordering::SeqCst), 4);
    // Another file of that name is not taken for the old one.
    server.write("other", b"xyz");
    std::fs::rename(server.folder.path().join("other"), server.folder.path().join("gone")).unwrap();
    assert_eq!(peer.refused(read(gone, 0, 3), &[]), ErrorCode::IO_ERROR);
}

#[test]
fn syncs_without_writes_are_skipped() {
    for (eliminate_syncs, expected) in [(true, [1, 1, 2]), (false, [1, 2, 3])] {
        let Counted { server, syncs, .. } =
            counted(Settings { eliminate_syncs, ..Settings::default() });
        let mut peer = server.client();
        let handle = peer.open("/file", to_make());
        let mut found = Vec::new();
        for data in [&b"a"[..], b"", b"b"] {
            if !data.is_empty() {
                assert!(matches!(peer.ask(write(handle, 0, data), data), Response::Ok(_)));
            }
            peer.ok(Sync { handle });
            found.push(syncs.load(Ordering::SeqCst));
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn a_deferred_open_is_answered_by_a_wait() {
    let Counted { server, .. } = counted(Settings::default());
    let mut peer = server.client();
    let wait = xrd::response::Wait { seconds: 7, message: "mounting".to_owned() };
    assert_eq!(peer.ask(open("/tape", OpenOptions::READ), &[]), Response::Wait(wait));
    peer.assert_well();
}

#[test]
fn a_full_disk_is_answered_after_all_data_have_arrived() {
    let Counted { server, .. } = counted(Settings::default());
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let data = [&b"full"[..], &pattern(1 << 20)].concat();
    assert_eq!(peer.refused(write(handle, 0, &data), &data), ErrorCode::NO_SPACE);
    assert!(matches!(peer.ask(write(handle, 0, b"ok"), b"ok"), Response::Ok(_)));
}

#[test]
fn storages_without_nonblocking_reads_are_served() {
    let Counted { server, .. } = counted(Settings::default());
    let content = pattern(3_000_000);
    server.write("file", &content);
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    assert!(peer.read(handle, 10, 1000) == content[10..1010]);
    assert!(peer.read(handle, 10, 4 << 20) == content[10..]);
    let segments: Vec<_> =
        (0..100).map(|index| Segment { handle, length: 1000, offset: 2000 * index }).collect();
    let body = peer.ok(ReadV { path: PathId(0), segments });
    for piece in xrd::segment::decode_segment_data(&body).unwrap() {
        let start = piece.segment.offset as usize;
        assert!(piece.data == content[start..start + 1000]);
    }
    // Many concurrent requests are answered, in any order.
    let asked: Vec<_> =
        (0..100).map(|index| peer.send(read(handle, index * 1000, 1000), &[])).collect();
    let mut answered: Vec<_> = asked
        .iter()
        .map(|_| {
            let received = peer.response();
            let index = asked.iter().position(|stream| *stream == received.header.stream).unwrap();
            let expected = content[index * 1000..][..1000].to_vec();
            assert_eq!(received.response, Ok(Response::Ok(expected.into())));
            received.header.stream
        })
        .collect();
    answered.sort();
    assert_eq!(answered, asked);
}
