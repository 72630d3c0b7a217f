//! Checkpoints and their journals, also of killed servers.

use std::path::{Path, PathBuf};
use std::thread;

use femtobarn_server::Server as Whole;
use femtobarn_server::config::{Allowed, AuthConfig, Config, ExportConfig};
use xrd::flags::DirlistOptions;

use super::*;
use crate::killable::{self, Killable};

const JOURNALS: &str = ".femtobarn-checkpoints";

fn config(folder: &Path) -> Config {
    let export = ExportConfig {
        folder: folder.to_owned(),
        name: "/".into(),
        read_only: false,
        cache: None,
        throttle: None,
        faults: vec![],
    };
    Config {
        address: "127.0.0.1".into(),
        port: 0,
        exports: vec![export],
        auth: AuthConfig { anonymous: Allowed::All, ..AuthConfig::default() },
        ..Config::default()
    }
}

/// Not a test: the server's process runs it. It serves a folder and writes its port to a file.
#[test]
#[ignore = "run by other tests as another process"]
fn serves() {
    let Some(argument) = killable::argument() else { return };
    let (port, folder) = argument.split_once('\n').unwrap();
    let server = Whole::start(config(&PathBuf::from(folder))).unwrap();
    let begun = format!("{port}.new");
    std::fs::write(&begun, server.address().port().to_string()).unwrap();
    std::fs::rename(begun, port).unwrap();
    loop {
        thread::park();
    }
}

/// A folder, and a server of it in a separate process.
struct Stage {
    outside: TempDir,
    folder: TempDir,
    process: Option<Killable>,
}

impl Stage {
    fn new() -> Self {
        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let argument =
            format!("{}\n{}", outside.path().join("port").display(), folder.path().display());
        let process = Killable::start("xroot::checkpoints::serves", argument);
        Stage { outside, folder, process: Some(process) }
    }

    fn client(&self) -> Peer {
        let port = self.outside.path().join("port");
        wait_until("starting", || port.exists());
        let port = std::fs::read_to_string(port).unwrap().parse().unwrap();
        Peer::logged_in(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn kill(&mut self) {
        self.process = None;
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bytes_of(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap()
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.file(JOURNALS)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn change(peer: &mut Peer, handle: FileHandle, offset: u64, data: &[u8]) {
    let change = CheckpointWrite::Write(write(handle, offset, data));
    assert!(matches!(peer.ask(Chkpoint::Execute(change), data), Response::Ok(_)));
}

/// Changes a file in a checkpoint that is not committed.
fn begin(peer: &mut Peer, name: &str) -> FileHandle {
    let handle = peer.open(name, OpenOptions::UPDATE);
    peer.ok(Chkpoint::Begin(handle));
    change(peer, handle, 2, b"abcd");
    change(peer, handle, 3, b"XY");
    peer.ok(Chkpoint::Execute(CheckpointWrite::Truncate { handle, size: 7 }));
    change(peer, handle, 20, b"far");
    handle
}

#[test]
fn checkpoints_of_a_killed_server_are_undone_at_the_next_start() {
    let mut stage = Stage::new();
    for name in ["left", "kept"] {
        std::fs::write(stage.file(name), b"0123456789").unwrap();
    }
    let mut peer = stage.client();
    let kept = begin(&mut peer, "/kept");
    peer.ok(Chkpoint::Commit(kept));
    begin(&mut peer, "/left");
    stage.kill();
    let changed = b"01aXYd6\0\0\0\0\0\0\0\0\0\0\0\0\0far".to_vec();
    assert_eq!(
        (stage.bytes_of("left"), stage.bytes_of("kept")),
        (changed.clone(), changed.clone())
    );
    assert_eq!(stage.journals().len(), 1);
    let _server = Whole::start(config(stage.folder.path())).unwrap();
    assert_eq!(stage.bytes_of("left"), b"0123456789");
    assert_eq!(stage.bytes_of("kept"), changed);
    assert!(stage.journals().is_empty());
}

#[test]
fn an_incomplete_journal_record_is_ignored() {
    let mut stage = Stage::new();
    std::fs::write(stage.file("file"), b"0123456789").unwrap();
    let mut peer = stage.client();
    let handle = peer.open("/file", OpenOptions::UPDATE);
    peer.ok(Chkpoint::Begin(handle));
    change(&mut peer, handle, 0, b"first");
    let noted = std::fs::metadata(&stage.journals()[0]).unwrap().len();
    change(&mut peer, handle, 5, b"later");
    stage.kill();
    let journal = stage.journals().remove(0);
    let whole = std::fs::read(&journal).unwrap();
    for length in [noted as usize, whole.len() - 1] {
        std::fs::write(stage.file("file"), b"first56789").unwrap();
        std::fs::write(&journal, &whole[..length]).unwrap();
        drop(Whole::start(config(stage.folder.path())).unwrap());
        assert_eq!(stage.bytes_of("file"), b"0123456789");
    }
    // A file that is not a journal is ignored.
    for bytes in [&b""[..], b"\0\0\0\x01", &[0xFF; 100], &whole[1..]] {
        std::fs::write(&journal, bytes).unwrap();
        drop(Whole::start(config(stage.folder.path())).unwrap());
        assert_eq!(stage.bytes_of("file"), b"0123456789");
    }
}

#[test]
fn a_journal_does_not_touch_a_replaced_file() {
    let mut stage = Stage::new();
    std::fs::write(stage.file("file"), b"0123456789").unwrap();
    let mut peer = stage.client();
    begin(&mut peer, "/file");
    stage.kill();
    std::fs::write(stage.file("other"), b"another").unwrap();
    std::fs::rename(stage.file("other"), stage.file("file")).unwrap();
    let _server = Whole::start(config(stage.folder.path())).unwrap();
    assert_eq!(stage.bytes_of("file"), b"another");
    assert_eq!(stage.journals().len(), 1, "the operator may want it");
}

#[test]
fn another_server_leaves_an_open_checkpoint_alone() {
    let stage = Stage::new();
    std::fs::write(stage.file("file"), b"0123456789").unwrap();
    let mut peer = stage.client();
    let handle = begin(&mut peer, "/file");
    let changed = stage.bytes_of("file");
    let _server = Whole::start(config(stage.folder.path())).unwrap();
    assert_eq!(stage.bytes_of("file"), changed);
    peer.ok(Chkpoint::Rollback(handle));
    assert_eq!(stage.bytes_of("file"), b"0123456789");
    assert!(stage.journals().is_empty());
}

#[test]
fn journals_are_hidden_from_clients() {
    let server = Server::start();
    server.write("file", b"0123456789");
    let mut peer = server.client();
    begin(&mut peer, "/file");
    assert!(server.folder.path().join(JOURNALS).exists());
    let list = Dirlist { options: DirlistOptions::default(), location: at("/") };
    assert_eq!(peer.ok(list).strip_suffix(b"\0").unwrap(), b"file");
    let hidden = format!("/{JOURNALS}");
    let inside = format!("{hidden}/x");
    for path in [hidden, inside] {
        assert_eq!(peer.refused(open(&path, to_make()), &[]), ErrorCode::NOT_FOUND);
        assert_eq!(peer.refused(Rm { location: at(&path) }, &[]), ErrorCode::NOT_FOUND);
    }
}

#[test]
fn the_number_of_changes_in_a_checkpoint_is_limited() {
    let server = Server::start();
    server.write("file", &pattern(100));
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::UPDATE);
    peer.ok(Chkpoint::Begin(handle));
    let change = |offset| CheckpointWrite::Write(write(handle, offset, b"x"));
    let refused =
        (0..20_000u64).find(|index| match peer.ask(Chkpoint::Execute(change(index % 100)), b"x") {
            Response::Ok(_) => false,
            Response::Error(failure) => failure.code == ErrorCode::OVER_QUOTA,
            other => panic!("{other:?}"),
        });
    assert_eq!(refused, Some(16 * 1024));
    peer.ok(Chkpoint::Rollback(handle));
    assert_eq!(server.bytes_of("file"), pattern(100));
}
