//! Extended attributes and permissions of a file that is held by an `O_PATH` descriptor.
//!
//! Such a descriptor needs no right to read or write the file. The system calls take a path, so they get
//! `/proc/self/fd/N`, which leads to the file even if it was renamed.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

/// The kernel's namespace of user attributes.
const NAMESPACE: &[u8] = b"user.";
/// The kernel's limit of bytes for a value, and for all names of a file together.
const BYTES_MAX: usize = 64 << 10;

pub(super) fn set_mode(file: BorrowedFd<'_>, mode: Mode) -> nix::Result<()> {
    fchmodat(nix::fcntl::AT_FDCWD, &path_of(file)[..], mode, FchmodatFlags::FollowSymlink)
}

/// The names of attributes, without the namespace.
pub(super) fn list(file: BorrowedFd<'_>) -> nix::Result<Vec<Vec<u8>>> {
    let (path, mut names) = (path_of(file), vec![0_u8; BYTES_MAX]);
    // SAFETY: the path ends with a zero, and the buffer has the length that is passed.
    let size = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(Errno::result(size)? as usize);
    let names = names.split(|byte| *byte == 0);
    let names = names.filter_map(|name| name.strip_prefix(NAMESPACE));
    let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    names.sort();
    Ok(names)
}

pub(super) fn get(file: BorrowedFd<'_>, name: &[u8]) -> nix::Result<Vec<u8>> {
    let (path, name, mut value) = (path_of(file), in_namespace(name)?, vec![0_u8; BYTES_MAX]);
    // SAFETY: the path and the name end with a zero, and the buffer has the length that is passed.
    let size = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(Errno::result(size)? as usize);
    value.shrink_to_fit();
    Ok(value)
}

pub(super) fn set(
    file: BorrowedFd<'_>,
    name: &[u8],
    value: &[u8],
    must_be_new: bool,
) -> nix::Result<()> {
    let (path, name) = (path_of(file), in_namespace(name)?);
    let flags = if must_be_new { libc::XATTR_CREATE } else { 0 };
    // SAFETY: the path and the name end with a zero, and the value has the length that is passed.
    let set = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    };
    Errno::result(set).map(drop)
}

pub(super) fn remove(file: BorrowedFd<'_>, name: &[u8]) -> nix::Result<()> {
    let (path, name) = (path_of(file), in_namespace(name)?);
    // SAFETY: the path and the name end with a zero.
    Errno::result(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

fn path_of(file: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("digits and slashes only")
}

fn in_namespace(name: &[u8]) -> nix::Result<CString> {
    CString::new([NAMESPACE, name].concat()).map_err(|_| Errno::EINVAL)
}
