//! Open files that several sessions share: skipped syncs, and the number that one machine may keep open.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::logical::files::{Files, SharedFile};
use femtobarn_server::physical::{
    Call, CallKind, Creation, Gate, Gated, MemoryStorage, Opaque, OpenMode, StorageError,
    StoragePath, StorageResult,
};

/// Stops calls of one kind until the test lets them pass.
struct Barrier {
    kind: CallKind,
    arrived: Sender<()>,
    may_pass: Mutex<Receiver<()>>,
}

impl Gate for Barrier {
    fn pass(&self, call: Call<'_>) -> StorageResult<usize> {
        if call.kind == self.kind {
            self.arrived.send(()).unwrap();
            // Once the test has dropped its end, all calls pass.
            let _ = self.may_pass.lock().unwrap().recv();
        }
        Ok(call.size)
    }
}

/// A new file whose calls of one kind are stopped, a channel that reports these calls, and one that lets them pass.
fn behind_a_barrier(kind: CallKind) -> (Arc<SharedFile>, Receiver<()>, Sender<()>) {
    let ((arrived, arrives), (pass, may_pass)) = (channel(), channel());
    let gate = Barrier { kind, arrived, may_pass: Mutex::new(may_pass) };
    let storage = Gated::new(Arc::new(MemoryStorage::new(1 << 20)), gate);
    let mut exports = Exports::default();
    exports
        .add(&StoragePath::new(b"/").unwrap(), Arc::new(storage), ExportOptions::default())
        .unwrap();
    let files = Files::new(Arc::new(exports), true, true, (10, 50));
    let how = OpenMode { write: true, creation: Creation::New, ..OpenMode::default() };
    let path = StoragePath::new(b"/file").unwrap();
    let (file, _) = files.open(&path, how, Opaque::default(), Ipv4Addr::LOCALHOST.into()).unwrap();
    (file, arrives, pass)
}

/// A write once marked the file as unsynced before it was done. A sync of another session in between cleared
/// the mark, and the writer's own sync was skipped.
#[test]
fn a_write_during_a_sync_is_synced_by_the_next_one() {
    let (file, arrives, pass) = behind_a_barrier(CallKind::Write);
    thread::scope(|scope| {
        let writing = scope.spawn(|| file.write_at(0, b"late"));
        arrives.recv().unwrap();
        file.sync().unwrap();
        pass.send(()).unwrap();
        writing.join().unwrap().unwrap();
    });
    assert!(file.sync().unwrap(), "the write is not synced yet");
    assert!(!file.sync().unwrap(), "everything is synced");
}

/// A sync that found nothing to do once returned while another session's sync was in progress, so bytes that
/// were reported as durable were not.
#[test]
fn a_skipped_sync_waits_for_the_sync_in_progress() {
    let (file, arrives, pass) = behind_a_barrier(CallKind::Sync);
    thread::scope(|scope| {
        let first = scope.spawn(|| file.sync());
        arrives.recv().unwrap();
        let (done, is_done) = channel();
        let second = scope.spawn({
            let file = &file;
            move || {
                let synced = file.sync();
                done.send(()).unwrap();
                synced
            }
        });
        let early = is_done.recv_timeout(Duration::from_millis(200));
        drop(pass);
        assert!(early.is_err(), "the second sync did not wait");
        assert!(first.join().unwrap().unwrap());
        assert!(!second.join().unwrap().unwrap());
    });
}

/// One machine with many of these files once took all descriptors, so that others could open none.
#[test]
fn files_that_stay_open_are_shared_out_among_machines() {
    let mut exports = Exports::default();
    let storage = Arc::new(MemoryStorage::new(1 << 20));
    exports.add(&StoragePath::new(b"/").unwrap(), storage, ExportOptions::default()).unwrap();
    let files = Files::new(Arc::new(exports), true, true, (8, 50));
    let open = |path: &str, how: OpenMode, last: u8| {
        let path = StoragePath::new(path.as_bytes()).unwrap();
        let client = IpAddr::from([10, 0, 0, last]);
        files.open(&path, how, Opaque::default(), client).map(|(file, _)| file)
    };
    let new = OpenMode { write: true, creation: Creation::New, ..OpenMode::default() };
    let mut kept: Vec<_> = (0..4).map(|it| open(&format!("/{it}"), new, 1).unwrap()).collect();
    let refused = open("/4", new, 1).err().map(StorageError::into_text).unwrap_or_default();
    assert!(refused.contains("too many open files"), "{refused}");
    assert!(refused.contains("limits.machine_percent"), "{refused}");
    assert!(open("/4", OpenMode::default(), 1).is_err(), "it was not made");
    kept.push(open("/4", new, 2).unwrap());
    let read: Vec<_> = (0..5).map(|it| open(&format!("/{it}"), OpenMode::default(), 1)).collect();
    assert!(read.iter().all(Result::is_ok), "files for reading are closed if there is no room");
    kept.remove(0);
    // Uploads count among them, by the same rule.
    let at = StoragePath::new(b"/5").unwrap();
    let hold = || files.hold(&at, IpAddr::from([10, 0, 0, 1]));
    let stored = hold().unwrap();
    assert!(hold().is_err() && open("/5", new, 1).is_err());
    drop(stored);
    open("/5", new, 1).unwrap();
}
