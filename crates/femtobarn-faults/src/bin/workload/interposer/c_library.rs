//! The functions of the C library that change files.
//!
//! The linker takes the first definition of a name that it finds, and the program's own comes before the C
//! library's. So the Rust standard library and SQLite, which are linked into this program, call these functions.
//! Each forwards to the kernel by `syscall`.

use std::ffi::CStr;
use std::path::Path;

use femtobarn_faults::fault::OperationKind;
use femtobarn_faults::trace::FileOperation;
use nix::libc::{
    self, c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t,
};

use super::sockets::write_parts;
use super::turns::{fail, is_simulated};
use super::watch::{Watch, absolute, inode, is_active, is_folder, on_file, on_name, on_write};

/// The bytes that a caller passes to `write`.
///
/// # Safety
/// The bytes must be valid until the call returns, as `write` demands.
unsafe fn slice<'a>(bytes: *const c_void, count: size_t) -> &'a [u8] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(bytes.cast(), count) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's promises hold for its arguments.
    let forward =
        |bytes: &[u8]| unsafe { libc::syscall(libc::SYS_write, file, bytes.as_ptr(), bytes.len()) };
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(bytes, count) };
    if is_active() { on_write(file, bytes, None, forward) } else { forward(bytes) as ssize_t }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    file: c_int,
    bytes: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promises hold for its arguments.
    let forward = |bytes: &[u8]| unsafe {
        libc::syscall(libc::SYS_pwrite64, file, bytes.as_ptr(), bytes.len(), offset)
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice(bytes, count) };
    if is_active() {
        on_write(file, bytes, Some(offset), forward)
    } else {
        forward(bytes) as ssize_t
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(f: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise is passed on.
    unsafe { pwrite64(f, bytes, count, at) }
}

/// Writes the first part that is not empty, as a short write: callers continue with the rest.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promises hold for its arguments.
    if let Some(written) = unsafe { write_parts(file, parts, count) } {
        return written;
    }
    if !is_active() {
        // SAFETY: the caller's promises hold for its arguments.
        return unsafe { libc::syscall(libc::SYS_writev, file, parts, count) as ssize_t };
    }
    for at in 0..count as usize {
        // SAFETY: the caller promises `count` parts, each with valid bytes.
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
        // SAFETY: the caller promises `count` parts, each with valid bytes.
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
    let describe = |file, _: &Path| FileOperation::Resize { file, size: size as u64 };
    on_file(file, OperationKind::Growing, forward, describe)
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
            0 => FileOperation::Allocate { file, offset, size },
            _ => FileOperation::Punch { file, offset, size },
        }
    };
    on_file(file, OperationKind::Growing, forward, describe)
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
    on_file(file, OperationKind::Syncing, forward, |number, path| {
        if is_folder(file) {
            FileOperation::SyncFolder { path: path.to_owned() }
        } else {
            FileOperation::Sync { file: number }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    synced(file, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: c_int) -> c_int {
    synced(file, libc::SYS_fdatasync)
}

/// In C, callers pass `mode` only if a file may be created. In the calling convention of this platform a missing
/// argument reads as some number, which the kernel then ignores.
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // The standard library counts the cores that the process's control group may use: of another machine, others.
    // SAFETY: the caller promises a NUL-terminated string.
    if is_simulated() && unsafe { CStr::from_ptr(path) } == c"/proc/self/cgroup" {
        return fail(libc::ENOENT);
    }
    // SAFETY: the caller's promises hold for its arguments.
    let forward = || unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) };
    if !is_active() || flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return forward() as c_int;
    }
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: the path is the caller's, and `stat` is valid for the call.
    let was_there = unsafe { libc::fstatat64(folder, path, &mut stat, 0) } == 0;
    let kind = if was_there { OperationKind::Other } else { OperationKind::Growing };
    on_name(folder, path, kind, forward, |_, path, opened| {
        let file = inode(opened).0;
        if !was_there {
            Some(FileOperation::Create { file, path })
        } else if flags & libc::O_TRUNC != 0 {
            Some(FileOperation::Resize { file, size: 0 })
        } else {
            None
        }
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
    // SAFETY: the caller's promises hold for its arguments.
    let forward = || unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |_: &Watch, path, _| Some(FileOperation::MakeFolder { path });
    on_name(libc::AT_FDCWD, path, OperationKind::Growing, forward, describe)
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
    // SAFETY: the caller's promises hold for its arguments.
    let forward = || unsafe { libc::syscall(libc::SYS_unlinkat, folder, path, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    let describe = |_: &Watch, path, _| Some(FileOperation::Remove { path });
    on_name(folder, path, OperationKind::Other, forward, describe)
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
    // SAFETY: the caller's promises hold for its arguments.
    let forward =
        || unsafe { libc::syscall(libc::SYS_renameat2, from_folder, from, to_folder, to, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    on_name(from_folder, from, OperationKind::Other, forward, |watch, from, _| {
        let to = watch.within(&absolute(to_folder, to)?)?;
        Some(FileOperation::Rename { from, to })
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
    // SAFETY: the caller's promises hold for its arguments.
    let forward =
        || unsafe { libc::syscall(libc::SYS_linkat, from_folder, from, to_folder, to, flags) };
    if !is_active() {
        return forward() as c_int;
    }
    on_name(from_folder, from, OperationKind::Growing, forward, |watch, from, _| {
        let to = watch.within(&absolute(to_folder, to)?)?;
        Some(FileOperation::Link { from, to })
    })
}

/// Fails, so that callers copy by reading and writing, which is recorded.
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

/// Fails, as [`copy_file_range`].
#[unsafe(no_mangle)]
extern "C" fn sendfile64(_: c_int, _: c_int, _: *mut off_t, _: size_t) -> ssize_t {
    fail(libc::ENOSYS) as ssize_t
}
