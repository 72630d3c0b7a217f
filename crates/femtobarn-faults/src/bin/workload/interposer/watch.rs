//! Watches the files of one folder: records the operations on them, and makes an operation fail if a fault or the
//! simulation demands it.
//!
//! 1. Operations on the folder are executed and recorded one at a time, so a trace has the order in which the
//!    kernel saw them.
//! 2. Only the effect in the kernel is recorded: of a short write, the bytes that were written.
//! 3. Nothing here calls a function that `c_library` defines.
//! 4. Lock files and SQLite's shared memory do not survive a crash and are not recorded. Faults strike them like
//!    any other file.
//! 5. A failed sync is reported as Linux reports it: every other open file of the same inode fails once, at its next
//!    sync, even if that sync succeeds, because its writes may be lost as well. Descriptors that share a position are one
//!    open file.
//! 6. The simulation is asked before an operation begins. The thread then keeps its turn until the operation is
//!    recorded, so a kill never comes between an operation and its record.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use femtobarn_faults::disk::CrashDisk;
use femtobarn_faults::fault::{DiskFault, FaultKind, OperationKind};
use femtobarn_faults::simulation::message::ThreadCallKind;
use femtobarn_faults::trace::FileOperation;
use nix::libc::{self, c_char, c_int, c_long, off_t, ssize_t};
use parking_lot::{Mutex, MutexGuard};

use super::turns::{ask, fail, is_simulated, kernel};

/// The folder that is watched, and the fault that strikes it.
pub(crate) struct Watch {
    folder: PathBuf,
    record: OperationRecord,
    fault: Option<DiskFault>,
    /// The operations so far, each of which a fault could strike.
    operations: Vec<OperationKind>,
    /// The files of operations that the fault struck.
    struck: Vec<PathBuf>,
    /// Open files whose next sync must fail, because a sync by another open file of the same inode has failed.
    untold: Vec<c_int>,
}

/// The record of the operations that the kernel executed.
pub(crate) enum OperationRecord {
    Nothing,
    /// A trace in a file.
    Trace(c_int),
    /// A disk to which they were applied, or the first operation that is impossible there.
    Disk(Result<CrashDisk, String>),
}

/// Descriptors of watched files are smaller than this.
const DESCRIPTORS_MAX: c_int = 1024;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

impl OperationRecord {
    /// A trace that is appended to a file.
    pub(crate) fn trace(path: &Path) -> Self {
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("paths have no NUL");
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: the path is a NUL-terminated string that outlives the call.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) };
        assert!(file >= 0, "cannot open the trace {path:?}");
        OperationRecord::Trace(file as c_int)
    }
}

/// Starts watching a folder.
pub(crate) fn start(folder: &Path, record: OperationRecord, fault: Option<DiskFault>) {
    let watch = Watch {
        folder: folder.to_owned(),
        record,
        fault,
        operations: vec![],
        struck: vec![],
        untold: vec![],
    };
    *lock() = Some(watch);
    ACTIVE.store(true, Ordering::SeqCst);
}

/// Stops watching. Returns the watch, if there was one.
pub(crate) fn stop() -> Option<Watch> {
    ACTIVE.store(false, Ordering::SeqCst);
    lock().take()
}

/// Lifts the fault. Returns the files of operations that it struck.
pub(crate) fn lift() -> Vec<PathBuf> {
    let mut guard = lock();
    let Some(watch) = guard.as_mut() else { return vec![] };
    watch.fault = None;
    std::mem::take(&mut watch.struck)
}

/// Records that the engine acknowledged an operation to this program.
pub(crate) fn acknowledge(text: &str) {
    if let Some(watch) = lock().as_mut() {
        watch.record(FileOperation::Acknowledge { text: text.to_owned() });
    }
}

fn lock() -> MutexGuard<'static, Option<Watch>> {
    WATCH.lock()
}

/// The effect of a fault on an operation.
enum Strike {
    Fail(c_int),
    Shorten,
}

impl Watch {
    /// All operations, each of which a fault could have struck.
    pub(crate) fn operations(&self) -> &[OperationKind] {
        &self.operations
    }

    /// The disk to which the operations were applied.
    ///
    /// # Errors
    /// Names the first operation that is impossible there.
    pub(crate) fn into_disk(self) -> Result<CrashDisk, String> {
        match self.record {
            OperationRecord::Disk(disk) => disk,
            _ => Err("the operations were not recorded on a disk".to_owned()),
        }
    }

    /// The path of an open file, within the folder.
    fn path_of(&self, file: c_int) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{file}\0");
        let mut buffer = [0_u8; 4096];
        // SAFETY: the link is NUL-terminated, and the buffer has the given length.
        let length = unsafe {
            libc::readlink(link.as_ptr().cast(), buffer.as_mut_ptr().cast(), buffer.len())
        };
        let bytes = buffer.get(..usize::try_from(length).ok()?)?;
        self.within(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }

    /// The part of an absolute path that is within the folder.
    pub(super) fn within(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.folder).ok().map(Path::to_owned)
    }

    fn record(&mut self, operation: FileOperation) {
        match &mut self.record {
            OperationRecord::Nothing | OperationRecord::Disk(Err(_)) => {}
            OperationRecord::Trace(file) => {
                let mut bytes = vec![];
                operation.encode(&mut bytes);
                // SAFETY: pointer and length are those of one vector.
                let written =
                    unsafe { libc::syscall(libc::SYS_write, *file, bytes.as_ptr(), bytes.len()) };
                assert!(written == bytes.len() as c_long, "the trace cannot be written");
            }
            OperationRecord::Disk(Ok(disk)) => {
                if let Err(error) = disk.apply(operation) {
                    self.record = OperationRecord::Disk(Err(error));
                }
            }
        }
    }

    /// Counts an operation. Returns the fault's effect on it.
    fn strike(&mut self, kind: OperationKind, path: &Path) -> Option<Strike> {
        let number = self.operations.len() as u64;
        self.operations.push(kind);
        let fault = self.fault?;
        let is_first = number == fault.operation;
        let strike = match fault.kind {
            _ if number < fault.operation => None,
            FaultKind::Short | FaultKind::ShortThenFull if is_first => {
                (kind == OperationKind::Writing).then_some(Strike::Shorten)
            }
            FaultKind::Full | FaultKind::ShortThenFull if kind.is_affected_by(FaultKind::Full) => {
                Some(Strike::Fail(libc::ENOSPC))
            }
            FaultKind::FailingSyncs if kind.is_affected_by(fault.kind) => {
                Some(Strike::Fail(libc::EIO))
            }
            FaultKind::Error | FaultKind::FailedSync
                if is_first && kind.is_affected_by(fault.kind) =>
            {
                Some(Strike::Fail(libc::EIO))
            }
            _ => None,
        };
        if strike.is_some() {
            self.struck.push(path.to_owned());
        }
        strike
    }
}

/// Whether a file survives a crash.
fn is_recorded(path: &Path) -> bool {
    let is_lock = path.parent().is_some_and(|folder| folder.ends_with("locks"));
    !path.as_os_str().as_bytes().ends_with(b"-shm") && !is_lock
}

pub(super) fn is_folder(file: c_int) -> bool {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for the call.
    unsafe { libc::fstat64(file, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFDIR }
}

/// The inode and size of an open file.
pub(super) fn inode(file: c_int) -> (u64, u64) {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for the call, which leaves it unchanged if the file is not open.
    unsafe { libc::fstat64(file, &mut stat) };
    (stat.st_ino, stat.st_size as u64)
}

/// Whether two descriptors are of one open file.
fn is_same(one: c_int, other: c_int) -> bool {
    const KCMP_FILE: c_long = 0;
    // SAFETY: neither call touches memory of this program.
    one == other
        || unsafe {
            let process = kernel(libc::SYS_getpid, [0; 6]);
            let files = [process, process, KCMP_FILE, one.into(), other.into(), 0];
            kernel(libc::SYS_kcmp, files) == 0
        }
}

/// Descriptors of other open files that are the same file.
fn others(file: c_int) -> Vec<c_int> {
    let number = inode(file).0;
    let is_other = |other: &c_int| inode(*other).0 == number && !is_same(*other, file);
    (0..DESCRIPTORS_MAX).filter(is_other).collect()
}

/// Notes that a descriptor is closed.
pub(super) fn forget(file: c_int) {
    if is_active()
        && let Some(watch) = lock().as_mut()
    {
        watch.untold.retain(|it| *it != file);
    }
}

/// The offset of the next write without one.
fn position(file: c_int) -> u64 {
    // SAFETY: neither call touches memory of this program.
    unsafe {
        let flags = libc::syscall(libc::SYS_fcntl, file, libc::F_GETFL, 0);
        match flags as c_int & libc::O_APPEND {
            0 => libc::syscall(libc::SYS_lseek, file, 0, libc::SEEK_CUR) as u64,
            _ => inode(file).1,
        }
    }
}

/// The effect of the simulated disk on an operation that is about to begin. The lock must be free.
fn ask_disk(kind: OperationKind, path: Option<&Path>) -> Option<Strike> {
    path.filter(|_| is_simulated())?;
    match ask(ThreadCallKind::Disk, [kind as u64, 0, 0], &[]).result {
        0 => None,
        code if code > 0 => Some(Strike::Fail(code as c_int)),
        _ => Some(Strike::Shorten),
    }
}

/// Executes an operation on an open file and records it, unless the fault strikes it.
pub(super) fn on_file(
    file: c_int,
    kind: OperationKind,
    forward: impl FnOnce() -> c_long,
    describe: impl FnOnce(u64, &Path) -> FileOperation,
) -> c_int {
    let path = lock().as_ref().and_then(|watch| watch.path_of(file));
    let asked = ask_disk(kind, path.as_deref());
    let mut guard = lock();
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward() as c_int;
    };
    if let Some(Strike::Fail(code)) = asked.or_else(|| watch.strike(kind, &path)) {
        if kind == OperationKind::Syncing && !is_folder(file) {
            watch.untold.retain(|it| !is_same(*it, file));
            watch.untold.extend(others(file));
            if is_recorded(&path) {
                watch.record(FileOperation::FailedSync { file: inode(file).0 });
            }
        }
        return fail(code);
    }
    let done = forward() as c_int;
    if done == 0 && is_recorded(&path) {
        watch.record(describe(inode(file).0, &path));
    }
    if kind == OperationKind::Syncing && watch.untold.iter().any(|it| is_same(*it, file)) {
        watch.untold.retain(|it| !is_same(*it, file));
        return fail(libc::EIO);
    }
    done
}

/// Executes and records a write at an offset, or at the file's position. The fault may make it fail or shorten it.
pub(super) fn on_write(
    file: c_int,
    bytes: &[u8],
    offset: Option<off_t>,
    forward: impl FnOnce(&[u8]) -> c_long,
) -> ssize_t {
    let path = lock().as_ref().and_then(|watch| watch.path_of(file));
    let asked = ask_disk(OperationKind::Writing, path.as_deref());
    let mut guard = lock();
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward(bytes) as ssize_t;
    };
    let bytes = match asked.or_else(|| watch.strike(OperationKind::Writing, &path)) {
        Some(Strike::Fail(code)) => return fail(code) as ssize_t,
        Some(Strike::Shorten) if bytes.len() > 1 => &bytes[..bytes.len() / 2],
        _ => bytes,
    };
    let offset = offset.map_or_else(|| position(file), |offset| offset as u64);
    let done = forward(bytes) as ssize_t;
    if done > 0 && is_recorded(&path) {
        let bytes = bytes[..done as usize].to_vec();
        watch.record(FileOperation::Write { file: inode(file).0, path, offset, bytes });
    }
    done
}

/// Executes an operation on the entries of a folder and records it, unless the fault strikes it.
pub(super) fn on_name(
    folder: c_int,
    path: *const c_char,
    kind: OperationKind,
    forward: impl FnOnce() -> c_long,
    describe: impl FnOnce(&Watch, PathBuf, c_int) -> Option<FileOperation>,
) -> c_int {
    let path = lock().as_ref().and_then(|watch| watch.within(&absolute(folder, path)?));
    let asked = ask_disk(kind, path.as_deref());
    let mut guard = lock();
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward() as c_int;
    };
    if let Some(Strike::Fail(code)) = asked.or_else(|| watch.strike(kind, &path)) {
        return fail(code);
    }
    let done = forward() as c_int;
    if done >= 0
        && is_recorded(&path)
        && let Some(operation) = describe(watch, path, done)
    {
        watch.record(operation);
    }
    done
}

/// The absolute path of a call. None for a path relative to a folder other than the working directory.
pub(super) fn absolute(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    // SAFETY: the caller promises a NUL-terminated string.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    if path.is_absolute() || folder == libc::AT_FDCWD {
        std::path::absolute(path).ok()
    } else {
        None
    }
}

pub(super) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}
