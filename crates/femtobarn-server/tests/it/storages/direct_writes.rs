//! Whole windows of a file are written around the page cache, and readers see them.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn_server::physical::{Creation, Opaque, PosixStorage, Storage, StoredFile};
use memmap2::{Mmap, MmapMut};
use nix::libc::{O_DIRECT, c_void, mincore};
use nix::sys::sendfile::sendfile;

use super::{all_of, at, how, posix_stage, to_write};
use crate::ending::EndsOthers;

const WINDOW: usize = 2 << 20;

/// `count` windows filled with one byte, aligned in memory as direct writes need it.
fn windows(count: usize, byte: u8) -> MmapMut {
    let mut map = MmapMut::map_anon(count * WINDOW).unwrap();
    map.fill(byte);
    map
}

fn new_file(storage: &PosixStorage) -> Arc<dyn StoredFile> {
    storage.open(&at("/file"), how(Creation::New), Opaque::default()).unwrap()
}

/// Whether the page cache has the page after the first window. Reading it without blocking would not show that: the
/// kernel begins to read the page then, and may have it before it answers.
fn is_in_cache(path: &Path) -> bool {
    // SAFETY: the test does not truncate the file.
    let map = unsafe { Mmap::map(&File::open(path).unwrap()) }.unwrap();
    let mut is_resident = 0;
    // SAFETY: the page is mapped, and one byte is written for it.
    let answer =
        unsafe { mincore(map.as_ptr().add(WINDOW) as *mut c_void, 1, &raw mut is_resident) };
    assert_eq!(answer, 0);
    is_resident & 1 == 1
}

/// The bytes that `sendfile` sends of a range.
fn sent(file: &dyn StoredFile, offset: i64, size: usize) -> Vec<u8> {
    let (mut reader, writer) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = offset;
            while next < offset + size as i64 {
                let missing = (offset + size as i64 - next) as usize;
                let descriptor = file.descriptor().unwrap();
                assert!(sendfile(&writer, descriptor, Some(&mut next), missing).unwrap() > 0);
            }
        });
        let mut bytes = vec![];
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

#[test]
fn whole_windows_bypass_the_page_cache_if_the_file_system_can() {
    let folder = tempfile::tempdir().unwrap();
    let storage = PosixStorage::new(folder.path()).unwrap();
    let two = windows(2, 1);
    let mut flags = OpenOptions::new();
    let flags = flags.write(true).create(true).custom_flags(O_DIRECT);
    let direct = flags.open(folder.path().join("direct"));
    if direct.and_then(|file| file.write_all_at(&two, 0)).is_err() {
        return eprintln!("this file system has no direct writes");
    }
    if is_in_cache(&folder.path().join("direct")) {
        return eprintln!("this file system caches direct writes");
    }
    let (file, path) = (new_file(&storage), folder.path().join("file"));
    file.write_at(0, &two).unwrap();
    assert!(!is_in_cache(&path));
    assert!(all_of(&*file) == *two);
    file.write_at(WINDOW as u64, &[1; 8192]).unwrap();
    assert!(is_in_cache(&path), "small writes go through the cache");
}

#[test]
fn readers_see_bytes_written_around_the_page_cache() {
    let folder = tempfile::tempdir().unwrap();
    let storage = PosixStorage::new(folder.path()).unwrap();
    let file = new_file(&storage);
    let path = folder.path().join("file");
    let mut expected = vec![1; 3 * WINDOW + 5];
    file.write_at(0, &expected).unwrap();
    // SAFETY: the test does not truncate the file, and bytes may have any value.
    let map = unsafe { Mmap::map(&File::open(&path).unwrap()) }.unwrap();
    let see = |expected: &[u8]| {
        assert!(all_of(&*file) == expected);
        assert!(*map == *expected, "mapped");
        assert!(sent(&*file, 0, expected.len()) == expected, "sent by the kernel");
        assert!(std::fs::read(&path).unwrap() == expected, "reopened");
        let mut some = vec![0; WINDOW + 10];
        if let Some(count) = file.try_read_at(WINDOW as u64 - 5, &mut some).unwrap() {
            assert!(some[..count] == expected[WINDOW - 5..][..count], "without blocking");
        }
    };
    see(&expected);
    // Over bytes that are in the cache and not yet on disk.
    for byte in 2..5 {
        file.write_at(WINDOW as u64, &windows(1, byte)).unwrap();
        expected[WINDOW..2 * WINDOW].fill(byte);
        see(&expected);
        // At both ends of the window, through the cache again.
        file.write_at(WINDOW as u64 - 3, &[byte + 10; 6]).unwrap();
        file.write_at(2 * WINDOW as u64 - 3, &[byte + 20; 6]).unwrap();
        expected[WINDOW - 3..][..6].fill(byte + 10);
        expected[2 * WINDOW - 3..][..6].fill(byte + 20);
        see(&expected);
    }
    file.sync().unwrap();
    file.write_at(0, &windows(2, 9)).unwrap();
    expected[..2 * WINDOW].fill(9);
    see(&expected);
    file.sync().unwrap();
    see(&expected);
}

#[test]
fn writes_that_are_not_whole_windows_are_written_through_the_cache() {
    let stage = posix_stage();
    let file = stage.open("/file", how(Creation::New)).unwrap();
    let map = windows(3, 7);
    let mut expected = vec![];
    for (start, offset, size) in [
        (1, 0, WINDOW),
        (0, 4096, WINDOW),
        (0, 2 * WINDOW, WINDOW - 4096),
        (4096, 4 * WINDOW, WINDOW + 1),
        (0, 8 * WINDOW, 3 * WINDOW),
        (0, 0, 0),
    ] {
        file.write_at(offset as u64, &map[start..][..size]).unwrap();
        expected.resize(expected.len().max(offset + size), 0);
        expected[offset..][..size].fill(7);
        assert!(all_of(&*file) == expected, "{size} bytes at {offset}");
    }
}

#[test]
fn a_renamed_file_is_written_and_not_the_one_that_took_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let storage = PosixStorage::new(folder.path()).unwrap();
    let file = new_file(&storage);
    std::fs::rename(folder.path().join("file"), folder.path().join("moved")).unwrap();
    std::fs::write(folder.path().join("file"), b"another").unwrap();
    file.write_at(0, &windows(1, 5)).unwrap();
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"another");
    assert!(std::fs::read(folder.path().join("moved")).unwrap() == *windows(1, 5));
    std::fs::remove_file(folder.path().join("moved")).unwrap();
    file.write_at(WINDOW as u64, &windows(1, 6)).unwrap();
    assert!(all_of(&*file)[WINDOW..] == *windows(1, 6));
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"another");
}

/// The kernel fails a sync if a changed page of its cache was meanwhile overwritten by a direct write.
#[test]
fn writers_of_neighbouring_windows_do_not_disturb_each_other() {
    const ROUNDS: u8 = 20;
    let folder = tempfile::tempdir().unwrap();
    let storage = PosixStorage::new(folder.path()).unwrap();
    let file = new_file(&storage);
    file.truncate(8 * WINDOW as u64).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&is_done, &folder.path().join("file")));
        let _ends = EndsOthers(&is_done);
        let writers: Vec<_> = (0..4)
            .map(|index| {
                let storage = &storage;
                scope.spawn(move || {
                    let file = storage.open(&at("/file"), to_write(), Opaque::default()).unwrap();
                    for round in 1..=ROUNDS {
                        let window = windows(1, round);
                        // One window bypasses the cache, the next one goes through it.
                        file.write_at((2 * index * WINDOW) as u64, &window).unwrap();
                        for part in (0..WINDOW).step_by(100_000) {
                            let end = (part + 100_000).min(WINDOW);
                            let offset = (2 * index + 1) * WINDOW + part;
                            file.write_at(offset as u64, &window[part..end]).unwrap();
                        }
                        file.sync().unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert!(all_of(&*file) == *windows(8, ROUNDS));
}

fn read_until(is_done: &AtomicBool, path: &Path) {
    while !is_done.load(Ordering::Acquire) {
        std::fs::read(path).unwrap();
    }
}
