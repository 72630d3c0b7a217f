//! Requests about open files and about paths.

use femtobarn_server::logical::checksums::ChecksumKind;
use xrd::QueryCode;
use xrd::flags::{DirlistOptions, MkdirOptions, Mode, OpenTemplateOptions, WriteVOptions};
use xrd::response::query::{ChecksumAnswer, ConfigAnswer};
use xrd::response::{Attention, CheckpointAnswer, DirectoryList, StatLine};
use xrd::segment::CloneRange;

use super::*;

#[test]
fn open_new_refuses_an_existing_file() {
    let server = Server::start();
    let mut peer = server.client();
    assert_eq!(
        peer.refused(open("/file", OpenOptions::UPDATE), &[]),
        ErrorCode::NOT_FOUND,
        "the file does not exist yet"
    );
    peer.open("/file", to_make());
    assert_eq!(peer.refused(open("/file", to_make()), &[]), ErrorCode::IT_EXISTS);
    peer.open("/file", OpenOptions::DELETE | OpenOptions::UPDATE);
    assert_eq!(peer.refused(open("/", OpenOptions::READ), &[]), ErrorCode::IS_DIRECTORY);
    assert_eq!(peer.refused(open("/a/b", to_make()), &[]), ErrorCode::NOT_FOUND);
    peer.open("/a/b", to_make() | OpenOptions::MAKE_PATH);
    peer.open("/c/d", to_make() | OpenOptions::ASYNC);
}

#[test]
fn written_bytes_are_read_back() {
    let server = Server::start();
    let mut peer = server.client();
    let handle = peer.open("/file", to_make());
    let content = pattern(3_000_001);
    let (first, second) = content.split_at(1_000_000);
    peer.send(write(handle, 1_000_000, second), second);
    peer.send(write(handle, 0, first), first);
    peer.send(Sync { handle }, &[]);
    for _ in 0..3 {
        assert!(matches!(peer.joined(), Response::Ok(_)));
    }
    assert!(peer.read(handle, 0, 4_000_000) == content, "a long read");
    assert!(peer.read(handle, 5, 100) == content[5..105], "a short read");
    assert_eq!(peer.read(handle, 3_000_000, 100).len(), 1);
    assert_eq!(peer.read(handle, 3_000_001, 100).len(), 0);
    assert_eq!(peer.read(handle, 1 << 40, 10 << 20).len(), 0);
    assert_eq!(peer.read(handle, 0, 0).len(), 0);
    assert!(server.bytes_of("file") == content, "the file");
    peer.ok(Close { handle });
    assert_eq!(peer.refused(read(handle, 0, 1), &[]), ErrorCode::FILE_NOT_OPEN);
}

#[test]
fn writes_to_a_file_open_for_reading_are_refused() {
    let server = Server::start();
    server.write("file", b"abc");
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::READ);
    assert_eq!(peer.refused(write(handle, 0, b"x"), b"x"), ErrorCode::NOT_AUTHORIZED);
    let cut = Truncate { target: FileRef::Handle(handle), size: 0 };
    assert_eq!(peer.refused(cut, &[]), ErrorCode::NOT_AUTHORIZED);
    assert_eq!(peer.refused(Chkpoint::Begin(handle), &[]), ErrorCode::NOT_AUTHORIZED);
    assert_eq!(server.bytes_of("file"), b"abc");
    peer.assert_well();
}

#[test]
fn writev_and_readv_transfer_many_ranges() {
    let server = Server::start();
    let mut peer = server.client();
    let (one, two) = (peer.open("/one", to_make()), peer.open("/two", to_make()));
    let content = pattern(300_000);
    let segments: Vec<_> = (0..300_u64)
        .map(|index| Segment {
            handle: if index % 2 == 0 { one } else { two },
            length: 1000,
            offset: index / 2 * 1000,
        })
        .collect();
    let many = WriteV { options: WriteVOptions::SYNC, segments: segments.clone() };
    assert!(matches!(peer.ask(many, &content), Response::Ok(_)));
    let body = peer.ok(ReadV { path: PathId(0), segments });
    let found = xrd::segment::decode_segment_data(&body).unwrap();
    let together: Vec<u8> = found.iter().flat_map(|piece| piece.data.to_vec()).collect();
    assert!(together == content, "what was read differs from what was written");
    // If one piece ends beyond the file, the whole request is refused.
    let beyond = Segment { handle: one, length: 1000, offset: 149_001 };
    let many = ReadV { path: PathId(0), segments: vec![beyond] };
    assert_eq!(peer.refused(many, &[]), ErrorCode::ARG_INVALID);
    // Pieces of megabytes, with gaps.
    server.write("large", &pattern(9 << 20));
    let large = peer.open("/large", OpenOptions::READ);
    let segments: Vec<_> = [(0, 2 << 20), (100 + (2 << 20), 1 << 20), (5 << 20, 2_097_136)]
        .map(|(offset, length)| Segment { handle: large, length, offset })
        .to_vec();
    let body = peer.ok(ReadV { path: PathId(0), segments: segments.clone() });
    for (piece, segment) in xrd::segment::decode_segment_data(&body).unwrap().iter().zip(segments) {
        let start = segment.offset as usize;
        let expected = &pattern(9 << 20)[start..start + segment.length as usize];
        assert!(piece.data == expected, "the piece at {start} differs");
    }
}

#[test]
fn checkpoints_are_rolled_back_or_committed() {
    let server = Server::start();
    server.write("file", b"0123456789");
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::UPDATE);
    let change = |offset, data: &[u8]| {
        Chkpoint::Execute(CheckpointWrite::Write(write(handle, offset, data)))
    };
    assert_eq!(peer.refused(change(0, b"x"), b"x"), ErrorCode::ARG_INVALID);
    peer.ok(Chkpoint::Begin(handle));
    assert_eq!(peer.refused(Chkpoint::Begin(handle), &[]), ErrorCode::IN_PROGRESS);
    assert!(matches!(peer.ask(change(2, b"abcd"), b"abcd"), Response::Ok(_)));
    assert!(matches!(peer.ask(change(3, b"XY"), b"XY"), Response::Ok(_)));
    peer.ok(Chkpoint::Execute(CheckpointWrite::Truncate { handle, size: 7 }));
    assert!(matches!(peer.ask(change(20, b"far"), b"far"), Response::Ok(_)));
    assert_eq!(&server.bytes_of("file")[..7], b"01aXYd6");
    let query = CheckpointAnswer::decode(&peer.ok(Chkpoint::Query(handle))).unwrap();
    assert_eq!(query.used, 4 + 2 + 3);
    peer.ok(Chkpoint::Rollback(handle));
    assert_eq!(server.bytes_of("file"), b"0123456789");
    assert_eq!(peer.refused(Chkpoint::Rollback(handle), &[]), ErrorCode::NOT_FOUND);
    peer.ok(Chkpoint::Begin(handle));
    assert!(matches!(peer.ask(change(0, b"new"), b"new"), Response::Ok(_)));
    peer.ok(Chkpoint::Commit(handle));
    assert_eq!(server.bytes_of("file"), b"new3456789");
    // A client that disconnects without a commit has changed nothing.
    peer.ok(Chkpoint::Begin(handle));
    assert!(matches!(peer.ask(change(0, b"lost"), b"lost"), Response::Ok(_)));
    drop(peer);
    wait_until("undoing the change", || server.bytes_of("file") == b"new3456789");
}

#[test]
fn a_checkpoint_refuses_more_than_it_can_undo() {
    let server = Server::start();
    let content = pattern(2 << 20);
    server.write("file", &content);
    let mut peer = server.client();
    let handle = peer.open("/file", OpenOptions::UPDATE);
    peer.ok(Chkpoint::Begin(handle));
    let cut = Chkpoint::Execute(CheckpointWrite::Truncate { handle, size: 0 });
    assert_eq!(peer.refused(cut, &[]), ErrorCode::OVER_QUOTA);
    assert!(server.bytes_of("file") == content, "nothing changed");
    peer.ok(Chkpoint::Rollback(handle));
}

#[test]
fn ranges_and_whole_files_are_cloned() {
    let server = Server::start();
    server.write("from", b"0123456789");
    let mut peer = server.client();
    let (from, to) = (peer.open("/from", OpenOptions::READ), peer.open("/to", to_make()));
    let range = |source_offset, length, target_offset| CloneRange {
        source: from,
        source_offset,
        length,
        target_offset,
    };
    peer.ok(CloneRanges { target: to, ranges: vec![range(5, 5, 0), range(0, 2, 5)] });
    assert_eq!(server.bytes_of("to"), b"5678901");
    let beyond = CloneRanges { target: to, ranges: vec![range(8, 5, 0)] };
    assert_eq!(peer.refused(beyond, &[]), ErrorCode::ARG_INVALID);
    let duplicate = Open {
        template_options: OpenTemplateOptions::DUPLICATE,
        template: from,
        ..open("/twin", to_make())
    };
    peer.ok(duplicate);
    assert_eq!(server.bytes_of("twin"), b"0123456789");
}

#[test]
fn paths_are_created_changed_and_removed() {
    let server = Server::start();
    let mut peer = server.client();
    let mkdir = |path: &str, options| Mkdir { options, mode: Mode(0o755), location: at(path) };
    peer.ok(mkdir("/a/b", MkdirOptions::MAKE_PATH));
    server.write("a/b/file", b"abc");
    peer.ok(Mv { from: at("/a/b/file"), to: at("/a/with space") });
    peer.ok(Chmod { mode: Mode(0o640), location: at("/a/with space") });
    let stat = |path: &str| Stat {
        options: Default::default(),
        wants: Default::default(),
        target: FileRef::Location(at(path)),
    };
    let line = StatLine::decode(&peer.ok(stat("/a/with space"))).unwrap();
    assert_eq!((line.size, line.extension.unwrap().mode), (3, Mode(0o640)));
    assert_eq!(peer.refused(Rmdir { location: at("/a") }, &[]), ErrorCode::IT_EXISTS);
    peer.ok(Rm { location: at("/a/with space") });
    assert_eq!(peer.refused(stat("/a/with space"), &[]), ErrorCode::NOT_FOUND);
    peer.ok(Rmdir { location: at("/a/b") });
    peer.ok(Rmdir { location: at("/a") });
}

/// Behaviour that clients rely on, as observed with XRootD's own server.
#[test]
fn requests_about_paths_behave_as_with_other_servers() {
    let server = Server::start();
    server.write("file", b"abc");
    let mut peer = server.client();
    let mkdir =
        |path: &str, mode| Mkdir { options: MkdirOptions(0), mode: Mode(mode), location: at(path) };
    let (rm, rmdir) = (|path| Rm { location: at(path) }, |path| Rmdir { location: at(path) });
    let mv = |from, to| Mv { from: at(from), to: at(to) };
    // It is not an error to make a folder that exists with the same mode, nor to remove one that does not exist.
    peer.ok(mkdir("/a", 0o750));
    peer.ok(mkdir("/a", 0o750));
    assert_eq!(peer.refused(mkdir("/a", 0o700), &[]), ErrorCode::IT_EXISTS);
    assert_eq!(peer.refused(mkdir("/file", 0o644), &[]), ErrorCode::IT_EXISTS);
    assert_eq!(peer.refused(mkdir("/no/such", 0o755), &[]), ErrorCode::NOT_FOUND);
    peer.ok(rmdir("/nothere"));
    peer.ok(rmdir("/no/such"));
    assert_eq!(peer.refused(rmdir("/file"), &[]), ErrorCode::FS_ERROR);
    // rm removes empty folders, too.
    peer.ok(rm("/a"));
    peer.ok(mkdir("/full", 0o755));
    server.write("full/file", b"def");
    for request in [Request::from(rm("/full")), rmdir("/full").into()] {
        let Response::Error(failure) = peer.ask(request, &[]) else {
            panic!("the folder was removed")
        };
        assert_eq!(failure.code, ErrorCode::IT_EXISTS);
        // xrootdpyfs recognises a full folder by this text.
        assert!(failure.message.ends_with("directory not empty"), "{}", failure.message);
    }
    assert_eq!(peer.refused(rm("/nothere"), &[]), ErrorCode::NOT_FOUND);
    // mv makes the folders above the new name.
    peer.ok(mv("/file", "/deep/down/file"));
    assert_eq!(server.bytes_of("deep/down/file"), b"abc");
    assert_eq!(peer.refused(mv("/nothere", "/new/there"), &[]), ErrorCode::NOT_FOUND);
    assert!(!server.folder.path().join("new").exists(), "the parent of the new name was made");
    assert_eq!(peer.refused(mv("/deep/down/file", "/full"), &[]), ErrorCode::IS_DIRECTORY);
    // statx answers only the kind of each name.
    let statx = Statx { locations: vec![at("/"), at("/full/file")] };
    assert_eq!(&peer.ok(statx)[..], [2, 0]);
}

#[test]
fn paths_through_files_are_refused() {
    let server = Server::start();
    server.write("file", b"abc");
    let mut peer = server.client();
    let stat = |path: &str| Stat {
        options: Default::default(),
        wants: Default::default(),
        target: FileRef::Location(at(path)),
    };
    for path in ["/file/", "/file//", "/file/below"] {
        let cut = Truncate { target: FileRef::Location(at(path)), size: 0 };
        let requests: [Request; 9] = [
            stat(path).into(),
            open(path, OpenOptions::READ).into(),
            Rm { location: at(path) }.into(),
            Rmdir { location: at(path) }.into(),
            Mv { from: at(path), to: at("/other") }.into(),
            Chmod { mode: Mode(0o600), location: at(path) }.into(),
            Dirlist { options: DirlistOptions(0), location: at(path) }.into(),
            checksum(path).into(),
            cut.into(),
        ];
        for request in requests {
            let code = request.code();
            assert_eq!(peer.refused(request, &[]), ErrorCode::FS_ERROR, "{code} {path}");
        }
    }
    let made = open("/new/", to_make());
    assert_eq!(peer.refused(made, &[]), ErrorCode::IS_DIRECTORY);
    peer.ok(stat("/"));
    std::fs::create_dir(server.folder.path().join("folder")).unwrap();
    peer.ok(stat("/folder/"));
    peer.ok(Rmdir { location: at("/folder/") });
    assert_eq!(server.bytes_of("file"), b"abc");
}

#[test]
fn long_lists_are_sent_in_parts() {
    let server = Server::start();
    for index in 0..3000 {
        server.write(&format!("a-file-with-a-name-that-is-rather-long-{index:06}"), b"");
    }
    server.write("checked", b"hello\n");
    let mut peer = server.client();
    let list = |options| Dirlist { options, location: at("/") };
    let listed = DirectoryList::decode(&peer.ok(list(DirlistOptions::STAT))).unwrap();
    assert_eq!((listed.with_stat, listed.entries.len()), (true, 3001));
    let names = DirectoryList::decode(&peer.ok(list(DirlistOptions(0)))).unwrap();
    assert_eq!(names.entries.len(), 3001);
    let listed = DirectoryList::decode(&peer.ok(list(DirlistOptions::CHECKSUM))).unwrap();
    let checked = listed.entries.iter().find(|entry| &entry.name[..] == b"checked").unwrap();
    assert_eq!(checked.checksum.as_ref().unwrap().digest, "084b021f");
    // A folder has no checksum.
    std::fs::create_dir(server.folder.path().join("folder")).unwrap();
    let listed = DirectoryList::decode(&peer.ok(list(DirlistOptions::CHECKSUM))).unwrap();
    let folder = listed.entries.iter().find(|entry| &entry.name[..] == b"folder").unwrap();
    assert_eq!(folder.checksum.as_ref().unwrap().digest, "none");
}

fn checksum(path: &str) -> Query {
    let argument = Bytes::from(format!("{path}\0"));
    Query { kind: QueryCode::CHECKSUM, handle: FileHandle::default(), argument }
}

#[test]
fn checksums_are_of_the_requested_kind() {
    let server = Server::start();
    server.write("file", b"hello\n");
    let mut peer = server.client();
    let expected = [
        ("adler32", "084b021f"),
        ("crc32c", "353dd8be"),
        // As `cksum` computes it; zcrc32 is that of zlib, whose bytes XRootD prints from the lowest on.
        ("crc32", "b3beab91"),
        ("zcrc32", "20303a36"),
        ("ZCRC32", "20303a36"),
        ("default", "084b021f"),
        ("md5", "b1946ac92492d2347c6235b4d2611184"),
    ];
    for (kind, digest) in expected {
        let body = peer.ok(checksum(&format!("/file?cks.type={kind}")));
        let answer = ChecksumAnswer::decode(&body).unwrap();
        assert_eq!(answer.digest, digest, "{kind}");
        let reported = if kind == "default" { "adler32" } else { kind };
        assert!(answer.kind.eq_ignore_ascii_case(reported), "{}", answer.kind);
    }
    server.write("empty", b"");
    let body = peer.ok(checksum("/empty?cks.type=crc32"));
    assert_eq!(ChecksumAnswer::decode(&body).unwrap().digest, "ffffffff");
    let unknown = checksum("/file?cks.type=sha0");
    assert_eq!(peer.refused(unknown, &[]), ErrorCode::UNSUPPORTED);
    assert_eq!(peer.refused(checksum("/"), &[]), ErrorCode::IS_DIRECTORY);
    // A file that changes has another checksum.
    server.write("file", b"hello, world\n");
    let body = peer.ok(checksum("/file"));
    assert_ne!(ChecksumAnswer::decode(&body).unwrap().digest, "084b021f");
}

#[test]
fn a_slow_checksum_does_not_delay_other_requests() {
    let server = Server::start();
    let file = std::fs::File::create(server.folder.path().join("large")).unwrap();
    file.set_len(40 << 20).unwrap();
    let mut peer = server.client();
    let asked = peer.send(checksum("/large?cks.type=zcrc32"), &[]);
    let first = peer.response();
    assert_eq!(first.header.stream, asked);
    assert!(matches!(first.response, Ok(Response::WaitResp(_))));
    let Ok(Response::Attn(Attention::Response { stream, response })) = peer.response().response
    else {
        panic!("no delayed answer arrived")
    };
    assert_eq!(stream, asked);
    let Response::Ok(body) = *response else { panic!("{response:?}") };
    let expected = {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&vec![0; 40 << 20]);
        format!("{:08x}", hasher.finalize().swap_bytes())
    };
    assert_eq!(ChecksumAnswer::decode(&body).unwrap().digest, expected);
    // The checksum is cached from now on.
    peer.ok(checksum("/large?cks.type=zcrc32"));
    assert_eq!(ChecksumKind::of_name(b"crc32"), Some(ChecksumKind::Crc32));
}

#[test]
fn clients_without_delayed_answers_get_none() {
    let server = Server::start();
    let file = std::fs::File::create(server.folder.path().join("large")).unwrap();
    file.set_len(40 << 20).unwrap();
    let mut peer = server.greeted();
    peer.ok(Login { capability: Capability::new(5, false), ..login() });
    let body = peer.ok(checksum("/large"));
    assert_eq!(ChecksumAnswer::decode(&body).unwrap().kind, "adler32");
}

#[test]
fn configuration_words_are_answered_in_order() {
    let server = Server::start();
    let mut peer = server.client();
    let query = |kind, argument: &'static [u8]| Query {
        kind,
        handle: FileHandle::default(),
        argument: Bytes::from_static(argument),
    };
    let body = peer.ok(query(QueryCode::CONFIG, b"readv_iov_max what readv_ior_max\0"));
    let values = ConfigAnswer::decode(&body).unwrap().values;
    assert_eq!(values, ["1024", "what", "2097136"]);
    assert_eq!(peer.refused(query(QueryCode::CONFIG, b" \0"), &[]), ErrorCode::ARG_MISSING);
    assert_eq!(peer.refused(query(QueryCode::OPAQUE, b"x"), &[]), ErrorCode::UNSUPPORTED);
    let statistics = peer.ok(query(QueryCode::STATS, b"a\0"));
    assert!(statistics.starts_with(b"<statistics "), "{statistics:?}");
}
