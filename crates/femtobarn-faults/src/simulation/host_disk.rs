//! The disk of a host: a folder whose files programs change. It can lose power and have faults.
//!
//! Invariant: the folder has the contents that programs read. The trace has the operations since the last loss of
//! power, each of which may or may not have reached the disk.

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

/// The longest time of a sync on a disk of usual speed, in nanoseconds.
const SYNC_NS_MAX: u64 = 2_000_000;
/// The answer to a write of which only a part is done.
const IN_PART: i64 = -1;

pub(super) struct HostDisk {
    folder: PathBuf,
    trace: PathBuf,
    disk: CrashDisk,
    random: SplitMix,
    /// Current faults. All except [`FaultKind::Full`] end with the operation that they strike.
    faults: Vec<FaultKind>,
    /// The factor by which syncs are slower than usual.
    slowness: u64,
    /// Faults, except [`FaultKind::Full`], that have struck since the last call of `take_struck`.
    struck: Vec<FaultKind>,
    /// The number of operations that faults have struck.
    failures: u64,
}

impl HostDisk {
    /// A disk with an empty folder. Programs record their operations on it in `trace`.
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

    /// Ends a fault that has not struck yet, or lasts.
    pub(super) fn end(&mut self, kind: FaultKind) {
        if let Some(at) = self.faults.iter().position(|fault| *fault == kind) {
            self.faults.swap_remove(at);
        }
    }

    /// Makes syncs slower than usual, by the factor `times`.
    pub(super) fn slow_down(&mut self, times: u64) {
        self.slowness = times;
    }

    /// The duration of an operation, in nanoseconds, and its result, which [`super::message::ThreadCallKind::Disk`]
    /// defines.
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
        if !matches!(fault, FaultKind::Full | FaultKind::FailingSyncs) {
            self.struck.push(fault);
            self.faults.swap_remove(at);
        }
        let code = match fault {
            FaultKind::Full => libc::ENOSPC.into(),
            FaultKind::Short | FaultKind::ShortThenFull => IN_PART,
            FaultKind::Error | FaultKind::FailedSync | FaultKind::FailingSyncs => libc::EIO.into(),
        };
        (time, code)
    }

    /// The number of operations that faults have struck.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// The faults, except [`FaultKind::Full`], that have struck since the last call.
    pub(super) fn take_struck(&mut self) -> Vec<FaultKind> {
        std::mem::take(&mut self.struck)
    }

    /// Changes the folder as a loss of power can: changes that were not durable are kept, lost, or kept in part. No
    /// program may run.
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

    /// Writes a file and records the write, and also a sync if `is_synced`.
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
    fn repeated_losses_of_power_keep_synced_bytes_and_some_unsynced_bytes() {
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
    fn a_full_disk_refuses_writes_until_the_fault_ends_and_other_faults_strike_once() {
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
