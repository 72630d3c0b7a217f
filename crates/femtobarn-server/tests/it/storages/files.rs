//! Open files: reading, writing, creation.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn_server::physical::{Creation, Opaque, OpenMode};
use nix::errno::Errno;

use super::{all_of, errno_of, how, stages, to_write};

#[test]
fn reading_past_the_end_gives_fewer_bytes() {
    for stage in stages() {
        let file = stage.make("/a", b"0123456789");
        for (offset, expected) in
            [(0, &b"0123456789"[..]), (7, b"789"), (10, b""), (11, b""), (1 << 40, b"")]
        {
            let mut buffer = [0; 64];
            let read = file.read_at(offset, &mut buffer).unwrap();
            assert_eq!(&buffer[..read], expected, "{} at {offset}", stage.kind);
        }
        for offset in [u64::MAX, u64::MAX - 5, i64::MAX as u64, i64::MAX as u64 - 3] {
            assert_eq!(file.read_at(offset, &mut [0; 64]), Ok(0), "{} at {offset}", stage.kind);
        }
        assert_eq!(file.read_at(3, &mut []), Ok(0), "{}", stage.kind);
    }
}

#[test]
fn try_read_at_gives_the_same_bytes_as_read_at() {
    for stage in stages() {
        let file = stage.make("/a", b"0123456789");
        for offset in [0, 4, 10, 20, u64::MAX] {
            let mut buffer = [0; 8];
            if let Some(now) = file.try_read_at(offset, &mut buffer).unwrap() {
                let mut again = [0; 8];
                assert_eq!(file.read_at(offset, &mut again), Ok(now), "{}", stage.kind);
                assert_eq!(buffer, again, "{}", stage.kind);
            }
        }
    }
}

#[test]
fn holes_are_zero() {
    for stage in stages() {
        let file = stage.make("/a", b"front");
        file.write_at(100_000, b"back").unwrap();
        let bytes = all_of(&*file);
        assert_eq!(bytes.len(), 100_004, "{}", stage.kind);
        assert_eq!((&bytes[..5], &bytes[100_000..]), (&b"front"[..], &b"back"[..]));
        assert!(bytes[5..100_000].iter().all(|byte| *byte == 0), "{}", stage.kind);
        file.truncate(3).unwrap();
        file.truncate(6).unwrap();
        assert_eq!(all_of(&*file), b"fro\0\0\0", "{}", stage.kind);
    }
}

#[test]
fn open_creates_or_truncates_by_its_mode() {
    for stage in stages() {
        let kind = stage.kind;
        assert_eq!(errno_of(stage.open("/a", how(Creation::Existing))), Some(Errno::ENOENT));
        stage.make("/a", b"first");
        assert_eq!(errno_of(stage.open("/a", how(Creation::New))), Some(Errno::EEXIST), "{kind}");
        let there = stage.open("/a", how(Creation::IfAbsent)).unwrap();
        assert_eq!(all_of(&*there), b"first", "{kind}");
        there.write_at(0, b"F").unwrap();
        assert_eq!(stage.read("/a"), b"First", "{kind}");
        stage.open("/a", how(Creation::Empty)).unwrap().write_at(0, b"new").unwrap();
        assert_eq!(stage.read("/a"), b"new", "{kind}");
        stage.open("/b", how(Creation::IfAbsent)).unwrap();
        assert_eq!(stage.names("/"), ["a", "b"], "{kind}");
    }
}

#[test]
fn open_creates_parent_folders_only_if_asked_to() {
    for stage in stages() {
        let plain = how(Creation::New);
        assert_eq!(errno_of(stage.open("/x/y/a", plain)), Some(Errno::ENOENT), "{}", stage.kind);
        let making = OpenMode { make_folders: true, ..plain };
        stage.open("/x/y/a", making).unwrap().write_at(0, b"deep").unwrap();
        assert_eq!(stage.read("/x/y/a"), b"deep", "{}", stage.kind);
        assert_eq!(errno_of(stage.open("/x/y/a/b", making)), Some(Errno::ENOTDIR));
    }
}

#[test]
fn a_file_opened_for_reading_refuses_writes() {
    for stage in stages() {
        stage.make("/a", b"kept");
        let file = stage.open("/a", OpenMode::default()).unwrap();
        assert!(errno_of(file.write_at(0, b"lost")).is_some(), "{}", stage.kind);
        assert!(errno_of(file.truncate(0)).is_some(), "{}", stage.kind);
        assert_eq!(stage.read("/a"), b"kept", "{}", stage.kind);
    }
}

#[test]
fn a_removed_file_stays_readable_while_it_is_open() {
    for stage in stages() {
        let file = stage.make("/a", b"still here");
        stage.storage.remove_file(&super::at("/a"), Opaque::default()).unwrap();
        assert_eq!(all_of(&*file), b"still here", "{}", stage.kind);
        file.write_at(0, b"S").unwrap();
        file.sync().unwrap();
        assert_eq!(errno_of(stage.open("/a", to_write())), Some(Errno::ENOENT), "{}", stage.kind);
    }
}

#[test]
fn impossible_offsets_are_refused() {
    for stage in stages() {
        let file = stage.make("/a", b"a");
        for offset in [u64::MAX, i64::MAX as u64] {
            assert_eq!(errno_of(file.write_at(offset, b"bb")), Some(Errno::EFBIG));
        }
        assert!(errno_of(file.truncate(u64::MAX)).is_some(), "{}", stage.kind);
        assert_eq!(all_of(&*file), b"a", "{}", stage.kind);
    }
}

#[test]
fn readers_and_writers_of_one_file_do_not_block_each_other() {
    const BLOCK: usize = 1000;
    const BLOCKS: u64 = 200;
    for stage in stages() {
        let file = stage.make("/a", &[0; BLOCK]);
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in 0..BLOCKS {
                    file.write_at(block * BLOCK as u64, &[block as u8; BLOCK]).unwrap();
                }
                is_written.store(true, Ordering::Release);
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut buffer = [0; BLOCK];
                    while !is_written.load(Ordering::Acquire) {
                        for block in 0..BLOCKS {
                            let read = file.read_at(block * BLOCK as u64, &mut buffer).unwrap();
                            let known = [0, block as u8];
                            assert!(buffer[..read].iter().all(|byte| known.contains(byte)));
                        }
                    }
                });
            }
        });
        let bytes = all_of(&*file);
        let mut blocks = bytes.chunks(BLOCK).enumerate();
        assert!(blocks.all(|(block, bytes)| bytes == [block as u8; BLOCK]));
    }
}

#[test]
fn a_descriptor_has_the_same_bytes() {
    for stage in stages() {
        let file = stage.make("/a", b"0123456789");
        if let Some(descriptor) = file.descriptor() {
            let other = std::fs::File::from(descriptor.try_clone_to_owned().unwrap());
            let mut bytes = [0; 4];
            other.read_exact_at(&mut bytes, 3).unwrap();
            assert_eq!(&bytes, b"3456", "{}", stage.kind);
        }
    }
}
