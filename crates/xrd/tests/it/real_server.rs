//! The messages against a real server: a small client, made of this crate's encoders and framer and
//! one socket, sends every kind of request about one file.
//!
//! `XRD_TEST_SERVER` names host and port of a server that lets anybody write below `/`, with
//! `ofs.chkpnt enable` and checksums.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bytes::Bytes;
use xrd::codes::Expect;
use xrd::flags::*;
use xrd::request::*;
use xrd::request::{AttributeAction, Fattr};
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{
    Access, Answer, AttributeList, AttributeOutcomes, CheckpointAnswer, Corrections, DirectoryList,
    LocatedKind, LoginAnswer, OpenAnswer, ProtocolAnswer, SpaceLine, StatLine,
    decode_locate_answer,
};
use xrd::segment::{Segment, decode_segment_data};
use xrd::{
    AnswerJoiner, ErrorCode, FileHandle, HandshakeAnswer, Joined, Location, Pages, PathId,
    ProtocolVersion, QueryCode, Response, ResponseEvent, ResponseFramer, StreamId, opaque_pairs,
    page,
};

struct Client {
    socket: TcpStream,
    framer: ResponseFramer,
    answers: AnswerJoiner,
    input: Bytes,
    stream: u16,
}

impl Client {
    /// Handshake, protocol and login.
    fn connect(server: &str) -> Self {
        let mut socket = TcpStream::connect(server).unwrap();
        socket.write_all(&xrd::HANDSHAKE).unwrap();
        let (framer, answers) = (ResponseFramer::new(), AnswerJoiner::new());
        let mut client = Client { socket, framer, answers, input: Bytes::new(), stream: 0 };
        let (stream, answer) = client.hear();
        let Joined::Response(Response::Ok(body)) = answer else { panic!("{answer:?}") };
        assert_eq!(stream, StreamId::default());
        let hello = HandshakeAnswer::decode(&body).unwrap();
        assert!(hello.data_server && hello.version >= ProtocolVersion::PAGES);
        let options = ProtocolOptions::SECURITY | ProtocolOptions::BIND_INTERFACES;
        let protocol =
            Protocol { version: ProtocolVersion::CURRENT, options, expect: Expect::LOGIN };
        let answer = ProtocolAnswer::decode(&client.ok(protocol, b"")).unwrap();
        assert!(answer.flags.contains(ServerFlags::SERVER | ServerFlags::PAGES));
        let login = Login {
            process: 1,
            user: *b"tester\0\0",
            ability_more: AbilityMore::default(),
            ability: Ability::FULL_URL,
            capability: Capability::new(5, true),
            opaque: Bytes::new(),
        };
        assert_eq!(LoginAnswer::decode(&client.ok(login, b"")).unwrap().security, "");
        client
    }

    fn hear(&mut self) -> (StreamId, Joined) {
        loop {
            while let Some(event) = self.framer.next(&mut self.input).unwrap() {
                let ResponseEvent::Response(received) = event else {
                    panic!("no data is streamed")
                };
                match self.answers.push(received).unwrap() {
                    Some((_, Joined::Response(Response::WaitResp(_)))) | None => {}
                    Some(answer) => return answer,
                }
            }
            let mut buffer = vec![0; 1000];
            let count = self.socket.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "the server closed the connection");
            self.input = Bytes::copy_from_slice(&buffer[..count]);
        }
    }

    fn ask(&mut self, request: impl Into<Request>, data: &[u8]) -> Joined {
        let request = request.into();
        self.stream += 1;
        let stream = StreamId(self.stream.to_be_bytes());
        let mut bytes = Vec::new();
        request.encode(stream, &mut bytes).unwrap();
        bytes.extend_from_slice(data);
        assert_eq!(data.len() as u64, request.data_bytes());
        self.socket.write_all(&bytes).unwrap();
        let (answered, answer) = self.hear();
        assert_eq!(answered, stream, "{request:?}: {answer:?}");
        answer
    }

    fn ok(&mut self, request: impl Into<Request>, data: &[u8]) -> Bytes {
        match self.ask(request, data) {
            Joined::Response(Response::Ok(body)) => body,
            other => panic!("{other:?}"),
        }
    }

    fn pages(&mut self, request: impl Into<Request>, data: &[u8]) -> Vec<Pages> {
        match self.ask(request, data) {
            Joined::Pages(pages) => pages,
            other => panic!("{other:?}"),
        }
    }

    fn error(&mut self, request: impl Into<Request>) -> ErrorCode {
        match self.ask(request, b"") {
            Joined::Response(Response::Error(failure)) => failure.code,
            other => panic!("{other:?}"),
        }
    }
}

fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

fn open(path: &str, mode: u16, options: OpenOptions) -> Open {
    let (template_options, template) = (OpenTemplateOptions::default(), FileHandle::default());
    Open { mode: Mode(mode), options, template_options, template, location: at(path) }
}

fn stat(target: FileRef, options: StatOptions) -> Stat {
    Stat { options, wants: StatWants::default(), target }
}

fn query(kind: QueryCode, argument: &'static str) -> Query {
    Query { kind, handle: FileHandle::default(), argument: argument.into() }
}

#[test]
#[ignore = "needs a server, which XRD_TEST_SERVER names"]
fn a_real_server_understands_every_request() {
    let server = std::env::var("XRD_TEST_SERVER").expect("XRD_TEST_SERVER names no server");
    let mut client = Client::connect(&server);
    client.ok(Ping, b"");
    let make = MkdirOptions::MAKE_PATH;
    client.ok(Mkdir { options: make, mode: Mode(0o755), location: at("/xrd test/a") }, b"");
    let content = writes(&mut client);
    reads(&mut client, &content);
    names(&mut client);
    attributes(&mut client);
    removes(&mut client);
}

fn writes(client: &mut Client) -> Vec<u8> {
    let options = OpenOptions::DELETE | OpenOptions::UPDATE | OpenOptions::RETURN_STAT;
    let answer = client.ok(open("/xrd test/a/file", 0o644, options), b"");
    let answer = OpenAnswer::decode(&answer).unwrap();
    assert_eq!(answer.stat.unwrap().size, 0);
    let (handle, path) = (answer.handle, PathId(0));
    let mut content: Vec<u8> = (0..20_000u32).map(|index| (index % 251) as u8).collect();

    let length = content.len() as u32;
    client.ok(Write { handle, offset: 0, path, length }, &vec![1; content.len()]);
    // Pages that begin in the middle of one; the second has a wrong checksum and is then corrected.
    let mut wire = Vec::new();
    page::encode_pages(1000, &content[1000..], &mut wire);
    wire[3100] ^= 1;
    let (flags, length) = (PageFlags::default(), wire.len() as u32);
    let answer = client.pages(PgWrite { handle, offset: 1000, path, flags, length }, &wire);
    let corrections = Corrections::decode(&answer[0].data).unwrap();
    assert_eq!(corrections.offsets, [4096]);
    let again = &wire[3100..3100 + 4100];
    let again = [&[again[0] ^ 1], &again[1..]].concat();
    let (flags, length) = (PageFlags::RETRY, 4100);
    let answer = client.pages(PgWrite { handle, offset: 4096, path, flags, length }, &again);
    assert!(answer[0].data.is_empty());

    let segments = vec![
        Segment { handle, offset: 0, length: 600 },
        Segment { handle, offset: 600, length: 400 },
    ];
    client.ok(WriteV { options: WriteVOptions::SYNC, segments }, &content[..1000]);
    client.ok(Sync { handle }, b"");
    checkpoints(client, handle);
    client.ok(Truncate { target: FileRef::Handle(handle), size: 19_000 }, b"");
    content.truncate(19_000);
    client.ok(Close { handle }, b"");
    assert_eq!(client.error(Close { handle }), ErrorCode::FILE_NOT_OPEN);
    content
}

/// Every change that a checkpoint may have, undone at the end.
fn checkpoints(client: &mut Client, handle: FileHandle) {
    client.ok(Chkpoint::Begin(handle), b"");
    let limits = CheckpointAnswer::decode(&client.ok(Chkpoint::Query(handle), b"")).unwrap();
    assert!(limits.most > limits.used);
    let path = PathId(0);
    let write = Write { handle, offset: 10, path, length: 3 };
    client.ok(Chkpoint::Execute(CheckpointWrite::Write(write)), b"???");
    let segments = vec![Segment { handle, offset: 20, length: 2 }; 2];
    let many = WriteV { options: WriteVOptions::default(), segments };
    client.ok(Chkpoint::Execute(CheckpointWrite::WriteV(many)), b"!!!!");
    let truncate = CheckpointWrite::Truncate { handle, size: 5000 };
    client.ok(Chkpoint::Execute(truncate), b"");
    client.ok(Chkpoint::Rollback(handle), b"");
}

fn reads(client: &mut Client, content: &[u8]) {
    let answer = client.ok(open("/xrd test/a/file", 0, OpenOptions::READ), b"");
    let handle = OpenAnswer::decode(&answer).unwrap().handle;
    let segment = |offset, length| Segment { handle, offset, length };
    let arguments = Some(ReadArguments::default());
    let body = client.ok(Read { segment: segment(0, 50_000), arguments }, b"");
    assert_eq!(body, content);
    let body = client.ok(Read { segment: segment(19_000, 10), arguments: None }, b"");
    assert!(body.is_empty());

    let segments = vec![segment(5, 16), segment(10_000, 3000)];
    let body = client.ok(ReadV { path: PathId(0), segments: segments.clone() }, b"");
    let pieces = decode_segment_data(&body).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.segment).collect::<Vec<_>>(), segments);
    assert_eq!(pieces[1].data, content[10_000..13_000]);

    let (path, flags) = (Some(PathId(0)), Some(PageFlags::default()));
    let answer = client.pages(PgRead { segment: segment(1000, 50_000), path, flags }, b"");
    let mut data = Vec::new();
    for pages in &answer {
        let start = pages.status.offset;
        assert!(page::decode_pages(start, &pages.data, &mut data).unwrap().is_empty());
    }
    assert_eq!(data, content[1000..]);
    let answer = client.ok(stat(FileRef::Handle(handle), StatOptions::default()), b"");
    assert_eq!(StatLine::decode(&answer).unwrap().size, 19_000);
    client.ok(Close { handle }, b"");
}

fn names(client: &mut Client) {
    let file = FileRef::Location(at("/xrd test/a/file"));
    let line = client.ok(stat(file, StatOptions::default()), b"");
    let line_read = StatLine::decode(&line).unwrap();
    assert_eq!((line_read.size, line_read.extension.as_ref().unwrap().mode.0), (19_000, 0o644));
    assert_eq!(line_read.encode().unwrap(), line, "encoded as the server does");
    let space = stat(FileRef::Location(at("/")), StatOptions::FILE_SYSTEM);
    assert_eq!(SpaceLine::decode(&client.ok(space, b"")).unwrap().writable_nodes, 1);

    let list = |options| Dirlist { options, location: at("/xrd test/a") };
    let body = client.ok(list(DirlistOptions::default()), b"");
    assert_eq!(DirectoryList::decode(&body).unwrap().encode().unwrap(), body);
    for options in [DirlistOptions::STAT, DirlistOptions::CHECKSUM] {
        let body = client.ok(list(options), b"");
        let found = DirectoryList::decode(&body).unwrap();
        assert_eq!((found.entries.len(), &found.entries[0].name[..]), (1, &b"file"[..]));
        assert_eq!(found.entries[0].checksum.is_some(), options == DirlistOptions::CHECKSUM);
        assert_eq!(found.encode().unwrap(), body, "encoded as the server does");
    }

    let located = client
        .ok(Locate { options: LocateOptions::REFRESH, location: at("/xrd test/a/file") }, b"");
    let places = decode_locate_answer(&located).unwrap();
    assert_eq!((places[0].kind, places[0].access), (LocatedKind::Server, Access::Write));
    let checksum = client.ok(query(QueryCode::CHECKSUM, "/xrd test/a/file"), b"");
    assert_eq!(ChecksumAnswer::decode(&checksum).unwrap().kind, "adler32");
    let config = client.ok(query(QueryCode::CONFIG, "readv_iov_max nonsense"), b"");
    assert_eq!(ConfigAnswer::decode(&config).unwrap().values, ["1024", "nonsense"]);
    let space = client.ok(query(QueryCode::SPACE, "/"), b"");
    assert!(opaque_pairs(&space).any(|(key, _)| key == b"oss.free"));
    let many = Statx { locations: vec![at("/xrd test/a"), at("/xrd test/a/file")] };
    assert_eq!(&client.ok(many, b"")[..], [StatFlags::DIRECTORY.0 as u8, 0]);
}

fn attributes(client: &mut Client) {
    let fattr = |action, options| Fattr {
        target: FileRef::Location(at("/xrd test/a/file")),
        options,
        action,
    };
    let none = FattrOptions::default();
    let pairs = vec![("one".into(), "1".into()), ("two".into(), "22".into())];
    let body = client.ok(fattr(AttributeAction::Set(pairs), none), b"");
    let outcomes = AttributeOutcomes::decode(&body).unwrap();
    assert!(outcomes.outcomes.iter().all(|outcome| outcome.error.is_none()), "{outcomes:?}");

    let names = vec!["two".into(), "missing".into()];
    let body = client.ok(fattr(AttributeAction::Get(names), none), b"");
    let outcomes = AttributeOutcomes::decode(&body).unwrap();
    assert_eq!(outcomes.outcomes[1].error, Some(ErrorCode::ATTRIBUTE_NOT_FOUND));
    assert_eq!(outcomes.values.as_ref().unwrap()[0], "22");
    assert_eq!(outcomes.encode().unwrap(), body, "encoded as the server does");

    let body = client.ok(fattr(AttributeAction::List, FattrOptions::VALUES), b"");
    let list = AttributeList::decode(&body, true).unwrap();
    assert_eq!(list.attributes.len(), 2);
    assert_eq!(list.encode().unwrap(), body, "encoded as the server does");
    let body = client.ok(fattr(AttributeAction::List, none), b"");
    assert_eq!(AttributeList::decode(&body, false).unwrap().attributes.len(), 2);
    client.ok(fattr(AttributeAction::Delete(vec!["one".into()]), none), b"");
}

fn removes(client: &mut Client) {
    let (from, to) = (at("/xrd test/a/file"), at("/xrd test/a/other name"));
    client.ok(Mv { from, to: to.clone() }, b"");
    client.ok(Chmod { mode: Mode(0o600), location: to.clone() }, b"");
    let size = 12;
    client.ok(Truncate { target: FileRef::Location(to.clone()), size }, b"");
    client.ok(Set { modifier: 0, text: "appid test".into() }, b"");
    client.ok(Rm { location: to.clone() }, b"");
    assert_eq!(client.error(Rm { location: to }), ErrorCode::NOT_FOUND);
    client.ok(Rmdir { location: at("/xrd test/a") }, b"");
    client.ok(Rmdir { location: at("/xrd test") }, b"");
}
