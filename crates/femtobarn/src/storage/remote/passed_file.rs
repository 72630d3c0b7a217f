//! Files that a server on this machine passes to this process, which then reads them as local ones.
//!
//! 1. The process listens on a socket under a name that cannot be guessed, and asks the server over the connection of
//!    the open file to send the file there. The bytes sent with it are known to that server alone, so no other process
//!    can pass another file.
//! 2. The process never waits for a file: the server has sent it when it answers. Without a file, all reads are
//!    requests.
//!
//! Source: docs/protocol.md, "Files for clients on the server's machine".

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use uuid::Uuid;
use xrd::ErrorCode;
use xrd::client::blocking;

/// Connections that are examined for a file: other processes of this machine may connect, too.
const CONNECTIONS_MAX: usize = 16;

/// Descriptors that Linux sends with one message at most. There is room for all of them: descriptors of a truncated
/// message would be open, but unknown to this process.
const DESCRIPTORS_MAX: usize = 253;

/// Asks a server for its files, until it answers that it passes none.
#[derive(Debug, Default)]
pub(super) struct PassedFiles {
    are_refused: AtomicBool,
}

impl PassedFiles {
    /// The file that is open at the server, if that is on this machine and passes it.
    pub(super) fn request(&self, open: &blocking::File) -> Option<File> {
        if !open.is_on_this_machine() || self.are_refused.load(Ordering::Relaxed) {
            return None;
        }
        let (name, secret) = (Uuid::new_v4(), Uuid::new_v4());
        let address = SocketAddr::from_abstract_name(format!("femtobarn-{name}")).ok()?;
        let listener = UnixListener::bind_addr(&address).ok()?;
        listener.set_nonblocking(true).ok()?;
        let answer = open.query(format!("fb.socket={name}&fb.secret={secret}").into());
        if let Err(error) = answer {
            let is_for_all = error.code() == Some(ErrorCode::UNSUPPORTED);
            self.are_refused.fetch_or(is_for_all, Ordering::Relaxed);
            return None;
        }
        let connections = (0..CONNECTIONS_MAX).map_while(|_| listener.accept().ok());
        connections.filter_map(|(stream, _)| received(&stream, secret)).next()
    }
}

/// The file that arrived over a connection, if the secret arrived with it.
fn received(stream: &UnixStream, secret: Uuid) -> Option<File> {
    let mut bytes = *Uuid::nil().as_bytes();
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut control = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message =
        recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
    let mut file = None;
    for received in message.cmsgs().ok()? {
        let ControlMessageOwned::ScmRights(descriptors) = received else { continue };
        for descriptor in descriptors {
            // SAFETY: the kernel has just opened the descriptor for this process, and no other code knows it.
            file = Some(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    file.filter(|_| bytes == *secret.as_bytes()).map(File::from)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::time::Duration;

    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    /// The file that arrives when these bytes are sent with it.
    fn passed(bytes: &[u8], secret: Uuid) -> Option<File> {
        let (here, there) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"pages").unwrap();
        let descriptor = [file.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&descriptor)];
        let text = [IoSlice::new(bytes)];
        let flags = MsgFlags::empty();
        sendmsg::<UnixAddr>(there.as_raw_fd(), &text, &control, flags, None).unwrap();
        received(&here, secret)
    }

    #[test]
    fn a_file_is_taken_from_the_server_that_knows_the_secret() {
        let secret = Uuid::new_v4();
        let file = passed(secret.as_bytes(), secret).expect("the server has sent it");
        let mut bytes = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"pages");
        assert!(passed(Uuid::new_v4().as_bytes(), secret).is_none());
        assert!(
            passed(b"", secret).is_none() && passed(&secret.as_bytes()[..15], secret).is_none()
        );
    }

    #[test]
    fn all_descriptors_of_another_process_are_closed() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut kept, sent) = UnixStream::pair().unwrap();
        let descriptors = [sent.as_raw_fd(); DESCRIPTORS_MAX];
        let control = [ControlMessage::ScmRights(&descriptors)];
        let text = [IoSlice::new(b"0123456789abcdef")];
        let flags = MsgFlags::empty();
        sendmsg::<UnixAddr>(there.as_raw_fd(), &text, &control, flags, None).unwrap();
        drop(sent);
        assert!(received(&here, Uuid::new_v4()).is_none());
        // The stream ends once this end is closed everywhere.
        kept.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(kept.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_connection_without_a_file_is_passed_over() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let secret = Uuid::new_v4();
        assert!(received(&here, secret).is_none(), "nothing has been sent");
        there.write_all(secret.as_bytes()).unwrap();
        assert!(received(&here, secret).is_none(), "no file has come");
    }
}
