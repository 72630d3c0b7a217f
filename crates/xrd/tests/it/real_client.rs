//! The messages against a real client: a small server, made of this crate's framer and encoders
//! and one socket, holds one file in memory and one directory.
//!
//! `XRD_TEST_PYTHON` names a Python with the `xrootd` package; `make test` sets it. If it is not set, the test reports
//! that and passes, since `captured` has the requests of that client. With `XRD_TEST_SHOW` the test prints them anew.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use bytes::Bytes;
use xrd::flags::{PageFlags, ServerFlags, StatFlags};
use xrd::request::{AttributeAction, Chkpoint, FileRef, Request};
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{
    Access, Answer, Attention, AttributeList, AttributeOutcome, AttributeOutcomes,
    CheckpointAnswer, Corrections, DirectoryEntry, DirectoryList, LocatedKind, LocatedServer,
    LoginAnswer, OpenAnswer, ProtocolAnswer, SpaceLine, StatExtension, StatLine, Status,
    StatusKind, Wait, encode_locate_answer,
};
use xrd::segment::segment_head;
use xrd::{
    ErrorCode, Failure, FileHandle, HandshakeAnswer, ProtocolVersion, QueryCode, ReceivedRequest,
    RequestCode, RequestEvent, RequestFramer, Response, SessionId, StreamId, page,
};

const HANDLE: FileHandle = FileHandle([0, 0, 0, 9]);

/// The client's program. It fails if an answer differs from what the server sent.
const SCRIPT: &str = r#"
import sys
from XRootD import client
from XRootD.client.flags import *

url = f"root://localhost:{sys.argv[1]}"

def ok(answer):
    status, result = answer
    assert status.ok, status.message
    return result

fs = client.FileSystem(url)
ok(fs.ping())
stat = ok(fs.stat("/dir/file name"))
assert (stat.size, stat.flags & StatInfoFlags.IS_READABLE) == (20_000, StatInfoFlags.IS_READABLE)
space = ok(fs.statvfs("/dir"))
assert (space.nodes_rw, space.free_rw, space.utilization_staging) == (1, 1000, 5), space
listing = ok(fs.dirlist("/dir", DirListFlags.STAT))
assert [(e.name, e.statinfo.size) for e in listing] == [("file name", 20_000), ("other", 7)]
assert [e.name for e in ok(fs.dirlist("/dir"))] == ["file name", "other"]
place, = ok(fs.locate("/dir/file name", OpenFlags.REFRESH))
assert place.address == "[::127.0.0.1]:1094" and place.accesstype == AccessType.READ_WRITE
assert ok(fs.query(QueryCode.CONFIG, "readv_ior_max unknown")) == b"2097136\nunknown\n"
checksum = ok(fs.query(QueryCode.CHECKSUM, "/dir/file name"))
assert checksum.startswith(b"adler32 084b021f"), checksum
ok(fs.mkdir("/dir/new", MkDirFlags.MAKEPATH, AccessMode.UR | AccessMode.UW))
ok(fs.mv("/dir/file name", "/dir/new name"))
ok(fs.chmod("/dir/new", AccessMode.UR))
ok(fs.truncate("/dir/new name", 12))
ok(fs.rm("/dir/new name"))
ok(fs.rmdir("/dir/new"))
assert ok(fs.prepare(["/a", "/b?x=1"], PrepareFlags.STAGE)).startswith(b"stage-1")
ok(fs.sendinfo("some information"))
assert ok(fs.set_xattr("/dir/f", [("one", "1"), ("two", "22")]))[1][0] == "two"
assert [a[1] for a in ok(fs.get_xattr("/dir/f", ["one", "two"]))] == ["value of one", "value of two"]
ok(fs.del_xattr("/dir/f", ["one"]))
assert [a[0:2] for a in ok(fs.list_xattr("/dir/f"))] == [("one", "1")]
status, _ = fs.stat("/missing")
assert not status.ok and status.errno == 3011 and "no such file" in status.message, status

content = bytes(index % 251 for index in range(20_000))
with client.File() as file:
    ok(file.open(url + "//dir/file%20name?fb.csn=41", OpenFlags.READ))
    assert ok(file.stat()).size == 20_000
    assert ok(file.read(0, 100)) == content[:100]
    assert ok(file.read(5_000, 8_000)) == content[5_000:13_000]
    assert ok(file.read(19_990, 100)) == content[19_990:]
    chunks = ok(file.vector_read([(0, 16), (10_000, 3), (19_000, 1_000)]))
    assert [chunk.buffer for chunk in chunks] == [content[:16], content[10_000:10_003], content[19_000:]]

with client.File() as file:
    ok(file.open(url + "//dir/new", OpenFlags.DELETE | OpenFlags.MAKEPATH, AccessMode.UR))
    ok(file.write(b"0123456789", offset=5))
    ok(file.sync())
    ok(file.truncate(7))

process = client.CopyProcess()
process.add_job(url + "//dir/file", sys.argv[2] + "/down", force=True)
process.prepare()
ok((process.run()[0], None))
assert open(sys.argv[2] + "/down", "rb").read() == content
process = client.CopyProcess()
process.add_job(sys.argv[2] + "/down", url + "//dir/up", force=True)
process.prepare()
ok((process.run()[0], None))
"#;

#[test]
fn the_python_client_understands_every_answer() {
    let Ok(python) = std::env::var("XRD_TEST_PYTHON") else {
        eprintln!("skipped: XRD_TEST_PYTHON names no Python with the xrootd package");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || Server::new(connection.unwrap()).run());
        }
    });
    let folder = std::env::temp_dir().join(format!("xrd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let done = Command::new(python)
        .args(["-c", SCRIPT, &port.to_string(), folder.to_str().unwrap()])
        .env("XRD_CONNECTIONRETRY", "1")
        .env("XRD_REQUESTTIMEOUT", "20")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn content() -> Vec<u8> {
    (0..20_000u32).map(|index| (index % 251) as u8).collect()
}

/// One connection of the server.
struct Server {
    socket: TcpStream,
    written: Vec<u8>,
    writing: Option<(StreamId, Request)>,
    retried: bool,
}

impl Server {
    fn new(socket: TcpStream) -> Self {
        Server { socket, written: Vec::new(), writing: None, retried: false }
    }

    fn run(mut self) {
        let (mut framer, mut buffer) = (RequestFramer::new(), vec![0; 100_000]);
        loop {
            let Ok(count @ 1..) = self.socket.read(&mut buffer) else { return };
            if std::env::var_os("XRD_TEST_SHOW").is_some() {
                println!("{count} bytes: {:02x?}", &buffer[..count.min(200)]);
            }
            let mut input = Bytes::copy_from_slice(&buffer[..count]);
            while let Some(event) = framer.next(&mut input).unwrap() {
                self.event(event);
            }
        }
    }

    fn event(&mut self, event: RequestEvent) {
        match event {
            RequestEvent::Handshake => {
                let answer =
                    HandshakeAnswer { version: ProtocolVersion::CURRENT, data_server: true };
                self.socket.write_all(&answer.encode()).unwrap();
            }
            RequestEvent::Request(received) => self.request(received),
            RequestEvent::Data { bytes, remaining, .. } => {
                self.written.extend_from_slice(&bytes);
                if remaining == 0 {
                    let (stream, request) = self.writing.take().unwrap();
                    self.write_done(stream, &request);
                }
            }
        }
    }

    fn request(&mut self, received: ReceivedRequest) {
        let stream = received.header.stream;
        let request = received.request.unwrap();
        // A decoded request must encode to the very bytes that the client sent.
        let mut again = Vec::new();
        request.encode(stream, &mut again).unwrap();
        let sent = [&received.header.encode()[..], &received.body].concat();
        assert_eq!(again, sent, "{request:?}");
        if request.data_bytes() > 0 {
            self.written.clear();
            self.writing = Some((stream, request));
            return;
        }
        match answer_of(&request) {
            Some(response) => self.send(stream, &response, &[]),
            None => self.special(stream, &request),
        }
    }

    /// Sends an answer that is more than one response, or has data after it.
    fn special(&mut self, stream: StreamId, request: &Request) {
        match request {
            Request::Read(read) => {
                let start = read.segment.offset as usize;
                let end = (start + read.segment.length as usize).min(20_000);
                let middle = (start + end) / 2;
                self.send(
                    stream,
                    &Response::OkSoFar(content()[start..middle].to_vec().into()),
                    &[],
                );
                self.send(stream, &Response::Ok(content()[middle..end].to_vec().into()), &[]);
            }
            Request::PgRead(read) => {
                let start = (read.segment.offset as usize).min(20_000);
                let end = (start + read.segment.length as usize).min(20_000);
                let middle = ((start + 6_000) & !(page::PAGE_BYTES - 1)).min(end);
                assert_ne!(read.flags, Some(PageFlags::RETRY), "the client reads a page again");
                self.pages(stream, StatusKind::PARTIAL, start..middle);
                self.pages(stream, StatusKind::FINAL, middle..end);
            }
            Request::ReadV(read) => {
                let mut body = Vec::new();
                for segment in &read.segments {
                    let start = segment.offset as usize;
                    body.extend_from_slice(&segment_head(segment).unwrap());
                    body.extend_from_slice(&content()[start..start + segment.length as usize]);
                }
                self.send(stream, &Response::Ok(body.into()), &[]);
            }
            Request::Query(query) if query.kind == QueryCode::CHECKSUM => {
                self.send(stream, &Response::WaitResp(30), &[]);
                let checksum = ChecksumAnswer { kind: "adler32".into(), digest: "084b021f".into() };
                let response = Box::new(Response::Ok(checksum.encode().unwrap().into()));
                let delayed = Response::Attn(Attention::Response { stream, response });
                self.send(StreamId::default(), &delayed, &[]);
            }
            Request::Stat(stat) if !self.retried => {
                assert!(matches!(stat.target, FileRef::Location(_)));
                self.retried = true;
                let wait = Wait { seconds: 0, message: "at once".into() };
                self.send(stream, &Response::Wait(wait), &[]);
            }
            Request::Stat(stat) => self.send(stream, &stat_of(&stat.target), &[]),
            other => panic!("no answer to {other:?}"),
        }
    }

    fn pages(&mut self, stream: StreamId, kind: StatusKind, range: std::ops::Range<usize>) {
        let mut data = Vec::new();
        page::encode_pages(range.start as u64, &content()[range.clone()], &mut data);
        let (offset, data_bytes) = (range.start as u64, data.len() as u32);
        let status = Status { request: RequestCode::PG_READ, kind, offset, data_bytes };
        self.send(stream, &Response::Status(status), &data);
    }

    fn write_done(&mut self, stream: StreamId, request: &Request) {
        let Request::PgWrite(write) = request else {
            return self.send(stream, &Response::Ok(Bytes::new()), &[]);
        };
        let mut data = Vec::new();
        let bad = page::decode_pages(write.offset, &self.written, &mut data).unwrap();
        assert!(bad.is_empty());
        let start = write.offset as usize;
        assert_eq!(data, content()[start..start + data.len()]);
        // The first time, one page is reported as damaged, so that the client corrects it.
        let corrections = match write.flags.0 {
            0 => Corrections { first_bytes: 4096, last_bytes: 4096, offsets: vec![4096] }.encode(),
            _ => Ok(Vec::new()),
        };
        let corrections = corrections.unwrap();
        let status = Status {
            request: RequestCode::PG_WRITE,
            kind: StatusKind::FINAL,
            offset: write.offset,
            data_bytes: corrections.len() as u32,
        };
        self.send(stream, &Response::Status(status), &corrections);
    }

    fn send(&mut self, stream: StreamId, response: &Response, data: &[u8]) {
        let mut bytes = Vec::new();
        response.encode(stream, &mut bytes).unwrap();
        bytes.extend_from_slice(data);
        self.socket.write_all(&bytes).unwrap();
    }
}

/// Answers that are one response.
fn answer_of(request: &Request) -> Option<Response> {
    let empty = Ok(Vec::new());
    let body = match request {
        Request::Protocol(_) => {
            let flags = ServerFlags::SERVER | ServerFlags::PAGES;
            ProtocolAnswer { version: ProtocolVersion::CURRENT, flags, ..Default::default() }
                .encode()
        }
        Request::Login(_) => {
            LoginAnswer { session: SessionId([7; 16]), security: String::new() }.encode()
        }
        Request::Open(_) => {
            OpenAnswer { handle: HANDLE, compression: None, stat: Some(stat_line(20_000)) }.encode()
        }
        Request::Dirlist(list) => directory(list.options.0 != 0).encode(),
        Request::Locate(_) => encode_locate_answer(&[LocatedServer {
            kind: LocatedKind::Server,
            online: true,
            access: Access::Write,
            address: "[::127.0.0.1]:1094".into(),
        }]),
        Request::Query(query) if query.kind == QueryCode::CONFIG => {
            ConfigAnswer { values: vec!["2097136".into(), "unknown".into()] }.encode()
        }
        Request::Stat(stat) if stat.options.0 != 0 => SpaceLine {
            writable_nodes: 1,
            writable_free_mib: 1000,
            staging_used_percent: 5,
            ..Default::default()
        }
        .encode(),
        Request::Stat(stat) if matches!(stat.target, FileRef::Handle(_)) => {
            return Some(stat_of(&stat.target));
        }
        Request::Prepare(prepare) => {
            assert_eq!(prepare.locations.len(), 2);
            Ok(b"stage-1\0".to_vec())
        }
        Request::Fattr(fattr) => attributes(&fattr.action),
        Request::Chkpoint(Chkpoint::Query(_)) => CheckpointAnswer { most: 9, used: 0 }.encode(),
        Request::Ping(_) | Request::Close(_) | Request::Sync(_) | Request::Truncate(_) => empty,
        Request::Mkdir(_) | Request::Mv(_) | Request::Rm(_) | Request::Rmdir(_) => empty,
        Request::Chmod(_) | Request::Set(_) | Request::Endsess(_) => empty,
        _ => return None,
    };
    Some(Response::Ok(body.unwrap().into()))
}

fn stat_line(size: u64) -> StatLine {
    let flags = StatFlags::READABLE | StatFlags::WRITABLE;
    let extension = Some(StatExtension {
        changed: 1_700_000_001,
        accessed: 1_700_000_002,
        mode: xrd::flags::Mode(0o644),
        owner: "alice".into(),
        group: "users".into(),
    });
    StatLine { id: 42, size, flags, modified: 1_700_000_000, extension }
}

fn stat_of(target: &FileRef) -> Response {
    match target {
        FileRef::Location(location) if location.path() == b"/missing" => {
            Response::Error(Failure::new(ErrorCode::NOT_FOUND, "no such file"))
        }
        _ => Response::Ok(stat_line(20_000).encode().unwrap().into()),
    }
}

fn directory(with_stat: bool) -> DirectoryList {
    let entry = |name: &'static str, size| DirectoryEntry {
        name: name.into(),
        stat: with_stat.then(|| stat_line(size)),
        checksum: None,
    };
    DirectoryList { with_stat, entries: vec![entry("file name", 20_000), entry("other", 7)] }
}

fn attributes(action: &AttributeAction) -> xrd::Result<Vec<u8>> {
    let outcome = |name: &Bytes| AttributeOutcome { name: name.clone(), error: None };
    match action {
        AttributeAction::List => {
            AttributeList { attributes: vec![("one".into(), Some("1".into()))] }.encode()
        }
        AttributeAction::Delete(names) => {
            AttributeOutcomes { outcomes: names.iter().map(outcome).collect(), values: None }
                .encode()
        }
        AttributeAction::Get(names) => {
            let value = |name: &Bytes| format!("value of {}", name.escape_ascii()).into();
            let values = Some(names.iter().map(value).collect());
            AttributeOutcomes { outcomes: names.iter().map(outcome).collect(), values }.encode()
        }
        AttributeAction::Set(pairs) => {
            let outcomes = pairs.iter().map(|(name, _)| outcome(name)).collect();
            AttributeOutcomes { outcomes, values: None }.encode()
        }
    }
}
