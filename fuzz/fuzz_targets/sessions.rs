//! Two clients that send arbitrary requests at the same time to a server of files in memory.
//!
//! Every answer is valid. A client that keeps to the protocol gets one answer to each request, and no others. When
//! both clients have disconnected, the server has no session, open file or buffer left.

#![no_main]

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::exports::{ExportOptions, Exports};
use femtobarn_server::logical::{Logical, Settings};
use femtobarn_server::physical::{MemoryStorage, StoragePath};
use femtobarn_server::protocol::xroot::{RootService, serve_from};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use xrd::flags::*;
use xrd::page::encode_pages;
use xrd::request::*;
use xrd::segment::{CloneRange, Segment};
use xrd::{
    AnswerJoiner, FileHandle, HANDSHAKE, Location, PathId, QueryCode, Request, ResponseEvent,
    ResponseFramer, StreamId,
};

/// Requests of one client.
const REQUESTS_MAX: usize = 64;
/// Bytes of all files together.
const STORAGE_BYTES: u64 = 1 << 20;
/// The stream of the login.
const FIRST_STREAM: StreamId = StreamId([0, 1]);
const NAMES: [&str; 8] = ["/", "/a", "/b", "/dir", "/dir/a", "/dir/b", "/a/x", "/none/x"];
const OFFSETS: [u64; 12] =
    [0, 1, 7, 100, 4095, 4096, 4097, 65_536, 1 << 20, 1 << 31, 1 << 40, i64::MAX as u64];
/// The number of offsets that may be sizes of files.
const FILE_SIZES: usize = 9;
const SIZES: [u32; 8] = [0, 1, 7, 100, 4096, 4101, 40_000, 70_000];

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().build().expect("the system allows a runtime"),
    );
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut clients = [Script::new(), Script::new()];
    while let Some(which) = input.byte() {
        clients[usize::from(which & 1)].ask(which >> 1, &mut input);
    }
    RUNTIME.with_borrow(|runtime| runtime.block_on(serve(clients)));
});

/// The rest of the fuzzer's bytes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn any(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.any(), self.any()])
    }

    fn one_of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[usize::from(self.any()) % choice.len()]
    }

    fn handle(&mut self) -> FileHandle {
        FileHandle(u32::from(self.any() % 4).to_be_bytes())
    }

    fn location(&mut self) -> Location {
        Location::new(self.one_of(&NAMES)).expect("the names are paths")
    }

    fn segment(&mut self) -> Segment {
        let (handle, length, offset) = (self.handle(), self.one_of(&SIZES), self.one_of(&OFFSETS));
        Segment { handle, length, offset }
    }

    /// A segment to write. Its offset is small, so that the file's checksum does not take minutes.
    fn segment_to_write(&mut self) -> Segment {
        let (handle, length, offset) = (self.handle(), self.one_of(&SIZES), self.size());
        Segment { handle, length, offset }
    }

    fn size(&mut self) -> u64 {
        self.one_of(&OFFSETS[..FILE_SIZES])
    }

    fn segments(&mut self) -> Vec<Segment> {
        let count = 1 + self.any() % 4;
        (0..count).map(|_| self.segment()).collect()
    }

    fn target(&mut self) -> FileRef {
        match self.any() & 1 {
            0 => FileRef::Handle(self.handle()),
            _ => FileRef::Location(self.location()),
        }
    }

    fn write(&mut self) -> Write {
        let Segment { handle, length, offset } = self.segment_to_write();
        Write { handle, offset, path: PathId(0), length }
    }

    fn writes(&mut self) -> WriteV {
        let options = WriteVOptions(self.any());
        let count = 1 + self.any() % 4;
        WriteV { options, segments: (0..count).map(|_| self.segment_to_write()).collect() }
    }
}

/// The bytes that one client sends.
struct Script {
    bytes: Vec<u8>,
    asked: HashSet<StreamId>,
    /// Whether the client sends nothing after which the server may close the connection.
    is_orderly: bool,
}

impl Script {
    fn new() -> Self {
        let login = Login {
            process: 7,
            user: *b"fuzzer\0\0",
            ability_more: AbilityMore(0),
            ability: Ability(0),
            capability: Capability::new(5, true),
            opaque: Bytes::new(),
        };
        let mut bytes = HANDSHAKE.to_vec();
        Request::from(login).encode(FIRST_STREAM, &mut bytes).expect("a login can be encoded");
        // The handshake is answered on stream 0.
        let asked = HashSet::from([StreamId([0, 0]), FIRST_STREAM]);
        Script { bytes, asked, is_orderly: true }
    }

    fn ask(&mut self, kind: u8, input: &mut Input<'_>) {
        if self.asked.len() > REQUESTS_MAX {
            return;
        }
        if kind == 127 {
            return self.add_random_bytes(input);
        }
        let stream = StreamId((self.asked.len() as u16).to_be_bytes());
        let mut encoded = Vec::new();
        let Some((request, data)) = random_request(kind, input) else { return };
        // A request that cannot be encoded is left out.
        if request.encode(stream, &mut encoded).is_ok() {
            self.bytes.extend(encoded);
            self.bytes.extend(data);
            self.asked.insert(stream);
        }
    }

    /// Adds a header with random fields, and a few random bytes after it.
    fn add_random_bytes(&mut self, input: &mut Input<'_>) {
        let stream = StreamId((self.asked.len() as u16).to_be_bytes());
        self.bytes.extend(stream.0);
        self.bytes.extend((3000 + u16::from(input.any() % 34)).to_be_bytes());
        let count = 16 + 4 + u16::from(input.any());
        self.bytes.extend((0..count).map(|_| input.any()));
        self.asked.insert(stream);
        self.is_orderly = false;
    }
}

/// A request, and the data that follow it.
fn random_request(kind: u8, input: &mut Input<'_>) -> Option<(Request, Vec<u8>)> {
    if let Some(asked) = request_with_data(kind, input) {
        return Some(asked);
    }
    let request = match kind % 32 {
        0..4 => Open {
            mode: Mode(input.word()),
            options: OpenOptions(input.word()),
            template_options: OpenTemplateOptions(input.any().into()),
            template: input.handle(),
            location: input.location(),
        }
        .into(),
        4 => Close { handle: input.handle() }.into(),
        5 | 6 => Read { segment: input.segment(), arguments: None }.into(),
        7 => ReadV { path: PathId(0), segments: input.segments() }.into(),
        8 => PgRead { segment: input.segment(), path: None, flags: None }.into(),
        9 => Sync { handle: input.handle() }.into(),
        10 => Truncate { target: input.target(), size: input.size() }.into(),
        11 => {
            let (options, wants) = (StatOptions(input.any()), StatWants(0));
            Stat { options, wants, target: input.target() }.into()
        }
        12 => {
            let (options, mode) = (MkdirOptions(input.any()), Mode(input.word()));
            Mkdir { options, mode, location: input.location() }.into()
        }
        13 => Rm { location: input.location() }.into(),
        14 => Rmdir { location: input.location() }.into(),
        15 => Mv { from: input.location(), to: input.location() }.into(),
        16 => Dirlist { options: DirlistOptions(input.any()), location: input.location() }.into(),
        17 => Chkpoint::Begin(input.handle()).into(),
        18 => Chkpoint::Commit(input.handle()).into(),
        19 => Chkpoint::Rollback(input.handle()).into(),
        20 => Chkpoint::Query(input.handle()).into(),
        21 => Ping.into(),
        22 => {
            let range = CloneRange {
                source: input.handle(),
                source_offset: input.one_of(&OFFSETS),
                length: input.one_of(&SIZES).into(),
                target_offset: input.size(),
            };
            CloneRanges { target: input.handle(), ranges: vec![range] }.into()
        }
        23 => {
            let (kind, handle) = (QueryCode(u16::from(input.any() % 12)), input.handle());
            Query { kind, handle, argument: input.one_of(&NAMES).into() }.into()
        }
        24 => Fattr {
            target: input.target(),
            options: FattrOptions(input.any()),
            action: match input.any() % 4 {
                0 => AttributeAction::List,
                1 => AttributeAction::Get(vec!["name".into()]),
                2 => AttributeAction::Delete(vec!["name".into()]),
                _ => AttributeAction::Set(vec![("name".into(), "value".into())]),
            },
        }
        .into(),
        25 => Locate { options: LocateOptions(input.word()), location: input.location() }.into(),
        26 => Chmod { mode: Mode(input.word()), location: input.location() }.into(),
        27 => Statx { locations: vec![input.location(), input.location()] }.into(),
        28 => {
            let handle = input.handle();
            let change = CheckpointWrite::Truncate { handle, size: input.size() };
            Chkpoint::Execute(change).into()
        }
        _ => return None,
    };
    Some((request, vec![]))
}

/// A request with data after it; `None` if the kind stands for a request without data.
fn request_with_data(kind: u8, input: &mut Input<'_>) -> Option<(Request, Vec<u8>)> {
    let request: Request = match kind {
        32..64 => input.write().into(),
        64..72 => input.writes().into(),
        72..80 => return Some(page_write(input)),
        80..88 => Chkpoint::Execute(CheckpointWrite::Write(input.write())).into(),
        88..92 => Chkpoint::Execute(CheckpointWrite::WriteV(input.writes())).into(),
        _ => return None,
    };
    let data = vec![kind; request.data_bytes() as usize];
    Some((request, data))
}

/// A write of pages, one of which may be damaged.
fn page_write(input: &mut Input<'_>) -> (Request, Vec<u8>) {
    let Segment { handle, length, offset } = input.segment_to_write();
    let mut data = Vec::new();
    encode_pages(offset, &vec![7; length as usize], &mut data);
    if let Some(byte) = data.get_mut(usize::from(input.word())) {
        *byte ^= input.any();
    }
    let flags = PageFlags(input.any() & 1);
    let length = data.len() as u32;
    (PgWrite { handle, offset, path: PathId(0), flags, length }.into(), data)
}

/// Runs both clients at the same time against a new server.
async fn serve(clients: [Script; 2]) {
    let mut exports = Exports::default();
    let top = StoragePath::new(b"/").expect("this is a path");
    let storage = Arc::new(MemoryStorage::new(STORAGE_BYTES));
    let options = ExportOptions { is_quick: true, is_read_only: false };
    exports.add(&top, storage, options).expect("nothing else is exported");
    let logical = Arc::new(Logical::new(Settings::default(), exports));
    let service = Arc::new(RootService::new(Arc::clone(&logical), Authenticator::open()));
    let [one, other] = clients;
    tokio::join!(converse(one, &service), converse(other, &service));
    assert_eq!(logical.sessions.count(), 0, "a session is left");
    // Blocking calls may end a little later than their client. If one never ends, the fuzzer reports a timeout.
    while logical.files.count() > 0 || service.buffers.used() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn converse(script: Script, service: &Arc<RootService>) {
    let (here, there) = UnixStream::pair().expect("the system allows sockets");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1094));
    let served = serve_from(stream(there), address, address, Arc::clone(service));
    tokio::join!(served, talk(script, stream(here)));
}

/// A TCP stream made of a Unix socket; the server does not ask for its address.
fn stream(socket: UnixStream) -> TcpStream {
    socket.set_nonblocking(true).expect("sockets can be non-blocking");
    let socket = std::net::TcpStream::from(OwnedFd::from(socket));
    TcpStream::from_std(socket).expect("there is a runtime")
}

async fn talk(script: Script, stream: TcpStream) {
    let Script { bytes, mut asked, is_orderly } = script;
    let (mut from, mut to) = stream.into_split();
    let say = async {
        // The server may close the connection of a client that is not orderly.
        let said = to.write_all(&bytes).await;
        assert!(said.is_ok() || !is_orderly);
        if !is_orderly {
            drop(to.shutdown().await);
        }
        to
    };
    let hear = async {
        let (mut framer, mut answers) = (ResponseFramer::new(), AnswerJoiner::new());
        let mut buffer = vec![0; 64 << 10];
        while !is_orderly || !asked.is_empty() {
            let count = from.read(&mut buffer).await.unwrap_or(0);
            if count == 0 {
                break;
            }
            let mut input = Bytes::copy_from_slice(&buffer[..count]);
            while let Some(event) = framer.next(&mut input).expect("the answers are valid") {
                let ResponseEvent::Response(received) = event else { continue };
                let answer = answers.push(received).expect("the answer is valid");
                if let Some((stream, _)) = answer {
                    let was_asked = asked.remove(&stream);
                    assert!(was_asked || !is_orderly, "{stream:?} was not asked");
                }
            }
        }
        assert!(!is_orderly || asked.is_empty(), "{asked:?} have no answer");
    };
    tokio::join!(say, hear);
}
