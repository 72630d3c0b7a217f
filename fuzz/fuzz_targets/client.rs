//! Calls of a client to a server that sends arbitrary answers: well-formed ones of any kind, on the stream of the
//! request or on another, arbitrary bytes, or none.
//!
//! Every call ends. A call that must not be repeated is not sent again after a server that had kept to the protocol
//! closed the connection without an answer.

#![no_main]

use std::cell::{Cell, RefCell};
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;
use xrd::client::{Client, File, Options, ReadPiece, Url};
use xrd::flags::*;
use xrd::page::encode_pages;
use xrd::request::AttributeAction;
use xrd::response::{
    Answer, Attention, Failure, LoginAnswer, OpenAnswer, ProtocolAnswer, Redirect, StatLine,
    Status, StatusKind, Wait,
};
use xrd::{
    ErrorCode, FileHandle, HandshakeAnswer, Location, ProtocolVersion, QueryCode, ReceivedRequest,
    Request, RequestCode, RequestEvent, RequestFramer, Response, SessionId, StreamId,
};

/// A call takes no longer, though it waits, connects again and is redirected.
const CALL_ENDS_WITHIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_millis(120);
/// A client that has sent nothing for this long waits for an answer that does not come.
const CLIENT_WAITS_AFTER: Duration = Duration::from_millis(3);
const CALLS_MAX: usize = 8;
const SIZES: [usize; 6] = [0, 1, 100, 4096, 5000, 70_000];
const OFFSETS: [u64; 5] = [0, 1, 4096, 1 << 31, i64::MAX as u64];

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_all().build().expect("the system allows a runtime"),
    );
}

fuzz_target!(|bytes: &[u8]| {
    RUNTIME.with_borrow(|runtime| LocalSet::new().block_on(runtime, run(Input(bytes.to_vec()))));
});

async fn run(mut input: Input) {
    let calls: Vec<[u8; 3]> = (0..1 + usize::from(input.any()) % CALLS_MAX)
        .map(|_| [input.any(), input.any(), input.any()])
        .collect();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let port = listener.local_addr().expect("a listener has an address").port();
    let server = Rc::new(Server { input: RefCell::new(input), port, lost: Cell::new(None) });
    let accepting = server.clone();
    tokio::task::spawn_local(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let server = accepting.clone();
            tokio::task::spawn_local(async move { drop(server.serve(socket).await) });
        }
    });
    let options = Options {
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        patience: PATIENCE,
        reconnect_timeout: PATIENCE,
        find_token: || None,
        certificate: None,
        user: Some("fuzzer".to_owned()),
        ..Options::default()
    };
    let url = Url::parse(&format!("root://127.0.0.1:{port}//a")).expect("the address is valid");
    let connecting = timeout(CALL_ENDS_WITHIN, Client::connect(&url, options)).await;
    let Ok(client) = connecting.expect("a connection is made or refused in time") else { return };
    let mut file = None;
    for call in calls {
        server.lost.set(None);
        let calling = timeout(CALL_ENDS_WITHIN, make_call(&client, &mut file, call)).await;
        calling.expect("a call ends in time");
    }
}

/// Makes one call, on the open file if there is one.
async fn make_call(client: &Client, file: &mut Option<File>, [kind, first, second]: [u8; 3]) {
    let at = |name| Location::new(name).expect("the name is a path");
    let size = SIZES[usize::from(first) % SIZES.len()];
    let offset = OFFSETS[usize::from(second) % OFFSETS.len()];
    let mut buffer = vec![0; size];
    if let Some(opened) = file {
        match kind % 12 {
            0 => {
                drop(opened.read_at(offset, &mut buffer).await.map(|count| assert!(count <= size)))
            }
            1 => drop(opened.read_checked(offset, &mut buffer).await),
            2 => {
                let (one, two) = buffer.split_at_mut(size / 2);
                let pieces = [(offset, one), (offset / 2, two)];
                let mut pieces = pieces.map(|(offset, buffer)| ReadPiece { offset, buffer });
                drop(opened.read_many(&mut pieces).await);
            }
            3 => drop(opened.write_at(offset, &buffer).await),
            4 => drop(opened.write_later(offset, &buffer).await),
            5 => drop(opened.write_checked(offset, &buffer).await),
            6 => drop(opened.settle().await),
            7 => drop(opened.sync().await),
            8 => drop(opened.truncate(offset).await),
            9 => drop(opened.stat().await),
            10 => drop(opened.query(Bytes::from(buffer)).await),
            _ => drop(file.take().expect("a file is open").close().await),
        }
        return;
    }
    match kind % 14 {
        0 => drop(client.stat(&at("/a")).await),
        1 => drop(client.dirlist(&at("/"), DirlistOptions(first)).await),
        2 => drop(client.mkdir(&at("/d"), MkdirOptions(first), Mode(0o755)).await),
        3 => drop(client.rm(&at("/a")).await),
        4 => drop(client.mv(&at("/a"), &at("/b")).await),
        5 => drop(client.truncate(&at("/a"), offset).await),
        6 => drop(client.locate(&at("/a"), LocateOptions(u16::from(first))).await),
        7 => drop(client.query(QueryCode(u16::from(first)), vec![second]).await),
        8 => drop(client.checksum(&at("/a")).await),
        9 => drop(client.attribute_list(&at("/a"), first % 2 == 0).await),
        10 => {
            let action = AttributeAction::Get(vec!["U.a".into()]);
            drop(client.attributes(&at("/a"), action, FattrOptions::default()).await);
        }
        11 => drop(client.space(&at("/")).await),
        _ => *file = client.open(&at("/a"), OpenOptions(u16::from(first))).await.ok(),
    }
}

/// The rest of the fuzzer's bytes.
struct Input(Vec<u8>);

impl Input {
    fn byte(&mut self) -> Option<u8> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    fn any(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    /// At most 255 bytes.
    fn bytes(&mut self) -> Vec<u8> {
        let count = usize::from(self.any()).min(self.0.len());
        self.0.drain(..count).collect()
    }
}

/// All connections of the server; they share the input.
struct Server {
    input: RefCell<Input>,
    port: u16,
    /// The request that the client must not send again in this call.
    lost: Cell<Option<RequestCode>>,
}

impl Server {
    async fn serve(&self, mut socket: TcpStream) -> io::Result<()> {
        let (mut framer, mut input, mut buffer) = (RequestFramer::new(), Bytes::new(), [0; 8192]);
        let mut keeps_to_protocol = true;
        loop {
            while let Ok(Some(event)) = framer.next(&mut input) {
                let answer = match event {
                    RequestEvent::Handshake => {
                        let version = ProtocolVersion::CURRENT;
                        HandshakeAnswer { version, data_server: true }.encode().to_vec()
                    }
                    RequestEvent::Data { .. } => Vec::new(),
                    RequestEvent::Request(received) => {
                        let Some(answer) = self.answer(&received, &mut keeps_to_protocol) else {
                            return Ok(());
                        };
                        answer
                    }
                };
                socket.write_all(&answer).await?;
            }
            // When the input has ended, a client that waits for an answer must not wait for its patience.
            match timeout(CLIENT_WAITS_AFTER, socket.read(&mut buffer)).await {
                Ok(Ok(count)) if count > 0 => input = Bytes::copy_from_slice(&buffer[..count]),
                _ => return Ok(()),
            }
        }
    }

    /// The bytes that answer a request; none if the connection is closed instead.
    fn answer(&self, received: &ReceivedRequest, keeps_to_protocol: &mut bool) -> Option<Vec<u8>> {
        let ReceivedRequest { header, request, .. } = received;
        let code = header.code;
        assert_ne!(
            self.lost.get(),
            Some(code),
            "a request that may have been executed is repeated"
        );
        let mut input = self.input.borrow_mut();
        let (mut bytes, kind) = (Vec::new(), input.any());
        let stream = match kind & 0x80 {
            0 => header.stream,
            _ => StreamId([header.stream.0[0], header.stream.0[1].wrapping_add(1)]),
        };
        let response = match kind & 0x0f {
            // Also when the input has ended.
            0..=3 => usual_answer(code, request.as_ref().ok(), &mut bytes, stream),
            4 => {
                if *keeps_to_protocol && is_sent_once(request.as_ref().ok()) {
                    self.lost.set(Some(code));
                }
                return None;
            }
            5 => {
                *keeps_to_protocol = false;
                return Some(input.bytes());
            }
            other => self.response(other, code, &mut input),
        };
        *keeps_to_protocol &= kind & 0x8c == 0;
        if let Some(response) = response {
            // A response that the protocol cannot express is left out.
            drop(response.encode(stream, &mut bytes));
            if let Response::Status(status) = response {
                bytes.extend(std::iter::repeat_n(kind, status.data_bytes.min(9000) as usize));
            }
        }
        Some(bytes)
    }

    fn response(&self, kind: u8, request: RequestCode, input: &mut Input) -> Option<Response> {
        Some(match kind {
            6 => Response::Ok(input.bytes().into()),
            7 => Response::OkSoFar(input.bytes().into()),
            8 => Response::AuthMore(input.bytes().into()),
            9 => {
                let code = ErrorCode(3000 + u32::from(input.any()) % 40);
                Response::Error(Failure { code, message: "no".to_owned() })
            }
            10 => {
                let opaque =
                    input.bytes().iter().map(|byte| char::from(byte % 96 + 32)).collect::<String>();
                let host = format!("127.0.0.1?{opaque}");
                Response::Redirect(Redirect::Host { port: self.port, host })
            }
            11 => {
                Response::Wait(Wait { seconds: u32::from(input.any() % 2), message: String::new() })
            }
            12 => Response::WaitResp(u32::from(input.any())),
            13 => {
                let stream = StreamId([input.any(), input.any()]);
                let response = Box::new(Response::Ok(input.bytes().into()));
                Response::Attn(Attention::Response { stream, response })
            }
            14 => {
                let kind = StatusKind(input.any() % 3);
                let data_bytes = u32::from(input.any()) << (input.any() % 20);
                let offset = OFFSETS[usize::from(input.any()) % OFFSETS.len()];
                Response::Status(Status { request, kind, offset, data_bytes })
            }
            _ => return None,
        })
    }
}

/// Whether the client's call of this request must not be repeated.
fn is_sent_once(request: Option<&Request>) -> bool {
    match request {
        Some(Request::Mkdir(mkdir)) => !mkdir.options.contains(MkdirOptions::MAKE_PATH),
        Some(Request::Rm(_) | Request::Mv(_)) => true,
        _ => false,
    }
}

/// The answer of a server whose files have zeros, and all the bytes that are asked for.
fn usual_answer(
    code: RequestCode,
    request: Option<&Request>,
    bytes: &mut Vec<u8>,
    stream: StreamId,
) -> Option<Response> {
    let body = match request {
        Some(Request::Protocol(_)) => {
            let flags = ServerFlags::SERVER | ServerFlags::PAGES;
            let version = ProtocolVersion::CURRENT;
            ProtocolAnswer { version, flags, ..Default::default() }.encode()
        }
        Some(Request::Login(_)) => {
            LoginAnswer { session: SessionId([7; 16]), security: String::new() }.encode()
        }
        Some(Request::Open(_)) => {
            let handle = FileHandle([0, 0, 0, 3]);
            OpenAnswer { handle, compression: None, stat: None }.encode()
        }
        Some(Request::Stat(_)) => StatLine::default().encode(),
        Some(Request::Read(read)) => Ok(vec![0; (read.segment.length as usize).min(100_000)]),
        Some(Request::PgRead(read)) => {
            let mut wire = Vec::new();
            encode_pages(
                read.segment.offset,
                &vec![0; (read.segment.length as usize).min(100_000)],
                &mut wire,
            );
            let (kind, offset) = (StatusKind::FINAL, read.segment.offset);
            let status = Status { request: code, kind, offset, data_bytes: wire.len() as u32 };
            Response::Status(status).encode(stream, bytes).ok()?;
            bytes.extend(wire);
            return None;
        }
        _ => Ok(Vec::new()),
    };
    Some(Response::Ok(body.ok()?.into()))
}
