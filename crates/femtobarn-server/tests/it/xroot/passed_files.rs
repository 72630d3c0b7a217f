//! Files that are passed to clients on the server's machine.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

use femtobarn_server::physical::{FaultyStorage, InjectedFault};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use uuid::Uuid;
use xrd::QueryCode;

use super::*;

const CONTENT: &[u8] = b"pages of a database";

/// A client's socket, on which it gets files.
struct Socket {
    listener: UnixListener,
    name: Uuid,
}

impl Socket {
    fn new() -> Self {
        let name = Uuid::new_v4();
        let address = UnixAddress::from_abstract_name(format!("femtobarn-{name}")).unwrap();
        Socket { listener: UnixListener::bind_addr(&address).unwrap(), name }
    }

    /// The bytes and the file that the server has sent; it answers only afterwards.
    fn receive(&self) -> (Vec<u8>, File) {
        self.listener.set_nonblocking(true).unwrap();
        let (stream, _) = self.listener.accept().expect("the server has connected");
        let (mut bytes, mut control) = (vec![0; 64], nix::cmsg_space!(RawFd));
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut control), flags).unwrap();
        let count = message.bytes;
        let Some(ControlMessageOwned::ScmRights(files)) = message.cmsgs().unwrap().next() else {
            panic!("no file has come");
        };
        // SAFETY: the kernel has just opened it for this test.
        let file = unsafe { File::from_raw_fd(files[0]) };
        bytes.truncate(count);
        (bytes, file)
    }
}

fn query(handle: FileHandle, argument: String) -> Query {
    Query { kind: QueryCode::OPAQUE_OPEN, handle, argument: argument.into() }
}

/// A query for the file of a handle.
fn wanted(handle: FileHandle, socket: Uuid, secret: Uuid) -> Query {
    query(handle, format!("fb.socket={socket}&fb.secret={secret}"))
}

fn with_settings(settings: Settings) -> Server {
    let server = Server::with(settings, |folder| Arc::new(PosixStorage::new(folder).unwrap()));
    server.write("a", CONTENT);
    server
}

#[test]
fn a_client_gets_the_file_that_it_reads_with_the_secret_that_it_gave() {
    let server = with_settings(Settings::default());
    let (mut client, socket, secret) = (server.client(), Socket::new(), Uuid::new_v4());
    let handle = client.open("/a", OpenOptions::READ);
    client.ok(wanted(handle, socket.name, secret));
    let (bytes, file) = socket.receive();
    assert_eq!(bytes, secret.as_bytes());
    let mut read = [0; CONTENT.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, CONTENT);
    assert!(file.write_at(b"x", 0).is_err(), "it is for reading alone");
    // The flags that one client sets on its file affect neither the server nor another client.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_DIRECT)).unwrap();
    let other = Socket::new();
    client.ok(wanted(handle, other.name, secret));
    let (_, again) = other.receive();
    let flags = OFlag::from_bits_retain(fcntl(&again, FcntlArg::F_GETFL).unwrap());
    assert_eq!(flags & (OFlag::O_ACCMODE | OFlag::O_DIRECT), OFlag::O_RDONLY);
    assert_eq!(&client.read(handle, 1, 4)[..], &CONTENT[1..5]);
}

#[test]
fn a_file_is_passed_for_a_handle_that_reads_alone() {
    let server = with_settings(Settings::default());
    let (mut client, socket) = (server.client(), Socket::new());
    let (name, secret) = (socket.name, Uuid::new_v4());
    let writing = client.open("/a", OpenOptions::UPDATE);
    assert_eq!(client.refused(wanted(writing, name, secret), &[]), ErrorCode::ARG_INVALID);
    let unknown = FileHandle([9; 4]);
    assert_eq!(client.refused(wanted(unknown, name, secret), &[]), ErrorCode::FILE_NOT_OPEN);
    let reading = client.open("/a", OpenOptions::READ);
    for argument in ["fb.socket=", "fb.socket=../run/other", "fb.socket=1&fb.secret=2"] {
        let refused = client.refused(query(reading, argument.to_owned()), &[]);
        assert_eq!(refused, ErrorCode::ARG_INVALID, "{argument}");
    }
    // A handle is not valid in another session.
    let mut other = server.client();
    assert_eq!(other.refused(wanted(reading, name, secret), &[]), ErrorCode::FILE_NOT_OPEN);
    socket.listener.set_nonblocking(true).unwrap();
    assert!(socket.listener.accept().is_err(), "nothing was sent");
}

#[test]
fn a_client_on_another_machine_has_no_socket_and_reads_on_by_requests() {
    let server = with_settings(Settings::default());
    let mut client = server.client();
    let handle = client.open("/a", OpenOptions::READ);
    client.refused(wanted(handle, Uuid::new_v4(), Uuid::new_v4()), &[]);
    assert_eq!(&client.read(handle, 0, 5)[..], &CONTENT[..5]);
}

#[test]
fn a_client_that_takes_no_connections_does_not_hold_the_server_up() {
    let server = with_settings(Settings::default());
    let (mut client, socket) = (server.client(), Socket::new());
    let handle = client.open("/a", OpenOptions::READ);
    let is_refused = |_| {
        let answer = client.ask(wanted(handle, socket.name, Uuid::new_v4()), &[]);
        matches!(answer, Response::Error(_))
    };
    assert!((0..5000).any(is_refused), "the socket's queue has an end");
    client.assert_well();
}

#[test]
fn a_server_that_passes_no_files_answers_unsupported() {
    let server = with_settings(Settings { pass_files: false, ..Settings::default() });
    let (mut client, socket) = (server.client(), Socket::new());
    let handle = client.open("/a", OpenOptions::READ);
    let refused = client.refused(wanted(handle, socket.name, Uuid::new_v4()), &[]);
    assert_eq!(refused, ErrorCode::UNSUPPORTED);
}

#[test]
fn a_file_with_injected_faults_is_not_passed_around_them() {
    let faults: Vec<InjectedFault> = vec!["read:2=EIO".parse().unwrap()];
    let server = Server::with(Settings::default(), |folder| {
        Arc::new(FaultyStorage::failing(Arc::new(PosixStorage::new(folder).unwrap()), faults))
    });
    server.write("a", CONTENT);
    let (mut client, socket) = (server.client(), Socket::new());
    let handle = client.open("/a", OpenOptions::READ);
    let refused = client.refused(wanted(handle, socket.name, Uuid::new_v4()), &[]);
    assert_eq!(refused, ErrorCode::ARG_INVALID, "other files may still be passed");
    assert_eq!(&client.read(handle, 0, 5)[..], &CONTENT[..5]);
}
