//! `root://` through real sockets: a server on the loopback address, and a client that sends arbitrary requests.

mod access;
mod checkpoints;
mod disconnects;
mod files;
mod hostile;
mod large_writes;
mod optimisations;
mod pages;
mod passed_files;
mod session_recovery;
mod streams;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{PosixStorage, Storage, StoragePath};
use femtobarn_server::protocol::buffers::BufferPool;
use femtobarn_server::protocol::xroot::{RootService, serve};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use xrd::flags::{Ability, AbilityMore, OpenOptions, PageFlags};
use xrd::request::*;
use xrd::response::{Answer, LoginAnswer, OpenAnswer};
use xrd::segment::Segment;
use xrd::{
    ErrorCode, FileHandle, HANDSHAKE, Location, PathId, ReceivedResponse, Response, ResponseEvent,
    ResponseFramer, SessionId, StreamId,
};

/// The time after which a test fails. All steps take far less, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, its folder and its state.
pub(crate) struct Server {
    pub folder: TempDir,
    pub logical: Arc<Logical>,
    pub buffers: Arc<BufferPool>,
    pub address: SocketAddr,
    /// `None` only while the server is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Server {
    /// Does not wait for blocked calls: a failed test must not hang.
    fn drop(&mut self) {
        self.runtime.take().expect("a server is dropped once").shutdown_background();
    }
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(Settings::default(), |folder| Arc::new(PosixStorage::new(folder).unwrap()))
    }

    /// A server of two threads, as small machines have, over any storage of a folder.
    pub(crate) fn with(
        settings: Settings,
        storage: impl FnOnce(&std::path::Path) -> Arc<dyn Storage>,
    ) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut exports = Exports::default();
        let manner = ExportOptions { is_quick: true, is_read_only: false };
        exports.add(&StoragePath::new(b"/").unwrap(), storage(folder.path()), manner).unwrap();
        let logical = Arc::new(Logical::new(settings, exports));
        Server::of(folder, RootService::new(logical, Authenticator::open()))
    }

    /// A server of any service.
    pub(crate) fn of(folder: TempDir, shared: RootService) -> Server {
        let (logical, buffers) = (Arc::clone(&shared.logical), Arc::clone(&shared.buffers));
        let shared = Arc::new(shared);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(8)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Server { folder, logical, buffers, address, runtime: Some(runtime) }
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    /// A client after the handshake, before the login.
    pub(crate) fn greeted(&self) -> Peer {
        Peer::greeted(self.address)
    }

    /// A client that has logged in.
    pub(crate) fn client(&self) -> Peer {
        Peer::logged_in(self.address)
    }
}

pub(crate) fn login() -> Login {
    Login {
        process: 7,
        user: *b"tester\0\0",
        ability_more: AbilityMore(0),
        ability: Ability(0),
        capability: Capability::new(5, true),
        opaque: Bytes::from_static(b"xrd.appname=tests"),
    }
}

/// Waits until a condition holds; `what` names it if it never does.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} has not happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The client's end of a connection.
pub(crate) struct Peer {
    pub socket: TcpStream,
    pub session: SessionId,
    framer: ResponseFramer,
    input: Bytes,
    last_stream: u16,
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Peer {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let framer = ResponseFramer::new();
        Peer { socket, session: SessionId::default(), framer, input: Bytes::new(), last_stream: 0 }
    }

    /// A client after the handshake, before the login.
    pub(crate) fn greeted(address: SocketAddr) -> Peer {
        let mut peer = Peer::connect(address);
        peer.send_bytes(&HANDSHAKE);
        assert!(matches!(peer.response().response, Ok(Response::Ok(_))));
        peer
    }

    pub(crate) fn logged_in(address: SocketAddr) -> Peer {
        let mut peer = Peer::greeted(address);
        let body = peer.ok(login());
        peer.session = LoginAnswer::decode(&body).unwrap().session;
        peer
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends a request with data after it; returns its stream.
    pub(crate) fn send(&mut self, request: impl Into<Request>, data: &[u8]) -> StreamId {
        self.last_stream += 1;
        let stream = StreamId(self.last_stream.to_be_bytes());
        let mut bytes = Vec::new();
        request.into().encode(stream, &mut bytes).unwrap();
        bytes.extend_from_slice(data);
        self.send_bytes(&bytes);
        stream
    }

    /// The next response, or none if the server has closed the connection.
    pub(crate) fn next(&mut self) -> Option<ReceivedResponse> {
        loop {
            if let Some(event) = self.framer.next(&mut self.input).unwrap() {
                let ResponseEvent::Response(received) = event else { panic!("{event:?}") };
                return Some(received);
            }
            let mut buffer = vec![0; 1 << 20];
            match self.socket.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.input = Bytes::copy_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    pub(crate) fn response(&mut self) -> ReceivedResponse {
        self.next().expect("the connection was closed")
    }

    /// Sends a request; returns the whole answer, its parts joined.
    pub(crate) fn ask(&mut self, request: impl Into<Request>, data: &[u8]) -> Response {
        self.send(request, data);
        self.joined()
    }

    /// The next whole answer, its parts joined.
    pub(crate) fn joined(&mut self) -> Response {
        let mut parts = Vec::new();
        loop {
            match self.response().response.unwrap() {
                Response::OkSoFar(part) => parts.extend_from_slice(&part),
                Response::Ok(part) => {
                    parts.extend_from_slice(&part);
                    return Response::Ok(parts.into());
                }
                other => return other,
            }
        }
    }

    /// Sends a request that must succeed; returns the body of the answer.
    pub(crate) fn ok(&mut self, request: impl Into<Request>) -> Bytes {
        match self.ask(request, &[]) {
            Response::Ok(body) => body,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request that must be refused; returns the error code.
    pub(crate) fn refused(&mut self, request: impl Into<Request>, data: &[u8]) -> ErrorCode {
        match self.ask(request, data) {
            Response::Error(failure) => failure.code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open(&mut self, path: &str, options: OpenOptions) -> FileHandle {
        let body = self.ok(open(path, options));
        OpenAnswer::decode(&body).unwrap().handle
    }

    pub(crate) fn read(&mut self, handle: FileHandle, offset: u64, length: u32) -> Bytes {
        self.ok(read(handle, offset, length))
    }

    /// Fails unless the server answers.
    pub(crate) fn assert_well(&mut self) {
        self.ok(Ping);
    }

    /// Fails unless the server closes the connection; ignores earlier answers.
    pub(crate) fn assert_closed(&mut self) {
        while self.next().is_some() {}
    }
}

pub(crate) fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

pub(crate) fn open(path: &str, options: OpenOptions) -> Open {
    Open {
        mode: Default::default(),
        options,
        template_options: Default::default(),
        template: FileHandle::default(),
        location: at(path),
    }
}

pub(crate) fn read(handle: FileHandle, offset: u64, length: u32) -> xrd::request::Read {
    xrd::request::Read { segment: Segment { handle, length, offset }, arguments: None }
}

pub(crate) fn write(handle: FileHandle, offset: u64, data: &[u8]) -> xrd::request::Write {
    let length = data.len() as u32;
    xrd::request::Write { handle, offset, path: PathId(0), length }
}

pub(crate) fn pgwrite(handle: FileHandle, offset: u64, wire: &[u8], flags: PageFlags) -> PgWrite {
    PgWrite { handle, offset, path: PathId(0), flags, length: wire.len() as u32 }
}

/// Options that create a file and open it for writing.
pub(crate) fn to_make() -> OpenOptions {
    OpenOptions::NEW | OpenOptions::UPDATE
}

/// Bytes that each differ from the bytes near them.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
