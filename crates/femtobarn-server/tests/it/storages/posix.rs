//! Rules for file systems only: links, pipes, other processes.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn_server::physical::{
    Creation, FileKind, Opaque, OpenMode, PosixStorage, Storage, StorageError,
};
use nix::errno::Errno;
use nix::sys::stat::Mode;

use super::{all_of, at, errno_of, how, to_write};
use crate::ending::EndsOthers;

/// A folder with a secret beside it, and a storage below it.
fn beside_a_secret() -> (tempfile::TempDir, PosixStorage) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("top")).unwrap();
    std::fs::write(folder.path().join("secret"), b"secret").unwrap();
    let storage = PosixStorage::new(&folder.path().join("top")).unwrap();
    (folder, storage)
}

#[test]
fn symbolic_links_work_inside_the_folder_and_are_refused_if_they_lead_out() {
    let (folder, storage) = beside_a_secret();
    let top = folder.path().join("top");
    std::fs::create_dir(top.join("d")).unwrap();
    std::fs::write(top.join("d/file"), b"inside").unwrap();
    symlink("d/file", top.join("in")).unwrap();
    symlink("../d", top.join("d/around")).unwrap();
    for path in ["/in", "/d/around/file", "/d/around/around/file"] {
        let file = storage.open(&at(path), OpenMode::default(), Opaque::default()).unwrap();
        assert_eq!(all_of(&*file), b"inside", "{path}");
    }
    symlink("../secret", top.join("out")).unwrap();
    symlink("..", top.join("up")).unwrap();
    symlink(folder.path().join("secret"), top.join("absolute")).unwrap();
    symlink("/proc/self/root", top.join("d/host")).unwrap();
    symlink("../new", top.join("unborn")).unwrap();
    for path in ["/out", "/up/secret", "/absolute", "/d/host/etc/passwd", "/unborn"] {
        for how in [OpenMode::default(), to_write(), how(Creation::IfAbsent), how(Creation::Empty)]
        {
            let opened = storage.open(&at(path), how, Opaque::default());
            assert_eq!(errno_of(opened), Some(Errno::EACCES), "{path}");
        }
        assert_eq!(errno_of(storage.metadata(&at(path), Opaque::default())), Some(Errno::EACCES));
        assert_eq!(errno_of(storage.truncate(&at(path), 0)), Some(Errno::EACCES), "{path}");
        assert_eq!(errno_of(storage.set_mode(&at(path), 0)), Some(Errno::EACCES), "{path}");
        let set = storage.set_attribute(&at(path), b"a", b"b", false);
        assert_eq!(errno_of(set), Some(Errno::EACCES), "{path}");
    }
    for made in [
        storage.make_folder(&at("/up/x"), 0o755, false),
        storage.remove_file(&at("/up/secret"), Opaque::default()),
        storage.rename(&at("/up/secret"), &at("/mine")),
        storage.rename(&at("/in"), &at("/up/theirs")),
    ] {
        assert_eq!(errno_of(made), Some(Errno::EACCES));
    }
    assert!(errno_of(storage.make_folder(&at("/up/x"), 0o755, true)).is_some());
    assert_eq!(std::fs::read(folder.path().join("secret")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    // A link itself is inside, and may be removed.
    storage.remove_file(&at("/out"), Opaque::default()).unwrap();
    assert!(folder.path().join("secret").exists());
}

#[test]
fn list_describes_the_targets_of_links() {
    let (folder, storage) = beside_a_secret();
    let top = folder.path().join("top");
    std::fs::write(top.join("file"), b"12345").unwrap();
    symlink("file", top.join("in")).unwrap();
    symlink("../secret", top.join("out")).unwrap();
    symlink("nowhere", top.join("lost")).unwrap();
    let entries = storage.list(&at("/"), true, Opaque::default()).unwrap();
    let kinds: Vec<_> = entries.into_iter().map(|entry| entry.metadata.unwrap().kind).collect();
    assert_eq!(kinds, [FileKind::File, FileKind::File, FileKind::Other, FileKind::Other]);
}

#[test]
fn a_folder_that_is_swapped_for_a_link_never_leads_out() {
    let (folder, storage) = beside_a_secret();
    let top = folder.path().join("top");
    std::fs::create_dir_all(top.join("real")).unwrap();
    std::fs::write(top.join("real/secret"), b"public").unwrap();
    symlink("..", top.join("link")).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                for name in ["real", "link"] {
                    std::fs::rename(top.join(name), top.join("door")).unwrap();
                    std::fs::rename(top.join("door"), top.join(name)).unwrap();
                }
            }
        });
        let _ends = EndsOthers(&is_done);
        let mut opened = 0;
        let mut attempts = 0;
        while opened < 20 && attempts < 200_000 {
            attempts += 1;
            match storage.open(&at("/door/secret"), OpenMode::default(), Opaque::default()) {
                Ok(file) => {
                    assert_eq!(all_of(&*file), b"public");
                    opened += 1;
                }
                Err(StorageError::Refused(Errno::ENOENT | Errno::EACCES | Errno::EBUSY, _)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(opened > 0);
    });
}

#[test]
fn open_refuses_a_pipe_without_blocking() {
    let (folder, storage) = beside_a_secret();
    nix::unistd::mkfifo(&folder.path().join("top/pipe"), Mode::S_IRWXU).unwrap();
    for how in [OpenMode::default(), to_write(), how(Creation::IfAbsent)] {
        let opened = storage.open(&at("/pipe"), how, Opaque::default());
        assert_eq!(errno_of(opened), Some(Errno::EACCES));
    }
    assert_eq!(storage.metadata(&at("/pipe"), Opaque::default()).unwrap().kind, FileKind::Other);
    assert!(errno_of(storage.truncate(&at("/pipe"), 0)).is_some());
}

#[test]
fn a_file_in_the_page_cache_is_read_without_blocking() {
    let (folder, storage) = beside_a_secret();
    std::fs::write(folder.path().join("top/file"), vec![7; 100_000]).unwrap();
    let file = storage.open(&at("/file"), OpenMode::default(), Opaque::default()).unwrap();
    let mut bytes = vec![0; 100_000];
    assert_eq!(file.read_at(0, &mut bytes), Ok(100_000));
    // The bytes are in the page cache. File systems that do not know that answer that the read would block.
    match file.try_read_at(1000, &mut bytes) {
        Ok(Some(read)) => assert_eq!(read, 99_000),
        Ok(None) => {}
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_top_that_is_not_a_folder_is_refused() {
    let (folder, _) = beside_a_secret();
    let open = |path: &Path| errno_of(PosixStorage::new(path));
    assert_eq!(open(&folder.path().join("none")), Some(Errno::ENOENT));
    assert_eq!(open(&folder.path().join("secret")), Some(Errno::ENOTDIR));
}

#[test]
fn changes_by_other_processes_are_visible() {
    let (folder, storage) = beside_a_secret();
    let top = folder.path().join("top");
    std::fs::write(top.join("file"), b"short").unwrap();
    let file = storage.open(&at("/file"), OpenMode::default(), Opaque::default()).unwrap();
    std::fs::write(top.join("file"), b"rather longer").unwrap();
    assert_eq!(all_of(&*file), b"rather longer");
    std::fs::remove_file(top.join("file")).unwrap();
    let vanished = storage.metadata(&at("/file"), Opaque::default());
    assert_eq!(errno_of(vanished), Some(Errno::ENOENT));
    std::fs::remove_dir(&top).unwrap();
    assert!(errno_of(storage.open(&at("/new"), how(Creation::New), Opaque::default())).is_some());
}

/// Root has all permissions, so as root this test runs itself once more as a user without them.
#[test]
fn metadata_reports_lost_permissions() {
    const FOLDER: &str = "FEMTOBARN_TEST_PERMISSION";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return without_permission(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"mine").unwrap();
    if !nix::unistd::geteuid().is_root() {
        return without_permission(folder.path());
    }
    // Other users may have access neither to the folder of this program nor to that of temporary files.
    let (uid, name) = (65534, "storages::posix::metadata_reports_lost_permissions");
    for path in [folder.path(), &folder.path().join("file")] {
        nix::unistd::chown(path, Some(uid.into()), None).unwrap();
    }
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    std::os::unix::process::CommandExt::uid(&mut command, uid);
    let done = command.args(["--exact", name]).env(FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

fn without_permission(folder: &Path) {
    let storage = PosixStorage::new(folder).unwrap();
    let open = |how| storage.open(&at("/file"), how, Opaque::default());
    let file = open(to_write()).unwrap();
    storage.set_mode(&at("/file"), 0o400).unwrap();
    let metadata = storage.metadata(&at("/file"), Opaque::default()).unwrap();
    assert_eq!((metadata.is_readable, metadata.is_writable), (true, false));
    assert_eq!(errno_of(open(to_write())), Some(Errno::EACCES));
    storage.set_mode(&at("/file"), 0).unwrap();
    assert_eq!(errno_of(open(OpenMode::default())), Some(Errno::EACCES));
    let metadata = storage.metadata(&at("/file"), Opaque::default()).unwrap();
    assert_eq!((metadata.is_readable, metadata.is_writable), (false, false));
    // An open file stays usable.
    file.write_at(0, b"M").unwrap();
    assert_eq!(all_of(&*file), b"Mine");
    let window = memmap2::MmapMut::map_anon(2 << 20).unwrap();
    file.write_at(0, &window).unwrap();
    assert!(all_of(&*file) == *window);
    storage.set_mode(&at("/"), 0o500).unwrap();
    let made = storage.open(&at("/new"), how(Creation::New), Opaque::default());
    assert_eq!(errno_of(made), Some(Errno::EACCES));
    storage.set_mode(&at("/"), 0o700).unwrap();
}

#[test]
fn space_is_reserved_up_to_the_announced_size() {
    const MIB: u64 = 1 << 20;
    let (folder, storage) = beside_a_secret();
    let write = |name: &str, hint: &str, offset| {
        let file = storage.open(&at(name), how(Creation::New), Opaque(hint.as_bytes())).unwrap();
        file.write_at(offset, &[7; 4096]).unwrap();
        let found = std::fs::metadata(folder.path().join("top").join(&name[1..])).unwrap();
        assert_eq!(found.len(), offset + 4096, "{hint}");
        found.blocks() * 512
    };
    assert!(write("/plain", "", 0) < MIB);
    let (whole, slack) = (10 * MIB, 64 * 1024);
    for (name, hint) in [("/ours", "fb.size=10485760"), ("/theirs", "oss.asize=10485760")] {
        assert!((whole..whole + slack).contains(&write(name, hint, 0)), "{hint}");
    }
    let large = "fb.size=500000000";
    assert!((64 * MIB..64 * MIB + slack).contains(&write("/begun", large, 0)), "a block at a time");
    assert!(write("/sparse", large, 450_000_000) <= 64 * MIB + slack, "what lies before is a hole");
    assert!(write("/past", "fb.size=1", MIB) < MIB, "more than was announced");
    let cut = storage.open(&at("/begun"), to_write(), Opaque::default()).unwrap();
    cut.truncate(4096).unwrap();
    assert!(std::fs::metadata(folder.path().join("top/begun")).unwrap().blocks() * 512 < MIB);
}

/// A file system may give the number of a removed file to a new one.
#[test]
fn a_new_file_in_the_place_of_a_removed_one_has_another_identity() {
    let (folder, storage) = beside_a_secret();
    let path = folder.path().join("top/x");
    let identity = || {
        std::fs::write(&path, b"x").unwrap();
        let file = storage.open(&at("/x"), OpenMode::default(), Opaque::default()).unwrap();
        let identities = [file.identity().unwrap(), file.identity().unwrap()];
        assert_eq!(identities[0], identities[1]);
        std::fs::remove_file(&path).unwrap();
        identities[0]
    };
    let all: std::collections::HashSet<u64> = (0..20).map(|_| identity()).collect();
    assert_eq!(all.len(), 20);
}
