//! Full storages: the right error, no damage, and free space after a removal.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use femtobarn_server::physical::{
    Creation, MemoryStorage, Opaque, OpenMode, PosixStorage, Storage, StorageResult, StoredFile,
};
use nix::errno::Errno;

use super::{all_of, at, errno_of, how};

const FOLDER: &str = "FEMTOBARN_TEST_FULL";

fn open(
    storage: &dyn Storage,
    path: &str,
    creation: Creation,
) -> StorageResult<Arc<dyn StoredFile>> {
    storage.open(&at(path), how(creation), Opaque::default())
}

/// Writes until a write fails; returns the number of bytes written, and the error.
fn fill(file: &dyn StoredFile) -> (u64, Errno) {
    let mut written = 0;
    loop {
        match errno_of(file.write_at(written, &[1; 1000])) {
            None => written += 1000,
            Some(errno) => return (written, errno),
        }
    }
}

#[test]
fn memory_storage_refuses_more_than_its_limit() {
    let storage = MemoryStorage::new(1 << 20);
    let free = || storage.space(&at("/")).unwrap().free;
    let file = open(&storage, "/a", Creation::New).unwrap();
    let empty = free();
    let (written, errno) = fill(&*file);
    assert_eq!(errno, Errno::ENOSPC);
    assert!(written > 900_000 && free() < 70_000, "{written}, {}", free());
    assert!(all_of(&*file)[..written as usize].iter().all(|byte| *byte == 1));
    storage.remove_file(&at("/a"), Opaque::default()).unwrap();
    assert!(free() < 70_000, "the removed file is still open");
    drop(file);
    assert!(free() > empty);

    let file = open(&storage, "/hole", Creation::New).unwrap();
    file.write_at(1 << 40, b"far").unwrap();
    assert!(free() > 900_000, "holes take no space");
    drop(file);
    let refused =
        (0..100_000).find_map(|n| errno_of(open(&storage, &format!("/{n}"), Creation::New)));
    assert_eq!(refused, Some(Errno::ENOSPC));
    let refused = errno_of(storage.make_folder(&at("/d"), 0o755, false));
    assert_eq!(refused, Some(Errno::ENOSPC));
    let refused = errno_of(storage.set_attribute(&at("/0"), b"a", &[0; 60_000], false));
    assert_eq!(refused, Some(Errno::ENOSPC));
    assert_eq!(storage.attributes(&at("/0")), Ok(vec![]));
    for n in 0..100 {
        storage.remove_file(&at(&format!("/{n}")), Opaque::default()).unwrap();
    }
    storage.make_folder(&at("/d"), 0o755, false).unwrap();
}

#[test]
fn removed_files_give_all_their_memory_back() {
    let storage = MemoryStorage::new(1 << 20);
    let free = || storage.space(&at("/")).unwrap().free;
    let before = free();
    storage.make_folder(&at("/a/b"), 0o755, true).unwrap();
    storage.set_attribute(&at("/a/b"), b"name", b"value", false).unwrap();
    let file = open(&storage, "/a/b/file", Creation::New).unwrap();
    file.write_at(100_000, &[1; 300_000]).unwrap();
    file.truncate(150_000).unwrap();
    for value in [&b"one"[..], b"another"] {
        storage.set_attribute(&at("/a/b/file"), b"name", value, false).unwrap();
    }
    storage.rename(&at("/a"), &at("/a much longer name")).unwrap();
    drop(file);
    drop(open(&storage, "/a much longer name/b/file", Creation::Empty).unwrap());
    storage.remove_file(&at("/a much longer name/b/file"), Opaque::default()).unwrap();
    storage.remove_folder(&at("/a much longer name/b")).unwrap();
    storage.remove_folder(&at("/a much longer name")).unwrap();
    assert_eq!(free(), before);
}

/// The test runs itself once more as a process that alone sees a mounted disk of a megabyte.
#[test]
fn a_full_disk_gives_enospc_and_works_again_after_a_removal() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_a_full_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$0\" || exit 77; exec \"$@\"";
    let done = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(folder.path())
        .arg(test)
        .args([
            "--exact",
            "storages::capacity::a_full_disk_gives_enospc_and_works_again_after_a_removal",
            "--nocapture",
        ])
        .env(FOLDER, folder.path())
        .output();
    let Ok(done) = done else { return eprintln!("skipped: this machine has no unshare") };
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    // Not every machine lets tests mount a file system.
    if done.status.code() == Some(77) || said.contains("unshare:") {
        return eprintln!("skipped: nothing can be mounted: {said}");
    }
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "the files were on the mounted disk"
    );
}

/// A folder at the top that is a separate disk of a megabyte.
fn announced_sizes_need_space_on_the_disk_of_the_new_file(folder: &Path) {
    let top = PosixStorage::new(folder.parent().unwrap()).unwrap();
    let disk = folder.file_name().unwrap().to_str().unwrap();
    let open_with = |name: &str, creation, opaque: &str| {
        let how = OpenMode { make_folders: true, ..how(creation) };
        top.open(&at(&format!("/{disk}/{name}")), how, Opaque(opaque.as_bytes())).map(drop)
    };
    let open = |name, creation, announced: u64| {
        open_with(name, creation, &format!("oss.asize={announced}"))
    };
    let too_large = ["oss.asize=2000000", "fb.size=2000000", "fb.size=99999999999999999999"];
    for announced in too_large {
        let refused = errno_of(open_with("new/deep/a", Creation::New, announced));
        assert_eq!((refused, folder.join("new").exists()), (Some(Errno::ENOSPC), false));
    }
    assert_eq!(open_with("over", Creation::IfAbsent, "fb.size=many"), Ok(()), "it is no number");
    assert_eq!(open("new/deep/a", Creation::New, 500_000), Ok(()));
    let over = std::fs::File::create(folder.join("over")).unwrap();
    over.set_len(2_000_000).unwrap();
    assert_eq!(open("over", Creation::Empty, 2_500_000), Ok(()), "it gives its own space");
    std::fs::remove_dir_all(folder.join("new")).unwrap();
    std::fs::remove_file(folder.join("over")).unwrap();
}

fn on_a_full_disk(folder: &Path) {
    announced_sizes_need_space_on_the_disk_of_the_new_file(folder);
    let storage = PosixStorage::new(folder).unwrap();
    let file = open(&storage, "/a", Creation::New).unwrap();
    // A whole window, which bypasses the page cache.
    let window = memmap2::MmapMut::map_anon(2 << 20).unwrap();
    assert_eq!(errno_of(file.write_at(0, &window)), Some(Errno::ENOSPC));
    file.truncate(0).unwrap();
    let (written, errno) = fill(&*file);
    assert_eq!(errno, Errno::ENOSPC);
    assert!(written > 500_000);
    assert_eq!(storage.space(&at("/")).unwrap().free, 0);
    assert!(all_of(&*file)[..written as usize].iter().all(|byte| *byte == 1));
    file.truncate(1000).unwrap();
    file.write_at(1000, &[1; 100_000]).unwrap();
    file.sync().unwrap();
}
