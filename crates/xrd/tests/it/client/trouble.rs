//! Waits, redirects, delayed answers, lost connections, damaged data, and malicious servers.

use std::time::Duration;

use xrd::client::blocking::{Client, File};
use xrd::client::{ClientError, Options, ReadPiece};
use xrd::flags::{OpenOptions, PageFlags};
use xrd::request::{FileRef, Request};
use xrd::response::{Attention, Corrections, Redirect, ResponseHeader, Wait};
use xrd::{ErrorCode, Failure, FileHandle, Location, RequestCode, Response, StatusCode, StreamId};

use super::fake::{Act, Fake, ok, opened};

fn at(path: &str) -> Location {
    Location::new(path.to_owned()).unwrap()
}

fn client(fake: &Fake) -> Client {
    Client::connect(&fake.url("/"), Options::default()).unwrap()
}

fn open(fake: &Fake, options: OpenOptions) -> File {
    client(fake).open(&at("/file"), options).unwrap()
}

fn redirect(host: &str, port: u16) -> Act {
    Act::Answer(vec![Response::Redirect(Redirect::Host { port, host: host.to_owned() })])
}

fn refuse(code: ErrorCode) -> Act {
    Act::Answer(vec![Response::Error(Failure::new(code, "the reason"))])
}

fn path_of(request: &Request) -> Vec<u8> {
    match request {
        Request::Stat(stat) => match &stat.target {
            FileRef::Location(location) => location.as_bytes().to_vec(),
            FileRef::Handle(_) => Vec::new(),
        },
        Request::Open(open) => open.location.as_bytes().to_vec(),
        _ => Vec::new(),
    }
}

#[test]
fn a_request_is_repeated_after_a_wait() {
    let fake = Fake::start(|_, index, _| match index {
        0 => Act::Answer(vec![Response::Wait(Wait { seconds: 1, message: "tape".into() })]),
        _ => ok("1 20 51 3\0"),
    });
    assert_eq!(client(&fake).stat(&at("/file")).unwrap().size, 20);
    assert_eq!(fake.count(RequestCode::STAT), 2);
}

#[test]
fn a_wait_beyond_the_patience_is_an_error() {
    let wait = || Act::Answer(vec![Response::Wait(Wait { seconds: 100, message: String::new() })]);
    let fake = Fake::start(move |_, _, _| wait());
    let options = Options { patience: Duration::from_secs(50), ..Options::default() };
    let error = Client::connect(&fake.url("/"), options).unwrap().stat(&at("/file")).unwrap_err();
    assert!(matches!(error, ClientError::MustWait { .. }), "{error}");
}

#[test]
fn redirects_are_followed_with_their_opaque_values() {
    let data = Fake::start(|_, _, request| match request {
        Request::Open(_) => opened(),
        _ => ok("bytes"),
    });
    let port = data.port();
    let manager = Fake::start(move |_, _, _| redirect("127.0.0.1?&cache=1?who=x", port));
    let file = client(&manager).open(&at("/file?a=b"), OpenOptions::READ).unwrap();
    let mut found = [0; 5];
    assert_eq!(file.read_at(0, &mut found).unwrap(), 5);
    assert_eq!(&found, b"bytes");
    assert_eq!(path_of(&data.requests.lock().unwrap()[0].1), b"/file?a=b&cache=1");
    assert_eq!(manager.count(RequestCode::READ), 0);
}

#[test]
fn a_manager_gets_the_names_of_servers_that_failed() {
    let data = Fake::start(|_, _, _| refuse(ErrorCode::NOT_FOUND));
    let port = data.port();
    let manager = Fake::start(move |_, index, _| match index {
        0 => redirect("127.0.0.1", port),
        _ => ok("1 7 51 3\0"),
    });
    assert_eq!(client(&manager).stat(&at("/file")).unwrap().size, 7);
    assert_eq!(path_of(&manager.requests.lock().unwrap()[1].1), b"/file?tried=127.0.0.1");
}

#[test]
fn redirects_in_a_circle_end_with_an_error() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let receiver = std::sync::Mutex::new(receiver);
    let port = std::sync::OnceLock::new();
    let fake = Fake::start(move |_, _, _| {
        redirect("127.0.0.1", *port.get_or_init(|| receiver.lock().unwrap().recv().unwrap()))
    });
    sender.send(fake.port()).unwrap();
    assert!(client(&fake).stat(&at("/file")).is_err());
    assert_eq!(fake.count(RequestCode::STAT), 17);
}

fn delayed(stream: StreamId, body: &'static str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Response::WaitResp(600).encode(stream, &mut bytes).unwrap();
    let response = Box::new(Response::Ok(body.into()));
    let attention = Response::Attn(Attention::Response { stream, response });
    attention.encode(StreamId::default(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_delayed_answer_reaches_its_request() {
    let fake = Fake::start(|_, _, request| match request {
        Request::Open(_) => opened(),
        Request::Read(_) => Act::Raw(|stream| delayed(stream, "later")),
        _ => Act::Raw(|stream| delayed(stream, "1 9 51 3\0")),
    });
    let client = client(&fake);
    assert_eq!(client.stat(&at("/file")).unwrap().size, 9);
    let mut found = [0; 10];
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    assert_eq!(file.read_at(0, &mut found).unwrap(), 5);
    assert_eq!(&found[..5], b"later");
}

#[test]
fn answers_in_parts_are_joined() {
    let part = |text: &'static str| Response::OkSoFar(text.into());
    let fake = Fake::start(move |_, _, request| match request {
        Request::Open(_) => opened(),
        _ => Act::Answer(vec![part("one "), part(""), part("two "), Response::Ok("three".into())]),
    });
    let mut found = [0; 13];
    assert_eq!(open(&fake, OpenOptions::READ).read_at(0, &mut found).unwrap(), 13);
    assert_eq!(&found, b"one two three");
}

#[test]
fn a_read_is_repeated_after_a_lost_connection() {
    let fake = Fake::start(|connection, _, request| match request {
        Request::Open(_) => opened(),
        _ if connection == 0 => Act::Close,
        _ => ok("bytes"),
    });
    let mut found = [0; 5];
    assert_eq!(open(&fake, OpenOptions::READ).read_at(0, &mut found).unwrap(), 5);
    assert_eq!((fake.count(RequestCode::OPEN), fake.count(RequestCode::READ)), (2, 2));
}

#[test]
fn a_read_fails_if_every_connection_is_lost() {
    let fake = Fake::start(|_, _, request| match request {
        Request::Open(_) => opened(),
        _ => Act::Close,
    });
    let options = Options { patience: Duration::from_secs(1), ..Options::default() };
    let client = Client::connect(&fake.url("/"), options).unwrap();
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    let error = file.read_at(0, &mut [0; 5]).unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert!((2..20).contains(&fake.count(RequestCode::READ)));
}

#[test]
fn a_file_is_closed_once() {
    let fake = Fake::start(|_, index, request| match (request, index) {
        (Request::Open(_), _) => opened(),
        (Request::Read(_), 1) => refuse(ErrorCode::FILE_NOT_OPEN),
        _ => ok("bytes"),
    });
    let client = client(&fake);
    let closes = || fake.closes.load(std::sync::atomic::Ordering::SeqCst);
    let file = client.open(&at("/file"), OpenOptions::READ).unwrap();
    // The server has lost the file, and its handle may belong to another file.
    assert_eq!(file.read_at(0, &mut [0; 5]).unwrap(), 5);
    client.ping().unwrap();
    assert_eq!((fake.count(RequestCode::OPEN), closes()), (2, 0));
    file.close().unwrap();
    client.ping().unwrap();
    assert_eq!(closes(), 1);
    drop(client.open(&at("/file"), OpenOptions::READ).unwrap());
    client.ping().unwrap();
    assert_eq!(closes(), 2);
}

#[test]
fn a_lost_write_is_never_repeated() {
    let fake = Fake::start(|_, _, request| match request {
        Request::Open(_) => opened(),
        _ => Act::Close,
    });
    let file = open(&fake, OpenOptions::UPDATE);
    let error = file.write_at(0, b"abc").unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert!(file.sync().is_err() && file.read_at(0, &mut [0]).is_err());
    assert_eq!((fake.count(RequestCode::OPEN), fake.count(RequestCode::WRITE)), (1, 1));
    assert_eq!(fake.count(RequestCode::SYNC), 0);
}

#[test]
fn calls_after_a_failed_write_report_its_error() {
    let fake = Fake::start(|_, _, request| match request {
        Request::Open(_) => opened(),
        Request::Write(write) if write.offset == 3 => refuse(ErrorCode::NO_SPACE),
        _ => ok(""),
    });
    let file = open(&fake, OpenOptions::UPDATE);
    for offset in [0, 3] {
        file.write_later(offset, b"abc").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(file.sync().unwrap_err().code(), Some(ErrorCode::NO_SPACE));
        assert_eq!(file.write_later(6, b"abc").unwrap_err().code(), Some(ErrorCode::NO_SPACE));
    }
    assert!(file.close().is_err());
    assert_eq!((fake.count(RequestCode::WRITE), fake.count(RequestCode::SYNC)), (2, 0));
}

#[test]
fn a_removal_is_never_repeated() {
    let fake = Fake::start(|_, _, _| Act::Close);
    let error = client(&fake).rm(&at("/file")).unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert_eq!(fake.count(RequestCode::RM), 1);
}

#[test]
fn damaged_pages_are_read_once_more() {
    let data = || (0..10_000).map(|byte| byte as u8).collect::<Vec<_>>();
    for damaged_twice in [false, true] {
        let fake = Fake::start(move |_, _, request| match request {
            Request::Open(_) => opened(),
            Request::PgRead(read) => {
                let is_retry = read.flags == Some(PageFlags::RETRY);
                let start = read.segment.offset as usize;
                let end = data().len().min(start + read.segment.length as usize);
                let damaged = !is_retry || damaged_twice;
                Act::Pages(start as u64, data()[start..end].to_vec(), damaged)
            }
            _ => refuse(ErrorCode::UNSUPPORTED),
        });
        let file = open(&fake, OpenOptions::READ);
        let mut found = vec![0; 20_000];
        let read = file.read_checked(100, &mut found);
        if damaged_twice {
            assert!(matches!(read.unwrap_err(), ClientError::Damaged { offset: 100, .. }))
        } else {
            assert_eq!(read.unwrap(), 9900);
            assert!(found[..9900] == data()[100..]);
        }
    }
}

#[test]
fn pages_that_the_server_reports_damaged_are_sent_once_more() {
    let fake = Fake::start(move |_, _, request| match request {
        Request::Open(_) => opened(),
        Request::PgWrite(write) if write.flags == PageFlags::RETRY => {
            assert_eq!((write.offset, write.length), (8192, 4100));
            Act::Written(write.offset, Vec::new())
        }
        Request::PgWrite(write) => {
            let bad = Corrections { first_bytes: 4096, last_bytes: 4096, offsets: vec![8192] };
            Act::Written(write.offset, bad.encode().unwrap())
        }
        _ => refuse(ErrorCode::UNSUPPORTED),
    });
    open(&fake, OpenOptions::UPDATE).write_checked(10, &[1; 20_000]).unwrap();
    assert_eq!(fake.count(RequestCode::PG_WRITE), 2);
}

/// Responses that are not an answer to a read of 100 bytes: too long, malformed, or of an unknown kind.
#[test]
fn invalid_answers_to_a_read_are_errors() {
    fn bytes(stream: StreamId, status: StatusCode, length: u32, body: &[u8]) -> Vec<u8> {
        [&ResponseHeader { stream, status, length }.encode()[..], body].concat()
    }
    let tricks: [fn(StreamId) -> Vec<u8>; 9] = [
        |stream| bytes(stream, StatusCode::OK, 101, &[0; 101]),
        |stream| bytes(stream, StatusCode::OK_SO_FAR, i32::MAX as u32, &[0; 100_000]),
        |stream| bytes(stream, StatusCode::OK, u32::MAX, &[0; 100]),
        |stream| bytes(stream, StatusCode(4999), 0, &[]),
        |stream| bytes(stream, StatusCode::AUTH_MORE, 0, &[]),
        |stream| bytes(stream, StatusCode::STATUS, 24, &[0; 24]),
        |stream| bytes(stream, StatusCode::STATUS, 3, &[0; 3]),
        |stream| bytes(stream, StatusCode::REDIRECT, 4, &[0; 4]),
        |stream| bytes(stream, StatusCode::ERROR, 2, &[0; 2]),
    ];
    for trick in tricks {
        let fake = Fake::start(move |_, _, request| match request {
            Request::Open(_) => opened(),
            _ => Act::Raw(trick),
        });
        let error = open(&fake, OpenOptions::READ).read_at(0, &mut [0; 100]).unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    }
}

#[test]
fn pieces_that_were_not_requested_are_errors() {
    for (offset, length) in [(1u64, 4u32), (0, 5), (0, u32::MAX)] {
        let fake = Fake::start(move |_, _, request| match request {
            Request::Open(_) => opened(),
            _ => {
                let head =
                    [&FileHandle([0; 4]).0[..], &length.to_be_bytes(), &offset.to_be_bytes()];
                ok([&head.concat()[..], b"abcd"].concat())
            }
        });
        let (mut one, mut two) = ([0; 4], [0; 4]);
        let mut pieces = [
            ReadPiece { offset: 0, buffer: &mut one },
            ReadPiece { offset: 100, buffer: &mut two },
        ];
        assert!(open(&fake, OpenOptions::READ).read_many(&mut pieces).is_err());
    }
}

#[test]
fn a_silent_server_is_an_error_after_the_timeout() {
    let fake = Fake::start(|_, _, _| Act::Silence);
    let options = Options { request_timeout: Duration::from_secs(1), ..Options::default() };
    let client = Client::connect(&fake.url("/"), options).unwrap();
    let error = client.stat(&at("/file")).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("/file"), "{error}");
}

#[test]
fn answers_on_unknown_streams_and_messages_are_ignored() {
    let fake = Fake::start(|_, _, _| {
        Act::Raw(|stream| {
            let mut bytes = Vec::new();
            Response::Ok("who?".into()).encode(StreamId([9, 9]), &mut bytes).unwrap();
            let code = xrd::codes::AttentionCode::MESSAGE;
            let message = Attention::Other { code, parameters: "good day".into() };
            Response::Attn(message).encode(StreamId::default(), &mut bytes).unwrap();
            Response::Ok("1 5 51 3\0".into()).encode(stream, &mut bytes).unwrap();
            bytes
        })
    });
    assert_eq!(client(&fake).stat(&at("/file")).unwrap().size, 5);
}

#[test]
fn tokens_are_not_sent_without_tls() {
    let fake = Fake::start_with("&P=ztn,0:4096:", |_, _, _| ok(""));
    let token = Some(xrd::client::Token("secret".into()));
    let options = Options { token, ..Options::default() };
    let error = Client::connect(&fake.url("/"), options).unwrap_err();
    assert!(matches!(error, ClientError::Login { .. }), "{error}");
    assert!(error.to_string().contains("TLS"), "{error}");
    let fake = Fake::start_with("&P=ztn,0:4096:&P=unix", |_, _, _| ok(""));
    client(&fake).ping().unwrap();
}

#[test]
fn a_server_without_tls_is_refused_if_the_url_demands_tls() {
    let fake = Fake::start(|_, _, _| ok(""));
    let mut url = fake.url("/");
    url.wants_tls = true;
    let error = Client::connect(&url, Options::default()).unwrap_err();
    assert!(matches!(error, ClientError::Login { .. }), "{error}");
}

/// A server that answers nothing after a ping until it is released, and its client.
fn stalling() -> (Fake, xrd::client::Url, std::sync::mpsc::Sender<()>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let receiver = std::sync::Mutex::new(receiver);
    let fake = Fake::start(move |connection, _, request| match request {
        Request::Open(_) => opened(),
        Request::Ping(_) if connection == 0 => {
            // It is also released when the sender is dropped.
            let _ = receiver.lock().unwrap().recv();
            ok("")
        }
        Request::Stat(_) => ok("1 20 51 3\0"),
        _ => ok(""),
    });
    let url = fake.url("/");
    (fake, url, sender)
}

/// More than sockets hold.
const LARGE: usize = 64 << 20;
/// A test that waits for longer would wait for ever.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_request_that_is_given_up_while_it_is_sent_ends_its_connection() {
    let (fake, url, go_on) = stalling();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = xrd::client::Client::connect(&url, Options::default()).await.unwrap();
        let file = client.open(&at("/file"), OpenOptions::UPDATE).await.unwrap();
        let soon = Duration::from_millis(50);
        tokio::time::timeout(soon, client.ping()).await.unwrap_err();
        tokio::time::timeout(soon, file.write_at(0, &vec![7; LARGE])).await.unwrap_err();
        assert!(!client.is_connected());
        drop(go_on);
        // Its bytes would be taken for the rest of the write.
        let stat = tokio::time::timeout(LONG, client.stat(&at("/file"))).await;
        assert_eq!(stat.unwrap().unwrap().size, 20);
        assert!(client.is_connected());
    });
    let requests = fake.requests.lock().unwrap();
    let stats = requests.iter().filter(|(_, request)| request.code() == RequestCode::STAT);
    assert_eq!(stats.map(|(connection, _)| *connection).collect::<Vec<_>>(), [1]);
}

#[test]
fn requests_that_are_given_up_before_they_are_sent_leave_nothing() {
    let (fake, url, go_on) = stalling();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = xrd::client::Client::connect(&url, Options::default()).await.unwrap();
        let file = client.open(&at("/file"), OpenOptions::UPDATE).await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), client.ping()).await.unwrap_err();
        let data = vec![7; LARGE];
        let mut writing = Box::pin(file.write_at(0, &data));
        tokio::time::timeout(Duration::from_millis(50), &mut writing).await.unwrap_err();
        // More than may be in flight.
        for _ in 0..5000 {
            tokio::time::timeout(Duration::ZERO, client.stat(&at("/file"))).await.unwrap_err();
        }
        drop(go_on);
        tokio::time::timeout(LONG, writing).await.unwrap().unwrap();
        let stat = tokio::time::timeout(LONG, client.stat(&at("/file"))).await;
        assert_eq!(stat.unwrap().unwrap().size, 20);
    });
    assert_eq!(fake.count(RequestCode::STAT), 1, "over the same connection");
}
