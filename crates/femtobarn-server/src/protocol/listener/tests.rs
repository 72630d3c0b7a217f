//! Connections of HTTP whose clients are slow: they end, and those that wait for the server do not.

use axum::routing::{get, post};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET / http`, by the numbers of HPACK's static table.
const GET: [u8; 3] = [0x82, 0x84, 0x86];
/// `GET /index.html http`.
const GET_LARGE: [u8; 3] = [0x82, 0x85, 0x86];
/// `POST / http`.
const POST: [u8; 3] = [0x83, 0x84, 0x86];
/// Times the limit that these tests wait for the server.
const LONG: u32 = 5;

const SHORT: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(3600);
const PATIENT: WaitLimits =
    WaitLimits { first_request: NEVER, bytes: NEVER, next_request: Some(NEVER) };
const HURRIED: WaitLimits = WaitLimits { first_request: NEVER, bytes: SHORT, next_request: None };

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("frames of tests are short");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The beginning of a connection of HTTP/2, with these settings.
fn greeting(settings: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, settings)].concat()
}

fn routes() -> Router {
    let slow = || async {
        tokio::time::sleep(SHORT * LONG).await;
        "late"
    };
    let body = |body: Bytes| async move { format!("{} bytes", body.len()) };
    let large = || async { vec![0; 1 << 20] };
    Router::new()
        .route("/", get(|| async { "an answer" }).post(body))
        .route("/index.html", get(large))
        .route("/slow", post(slow))
}

/// A connection that is served with these limits; completes with the outcome when it has ended.
fn begin(limits: WaitLimits) -> (DuplexStream, tokio::task::JoinHandle<io::Result<()>>) {
    let (client, server) = duplex(64 << 10);
    (client, tokio::spawn(serve_decrypted(server, routes(), limits)))
}

/// How a connection ends whose client sends these bytes, takes what comes, and keeps it open.
async fn outcome(limits: WaitLimits, sent: &[u8]) -> io::Result<()> {
    let (client, served) = begin(limits);
    let (mut taken, mut sender) = tokio::io::split(client);
    let takes =
        tokio::spawn(async move { tokio::io::copy(&mut taken, &mut tokio::io::sink()).await });
    sender.write_all(sent).await.expect("the server takes bytes");
    let served = timeout(Duration::from_secs(60), served).await;
    takes.abort();
    served.expect("the connection ends").expect("the server does not panic")
}

/// A preface without an end was once waited for until the server ended, and so was a first request over HTTP/2.
#[tokio::test]
async fn a_connection_without_a_first_request_ends() {
    let limits = WaitLimits { first_request: SHORT, ..PATIENT };
    let greeting = greeting(&[]);
    let begun = [&greeting[..], &frame(1, 0, 1, &GET)].concat();
    for sent in [&b""[..], &PREFACE[..1], &PREFACE[..23], PREFACE, &greeting, &begun, b"GET / HT"] {
        let error = outcome(limits, sent).await.expect_err("the connection is given up");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{sent:?}");
        assert_eq!(error.to_string(), "the client sends no request");
    }
}

#[tokio::test]
async fn a_request_whose_body_does_not_arrive_ends_its_connection() {
    let first = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nslow".to_vec();
    let second = [greeting(&[]), frame(1, 4, 1, &POST), frame(0, 0, 1, b"slow")].concat();
    for sent in [first, second] {
        let error = outcome(HURRIED, &sent).await.expect_err("the connection is given up");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

/// The client of HTTP/2 takes all that is sent, but opens no window for the answer, or one of a byte. Then the connection once
/// got the whole answer, and was waited for as if it had sent it.
#[tokio::test]
async fn an_answer_that_is_not_taken_ends_its_connection() {
    for (window, get) in [(0, GET), (1, GET_LARGE)] {
        let sent = [greeting(&[0, 4, 0, 0, 0, window]), frame(1, 5, 1, &get)].concat();
        let error = outcome(HURRIED, &sent).await.expect_err("the connection is given up");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let (mut client, served) = begin(PATIENT);
    let request = b"GET /index.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    client.write_all(request).await.expect("the server takes bytes");
    let mut answer = vec![];
    client.read_to_end(&mut answer).await.expect("the server answers");
    let head = String::from_utf8_lossy(&answer[..answer.len() - (1 << 20)]);
    assert!(head.contains("content-length: 1048576") && head.ends_with("\r\n\r\n"), "{head}");
    served.await.expect("the server does not panic").expect("nothing is wrong");
}

#[tokio::test]
async fn an_idle_connection_ends() {
    let limits = WaitLimits { next_request: Some(SHORT), ..PATIENT };
    let sent = [greeting(&[]), frame(1, 5, 1, &GET)].concat();
    let error = outcome(limits, &sent).await.expect_err("the connection is given up");
    assert_eq!(error.to_string(), "the client sends no request");
}

#[tokio::test]
async fn a_client_that_waits_for_the_server_is_answered() {
    let limits = WaitLimits { first_request: SHORT, bytes: SHORT, next_request: Some(SHORT) };
    let (mut client, served) = begin(limits);
    let request =
        b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    client.write_all(request).await.expect("the server takes bytes");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("the server answers");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"), "{answer}");
    served.await.expect("the server does not panic").expect("nothing is wrong");
}
