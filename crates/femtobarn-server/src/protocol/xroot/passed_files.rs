//! Files that are passed to clients on this machine, which read them without the server from then on.
//!
//! 1. A client gets only a file that it has open for reading, so its rights have been checked.
//! 2. The descriptor is for reading only; its offset, flags and locks belong to the client alone.
//! 3. A file is not passed if its bytes do not come from one file of this machine, or a throttle, a fault or a cache is
//!    in front of it.
//! 4. A descriptor bypasses the permissions of the parent folders, and can be opened again through `/proc`. So the
//!    client's user must be the server's own, or root; or all users may read the file, and only its owner may write it.
//! 5. The connection by which a file is passed is local: a client on another machine has no socket that is found here.
//!
//! Source: docs/protocol.md, "Files for clients on the server's machine".

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt,
    sendmsg, socket,
};
use nix::sys::stat::fstat;
use nix::unistd::{Uid, geteuid};
use uuid::Uuid;
use xrd::ErrorCode;
use xrd::request::Query;
use xrd::response::Response;

use super::handler::{RequestHandler, blocking};
use super::responses::{done, failed, response_of};
use crate::physical::{Opaque, StorageError, StoragePath, StorageResult, StoredFile};

/// The key that a query for a file begins with: the number in the name of the client's socket.
const SOCKET: &str = "fb.socket";

/// The key of the bytes by which the client recognises the server.
const SECRET: &str = "fb.secret";

/// The permission bits that decide whether a file is passed to any user: all may read it, and neither its group nor
/// others may write it.
const CHECKED_BITS: u32 = 0o026;
const READ_BY_ALL: u32 = 0o004;

/// Whether a query about an open file requests the file itself.
pub(super) fn asks_for_file(query: &Query) -> bool {
    query.argument.starts_with(SOCKET.as_bytes())
}

impl RequestHandler {
    /// Passes the client the file that it has open.
    pub(super) async fn pass_file(&self, query: &Query) -> Result<Response, Response> {
        if !self.service.logical.settings.pass_files {
            let what = "this server passes no files: its setting logical.pass_files is false";
            return Err(failed(ErrorCode::UNSUPPORTED, what));
        }
        let file = self.file(query.handle)?;
        let number = |key| uuid_of(Opaque(&query.argument), key);
        let (Some(client), Some(secret)) = (number(SOCKET), number(SECRET)) else {
            let what = format!("{SOCKET} and {SECRET} must be UUIDs");
            return Err(failed(ErrorCode::ARG_INVALID, what));
        };
        if file.is_writable {
            let what = format!("{} is open for writing: open it for reading", file.path);
            return Err(failed(ErrorCode::ARG_INVALID, what));
        }
        let passed = blocking(move || pass(&*file.file.interface()?, &file.path, client, secret));
        passed.await.map_err(response_of)?;
        done()
    }
}

fn uuid_of(opaque: Opaque<'_>, key: &str) -> Option<Uuid> {
    Uuid::try_parse_ascii(opaque.value_of(key)?).ok()
}

/// Passes a file to the client's socket of this number. Does not wait for the client.
fn pass(
    file: &dyn StoredFile,
    path: &StoragePath,
    client: Uuid,
    secret: Uuid,
) -> StorageResult<()> {
    let refused = |errno: Errno| StorageError::cannot("pass", path, errno);
    let Some(descriptor) = file.descriptor() else {
        let what =
            format!("cannot pass {path}: its bytes do not come from one file of this machine");
        // The client would take "not supported" as an answer for all files.
        return Err(StorageError::refused(Errno::EINVAL, what));
    };
    let client = connected(client).map_err(refused)?;
    let user = getsockopt(&client, PeerCredentials).map_err(refused)?.uid();
    if !may_have(Uid::from_raw(user), descriptor).map_err(refused)? {
        let what = format!(
            "cannot pass {path}: another user is passed only files that everybody may read and only their owner may \
             write"
        );
        return Err(StorageError::refused(Errno::EACCES, what));
    }
    let own = reopened(descriptor).map_err(refused)?;
    let (text, own) = ([IoSlice::new(secret.as_bytes())], [own.as_raw_fd()]);
    let control = [ControlMessage::ScmRights(&own)];
    let sent =
        sendmsg::<UnixAddr>(client.as_raw_fd(), &text, &control, MsgFlags::MSG_NOSIGNAL, None);
    sent.map(drop).map_err(refused)
}

/// A connection to a client's socket, if there is one on this machine.
fn connected(client: Uuid) -> nix::Result<OwnedFd> {
    let address = UnixAddr::new_abstract(format!("femtobarn-{client}").as_bytes())?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

fn may_have(user: Uid, file: BorrowedFd<'_>) -> nix::Result<bool> {
    let is_trusted = user.is_root() || user == geteuid();
    Ok(is_trusted || fstat(file)?.st_mode & CHECKED_BITS == READ_BY_ALL)
}

/// The same file, opened once more for reading.
fn reopened(file: BorrowedFd<'_>) -> nix::Result<File> {
    // Opened by its descriptor, since the path may lead to another file by now.
    let opened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    opened.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn other_users_get_files_that_all_may_read_and_only_the_owner_may_write() {
        let file = tempfile::tempfile().unwrap();
        let other = Uid::from_raw(geteuid().as_raw() ^ 0x4000);
        let may_have = |user, mode| {
            file.set_permissions(PermissionsExt::from_mode(mode)).unwrap();
            may_have(user, file.as_fd()).unwrap()
        };
        for (mode, is_passed) in [
            (0o644, true),
            (0o444, true),
            (0o640, false),
            (0o664, false),
            (0o646, false),
            (0o600, false),
        ] {
            assert_eq!(may_have(other, mode), is_passed, "{mode:o}");
            assert!(may_have(geteuid(), mode) && may_have(Uid::from_raw(0), mode), "{mode:o}");
        }
    }
}
