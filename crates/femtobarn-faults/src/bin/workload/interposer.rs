//! Stands between this program and the kernel: records what is done to the files of one folder, and
//! makes one operation fail.
//!
//! The functions below have the names of the C library's. The linker takes the first definition of a
//! name that it meets, and a program's own comes first, so that the Rust standard library and SQLite,
//! which are both linked into this program, call these. They forward to the kernel by `syscall`.
//!
//! Invariants:
//! 1. Operations on the folder are carried out and recorded one at a time, so a trace has the order in
//!    which the kernel saw them.
//! 2. Only what the kernel did is recorded: of a short write the bytes that were written.
//! 3. Nothing here calls a function that is defined here.
//! 4. Lock files and SQLite's shared memory do not survive a crash and are not recorded. Faults strike
//!    them like any other file.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use femtobarn_faults::fault::{Fault, FaultKind};
use femtobarn_faults::trace::Operation;
use nix::libc::{
    self, c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t,
};

/// What is watched.
struct Watch {
    folder: PathBuf,
    /// Where operations are recorded, if they are.
    trace: Option<c_int>,
    fault: Option<Fault>,
    /// What a fault could strike, so far.
    operations: Vec<Sort>,
    /// The files of the operations that were struck.
    struck: Vec<PathBuf>,
}

static ACTIVE: AtomicBool = AtomicBool::new(false);
static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

/// Starts watching a folder; the trace is appended to.
pub fn start(folder: &Path, trace: Option<&Path>, fault: Option<Fault>) {
    let trace = trace.map(|path| {
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("paths have no NUL");
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: the path is a string that ends with NUL and lives until the call is over.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) };
        assert!(file >= 0, "cannot open the trace {path:?}");
        file as c_int
    });
    let watch =
        Watch { folder: folder.to_owned(), trace, fault, operations: vec![], struck: vec![] };
    *lock() = Some(watch);
    ACTIVE.store(true, Ordering::SeqCst);
}

/// Stops watching. Returns the operations that a fault could have struck.
pub fn stop() -> Vec<Sort> {
    ACTIVE.store(false, Ordering::SeqCst);
    lock().take().map_or(vec![], |watch| watch.operations)
}

/// Makes nothing fail from now on. Returns the files of operations that were struck.
pub fn lift() -> Vec<PathBuf> {
    let mut guard = lock();
    let Some(watch) = guard.as_mut() else { return vec![] };
    watch.fault = None;
    std::mem::take(&mut watch.struck)
}

/// Records that this program was told that something has happened for good.
pub fn acknowledge(text: &str) {
    if let Some(watch) = lock().as_ref() {
        watch.record(&Operation::Acknowledge { text: text.to_owned() });
    }
}

fn lock() -> MutexGuard<'static, Option<Watch>> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What kind of operation it is, for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Takes room on the disk.
    Growing,
    /// A write of bytes, which takes room, too.
    Writing,
    /// Makes something durable.
    Syncing,
    /// Changes names.
    Other,
}

impl Sort {
    /// Whether a fault of some kind makes such an operation fail when it is the first.
    pub fn can_suffer(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Full => matches!(self, Sort::Growing | Sort::Writing),
            FaultKind::Error => true,
            FaultKind::FailedSync => self == Sort::Syncing,
            FaultKind::Short | FaultKind::ShortThenFull => self == Sort::Writing,
        }
    }
}

/// What a fault makes of an operation.
enum Strike {
    Fail(c_int),
    Shorten,
}

impl Watch {
    /// The path of an open file, within the folder.
    fn path_of(&self, file: c_int) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{file}\0");
        let mut buffer = [0_u8; 4096];
        // SAFETY: the link ends with NUL, and the buffer takes as many bytes as are said.
        let length = unsafe {
            libc::readlink(link.as_ptr().cast(), buffer.as_mut_ptr().cast(), buffer.len())
        };
        let bytes = buffer.get(..usize::try_from(length).ok()?)?;
        self.within(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }

    /// The part of an absolute path that is within the folder.
    fn within(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&self.folder).ok().map(Path::to_owned)
    }

    fn record(&self, operation: &Operation) {
        let Some(trace) = self.trace else { return };
        let mut bytes = vec![];
        operation.encode(&mut bytes);
        // SAFETY: the pointer and the length are those of one vector.
        let written = unsafe { libc::syscall(libc::SYS_write, trace, bytes.as_ptr(), bytes.len()) };
        assert!(written == bytes.len() as c_long, "the trace cannot be written");
    }

    /// Counts an operation, and tells what the fault makes of it.
    fn strike(&mut self, sort: Sort, path: &Path) -> Option<Strike> {
        let number = self.operations.len() as u64;
        self.operations.push(sort);
        let fault = self.fault?;
        let is_first = number == fault.operation;
        let strike = match fault.kind {
            _ if number < fault.operation => None,
            FaultKind::Short | FaultKind::ShortThenFull if is_first => {
                (sort == Sort::Writing).then_some(Strike::Shorten)
            }
            FaultKind::Full | FaultKind::ShortThenFull if sort.can_suffer(FaultKind::Full) => {
                Some(Strike::Fail(libc::ENOSPC))
            }
            FaultKind::Error | FaultKind::FailedSync if is_first && sort.can_suffer(fault.kind) => {
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

fn fail(code: c_int) -> c_int {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// The number of the file that is open, and its size.
fn inode(file: c_int) -> (u64, u64) {
    // SAFETY: zeros are a valid `stat`, and it is only written to.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for the call. A file that is not open leaves it as it is.
    unsafe { libc::fstat64(file, &mut stat) };
    (stat.st_ino, stat.st_size as u64)
}

/// Where the next write without an offset goes.
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

/// An operation on an open file: carried out unless it is struck, and recorded.
fn on_file(
    file: c_int,
    sort: Sort,
    forward: impl FnOnce() -> c_long,
    describe: impl FnOnce(u64, &Path) -> Operation,
) -> c_int {
    let mut guard = lock();
    let path = guard.as_ref().and_then(|watch| watch.path_of(file));
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward() as c_int;
    };
    if let Some(Strike::Fail(code)) = watch.strike(sort, &path) {
        if sort == Sort::Syncing && is_recorded(&path) && !is_folder(file) {
            watch.record(&Operation::FailedSync { file: inode(file).0 });
        }
        return fail(code);
    }
    let done = forward() as c_int;
    if done == 0 && is_recorded(&path) {
        watch.record(&describe(inode(file).0, &path));
    }
    done
}

/// A write of bytes at an offset, or at the file's position.
fn on_write(
    file: c_int,
    bytes: &[u8],
    offset: Option<off_t>,
    forward: impl FnOnce(&[u8]) -> c_long,
) -> ssize_t {
    let mut guard = lock();
    let path = guard.as_ref().and_then(|watch| watch.path_of(file));
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward(bytes) as ssize_t;
    };
    let bytes = match watch.strike(Sort::Writing, &path) {
        Some(Strike::Fail(code)) => return fail(code) as ssize_t,
        Some(Strike::Shorten) if bytes.len() > 1 => &bytes[..bytes.len() / 2],
        _ => bytes,
    };
    let offset = offset.map_or_else(|| position(file), |offset| offset as u64);
    let done = forward(bytes) as ssize_t;
    if done > 0 && is_recorded(&path) {
        let bytes = bytes[..done as usize].to_vec();
        watch.record(&Operation::Write { file: inode(file).0, path, offset, bytes });
    }
    done
}

/// An operation on the names of a folder.
fn on_name(
    folder: c_int,
    path: *const c_char,
    sort: Sort,
    forward: impl FnOnce() -> c_long,
    describe: impl FnOnce(&Watch, PathBuf, c_int) -> Option<Operation>,
) -> c_int {
    let mut guard = lock();
    let path = guard.as_ref().and_then(|watch| watch.within(&absolute(folder, path)?));
    let (Some(watch), Some(path)) = (guard.as_mut(), path) else {
        drop(guard);
        return forward() as c_int;
    };
    if let Some(Strike::Fail(code)) = watch.strike(sort, &path) {
        return fail(code);
    }
    let done = forward() as c_int;
    if done >= 0
        && is_recorded(&path)
        && let Some(operation) = describe(watch, path, done)
    {
        watch.record(&operation);
    }
    done
}

/// The path that a call names; none if it is not absolute and its folder is not the working folder.
fn absolute(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    // SAFETY: whoever calls the C library promises a string that ends with NUL.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    match path.is_absolute() || folder == libc::AT_FDCWD {
        true => std::path::absolute(path).ok(),
        false => None,
    }
}

fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

// ---- what the C library calls it

/// Bytes that a caller of the C library points to.
///
/// # Safety
/// As `write` wants it: the bytes are there until the call is over.
unsafe fn slice<'a>(bytes: *const c_void, count: size_t) -> &'a [u8] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(bytes.cast(), count) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward =
        |bytes: &[u8]| unsafe { libc::syscall(libc::SYS_write, file, bytes.as_ptr(), bytes.len()) };
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(bytes, count) };
    match is_active() {
        true => on_write(file, bytes, None, forward),
        false => forward(bytes) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    file: c_int,
    bytes: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward = |bytes: &[u8]| unsafe {
        libc::syscall(libc::SYS_pwrite64, file, bytes.as_ptr(), bytes.len(), offset)
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(bytes, count) };
    match is_active() {
        true => on_write(file, bytes, Some(offset), forward),
        false => forward(bytes) as ssize_t,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(f: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise is passed on.
    unsafe { pwrite64(f, bytes, count, at) }
}

/// The first part that is not empty, as a short write: callers go on with the rest.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if !is_active() {
        // SAFETY: the arguments are the caller's, with its promises about them.
        return unsafe { libc::syscall(libc::SYS_writev, file, parts, count) as ssize_t };
    }
    for at in 0..count as usize {
        // SAFETY: the caller promises `count` parts, each of which is bytes that are there.
        let part = unsafe { *parts.add(at) };
        if part.iov_len > 0 {
            // SAFETY: as above.
            return unsafe { write(file, part.iov_base, part.iov_len) };
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(
    file: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    for at in 0..count as usize {
        // SAFETY: the caller promises `count` parts, each of which is bytes that are there.
        let part = unsafe { *parts.add(at) };
        if part.iov_len > 0 {
            // SAFETY: as above.
            return unsafe { pwrite64(file, part.iov_base, part.iov_len, offset) };
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(f: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise is passed on.
    unsafe { pwritev(f, parts, count, at) }
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(file: c_int, size: off_t) -> c_int {
    // SAFETY: no memory is touched.
    let forward = || unsafe { libc::syscall(libc::SYS_ftruncate, file, size) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |file, _: &Path| Operation::Resize { file, size: size as u64 };
    on_file(file, Sort::Growing, forward, describe)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(file: c_int, size: off_t) -> c_int {
    ftruncate64(file, size)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(file: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int {
    // SAFETY: no memory is touched.
    let forward = || unsafe { libc::syscall(libc::SYS_fallocate, file, mode, offset, size) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |file, _: &Path| {
        let (offset, size) = (offset as u64, size as u64);
        match mode & libc::FALLOC_FL_PUNCH_HOLE {
            0 => Operation::Allocate { file, offset, size },
            _ => Operation::Punch { file, offset, size },
        }
    };
    on_file(file, Sort::Growing, forward, describe)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(file: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int {
    fallocate64(file, mode, offset, size)
}

fn synced(file: c_int, call: c_long) -> c_int {
    // SAFETY: no memory is touched.
    let forward = || unsafe { libc::syscall(call, file) };
    if !is_active() {
        return forward() as c_int;
    }
    on_file(file, Sort::Syncing, forward, |number, path| match is_folder(file) {
        true => Operation::SyncFolder { path: path.to_owned() },
        false => Operation::Sync { file: number },
    })
}

fn is_folder(file: c_int) -> bool {
    // SAFETY: zeros are a valid `stat`, and it is only written to.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for the call.
    unsafe { libc::fstat64(file, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFDIR }
}

#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    synced(file, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: c_int) -> c_int {
    synced(file, libc::SYS_fdatasync)
}

/// In C, `mode` is only there if a file may be created. In the calling convention of this platform
/// an argument that is not there reads as some number, which the kernel then ignores.
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward = || unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) };
    if !is_active() || flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return forward() as c_int;
    }
    // SAFETY: zeros are a valid `stat`, and it is only written to.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: the path is the caller's and `stat` is valid for the call.
    let was_there = unsafe { libc::fstatat64(folder, path, &mut stat, 0) } == 0;
    let sort = if was_there { Sort::Other } else { Sort::Growing };
    on_name(folder, path, sort, forward, |_, path, opened| match was_there {
        false => Some(Operation::Create { file: inode(opened).0, path }),
        true if flags & libc::O_TRUNC != 0 => {
            Some(Operation::Resize { file: inode(opened).0, size: 0 })
        }
        true => None,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward = || unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |_: &Watch, path, _| Some(Operation::MakeFolder { path });
    on_name(libc::AT_FDCWD, path, Sort::Growing, forward, describe)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward = || unsafe { libc::syscall(libc::SYS_unlinkat, folder, path, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |_: &Watch, path, _| Some(Operation::Remove { path });
    on_name(folder, path, Sort::Other, forward, describe)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { renameat2(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward =
        || unsafe { libc::syscall(libc::SYS_renameat2, from_folder, from, to_folder, to, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    on_name(from_folder, from, Sort::Other, forward, |watch, from, _| {
        let to = watch.within(&absolute(to_folder, to)?)?;
        Some(Operation::Rename { from, to })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the arguments are the caller's, with its promises about them.
    let forward =
        || unsafe { libc::syscall(libc::SYS_linkat, from_folder, from, to_folder, to, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    on_name(from_folder, from, Sort::Growing, forward, |watch, from, _| {
        let to = watch.within(&absolute(to_folder, to)?)?;
        Some(Operation::Link { from, to })
    })
}

/// Copies within the kernel are refused, so that callers copy by reading and writing.
#[unsafe(no_mangle)]
extern "C" fn copy_file_range(
    _: c_int,
    _: *mut off_t,
    _: c_int,
    _: *mut off_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    fail(libc::ENOSYS) as ssize_t
}

/// As [`copy_file_range`].
#[unsafe(no_mangle)]
extern "C" fn sendfile64(_: c_int, _: c_int, _: *mut off_t, _: size_t) -> ssize_t {
    fail(libc::ENOSYS) as ssize_t
}
