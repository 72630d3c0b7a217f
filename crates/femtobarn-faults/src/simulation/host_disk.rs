//! The disk of a host: a folder whose files programs change, what becomes of them when the power fails, and its faults.
//!
//! Invariant: the folder has what programs read, and the trace has the operations since the last loss of power, which the disk may
//! have done or not.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::libc;

use crate::crash::{crashes, write};
use crate::disk::CrashDisk;
use crate::fault::{FaultKind, OperationKind};
use crate::random::SplitMix;
use crate::trace::FileOperation;

/// How long a disk takes to make bytes durable, in nanoseconds.
const SYNC_NS_MAX: u64 = 2_000_000;
/// The answer to a write that is done in part.
const IN_PART: i64 = -1;

pub(super) struct HostDisk {
    folder: PathBuf,
    trace: PathBuf,
    disk: CrashDisk,
    random: SplitMix,
    /// Faults that strike now; all but [`FaultKind::Full`] strike one operation.
    faults: Vec<FaultKind>,
    /// Syncs are so many times slower than usual.
    slowness: u64,
    /// Those of one operation that have struck since that was asked last.
    struck: Vec<FaultKind>,
    /// Operations that faults have struck.
    failures: u64,
}

impl HostDisk {
    /// The disk of an empty folder, on which programs record their operations in `trace`.
    pub(super) fn new(folder: PathBuf, trace: PathBuf, random: SplitMix) -> Self {
        HostDisk {
            folder,
            trace,
            disk: CrashDisk::default(),
            random,
            faults: vec![],
            slowness: 1,
            struck: vec![],
            failures: 0,
        }
    }

    /// Begins a fault.
    pub(super) fn begin(&mut self, kind: FaultKind) {
        self.faults.push(kind);
    }

    /// Ends a fault that lasts.
    pub(super) fn end(&mut self, kind: FaultKind) {
        if let Some(at) = self.faults.iter().position(|fault| *fault == kind) {
            self.faults.swap_remove(at);
        }
    }

    /// Makes syncs so many times slower than usual.
    pub(super) fn slow_down(&mut self, times: u64) {
        self.slowness = times;
    }

    /// How long an operation takes, in nanoseconds, and how it ends: as [`super::message::ThreadCallKind::Disk`] says.
    pub(super) fn operate(&mut self, kind: OperationKind) -> (u64, i64) {
        let time = match kind {
            OperationKind::Syncing => self.random.below(SYNC_NS_MAX * self.slowness),
            _ => 0,
        };
        let Some(at) = self.faults.iter().position(|fault| kind.is_affected_by(*fault)) else {
            return (time, 0);
        };
        let fault = self.faults[at];
        self.failures += 1;
        if fault != FaultKind::Full {
            self.struck.push(fault);
            self.faults.swap_remove(at);
        }
        let code = match fault {
            FaultKind::Full => libc::ENOSPC.into(),
            FaultKind::Short | FaultKind::ShortThenFull => IN_PART,
            FaultKind::Error | FaultKind::FailedSync => libc::EIO.into(),
        };
        (time, code)
    }

    /// How many operations faults have struck.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// The faults of one operation that have struck since the last call.
    pub(super) fn take_struck(&mut self) -> Vec<FaultKind> {
        std::mem::take(&mut self.struck)
    }

    /// Changes the folder as a loss of power may: what was not durable is there, or not, or in part. No program may run.
    pub(super) fn lose_power(&mut self) -> io::Result<()> {
        for operation in
            FileOperation::decode_all(&fs::read(&self.trace)?).map_err(io::Error::other)?
        {
            self.disk.apply(operation).map_err(io::Error::other)?;
        }
        let crashes = crashes(&self.disk, true, &mut self.random);
        let found = self.disk.after(self.random.pick(&crashes));
        fs::remove_dir_all(&self.folder)?;
        fs::create_dir(&self.folder)?;
        write(&found, &self.folder)?;
        fs::write(&self.trace, [])?;
        self.disk = CrashDisk::of(&found, |path| Ok(fs::metadata(self.folder.join(path))?.ino()))?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn on_disk(test: impl FnOnce(HostDisk)) {
        let place = crate::crash::in_memory().unwrap();
        let (folder, trace) = (place.path().join("disk"), place.path().join("trace"));
        fs::create_dir(&folder).unwrap();
        fs::write(&trace, []).unwrap();
        test(HostDisk::new(folder, trace, SplitMix(1)));
    }

    /// Writes a file and records it, and its sync if it is synced.
    fn write_file(disk: &HostDisk, bytes: &[u8], is_synced: bool) {
        let place = disk.folder.join("file");
        let is_new = !place.exists();
        fs::write(&place, bytes).unwrap();
        let (file, path) = (fs::metadata(&place).unwrap().ino(), PathBuf::from("file"));
        let mut operations = vec![];
        if is_new {
            operations.push(FileOperation::Create { file, path: path.clone() });
        }
        operations.push(FileOperation::Write { file, path, offset: 0, bytes: bytes.to_vec() });
        if is_synced {
            operations.push(FileOperation::Sync { file });
            operations.push(FileOperation::SyncFolder { path: PathBuf::new() });
        }
        let mut trace = fs::read(&disk.trace).unwrap();
        operations.iter().for_each(|operation| operation.encode(&mut trace));
        fs::write(&disk.trace, trace).unwrap();
    }

    #[test]
    fn a_loss_of_power_keeps_what_was_synced_and_some_of_the_rest_however_often_it_is_lost() {
        on_disk(|mut disk| {
            let read = |disk: &HostDisk| fs::read(disk.folder.join("file")).unwrap();
            write_file(&disk, b"old", true);
            let (mut kept, mut lost) = (0, 0);
            for _ in 0..30 {
                write_file(&disk, b"old", true);
                disk.lose_power().unwrap();
                assert_eq!(read(&disk), b"old");
                write_file(&disk, b"new", false);
                disk.lose_power().unwrap();
                match read(&disk).as_slice() {
                    b"new" => kept += 1,
                    b"old" => lost += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert!(kept > 0 && lost > 0, "{kept} {lost}");
        });
    }

    #[test]
    fn a_full_disk_refuses_until_it_is_full_no_more_and_other_faults_strike_once() {
        on_disk(|mut disk| {
            let code = |disk: &mut HostDisk, kind| disk.operate(kind).1;
            disk.begin(FaultKind::Full);
            for kind in [OperationKind::Writing, OperationKind::Growing] {
                assert_eq!(code(&mut disk, kind), i64::from(libc::ENOSPC));
            }
            assert_eq!(code(&mut disk, OperationKind::Syncing), 0);
            disk.end(FaultKind::Full);
            assert_eq!(code(&mut disk, OperationKind::Writing), 0);
            disk.begin(FaultKind::FailedSync);
            assert_eq!(code(&mut disk, OperationKind::Other), 0);
            assert_eq!(code(&mut disk, OperationKind::Syncing), i64::from(libc::EIO));
            assert_eq!(code(&mut disk, OperationKind::Syncing), 0);
            disk.begin(FaultKind::Short);
            assert_eq!(code(&mut disk, OperationKind::Writing), IN_PART);
            assert_eq!(code(&mut disk, OperationKind::Writing), 0);
            assert_eq!(disk.take_struck(), [FaultKind::FailedSync, FaultKind::Short]);
            assert_eq!(disk.failures(), 4);
        });
    }
}
