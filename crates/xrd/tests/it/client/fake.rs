//! A scripted server: it answers the login as any server does, and a script answers all other requests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use xrd::client::Url;
use xrd::flags::ServerFlags;
use xrd::response::{Answer, LoginAnswer, OpenAnswer, ProtocolAnswer, Status, StatusKind};
use xrd::{
    FileHandle, HandshakeAnswer, ProtocolVersion, ReceivedRequest, Request, RequestCode,
    RequestEvent, RequestFramer, Response, SessionId, StreamId, page,
};

/// The reaction of the server to a request.
pub(super) enum Act {
    /// Sends these responses in order, on the request's stream.
    Answer(Vec<Response>),
    /// Sends the bytes that the function makes for the request's stream.
    Raw(fn(StreamId) -> Vec<u8>),
    /// Sends pages of data: their offset, the data, and whether the first page is damaged.
    Pages(u64, Vec<u8>, bool),
    /// Answers a pgwrite with a status: the offset, and the data that follow the status.
    Written(u64, Vec<u8>),
    /// Closes the connection.
    Close,
    /// Sends nothing.
    Silence,
}

/// A script: the index of the connection, the index of the request among all, and the request.
type Script = dyn Fn(usize, usize, &Request) -> Act + Send + Sync;

pub(super) struct Fake {
    port: u16,
    /// The requests that the script answered, each with the index of its connection.
    pub requests: Arc<Mutex<Vec<(usize, Request)>>>,
    /// The number of close requests, which the script does not answer.
    pub closes: Arc<AtomicUsize>,
}

impl Fake {
    /// Starts a server. Its threads end with the test's process.
    pub(super) fn start(
        script: impl Fn(usize, usize, &Request) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::start_with("", script)
    }

    /// Starts a server that demands one of these security protocols.
    pub(super) fn start_with(
        security: &'static str,
        script: impl Fn(usize, usize, &Request) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, script): (_, Arc<Script>) = (Arc::default(), Arc::new(script));
        let closes = Arc::<AtomicUsize>::default();
        let fake = Fake { port, requests: Arc::clone(&requests), closes: closes.clone() };
        std::thread::spawn(move || {
            for (index, socket) in listener.incoming().enumerate() {
                let (requests, script) = (requests.clone(), script.clone());
                let (socket, closes) = (socket.unwrap(), closes.clone());
                let connection = Connection { socket, index, security, closes };
                // The thread ends when the client closes the connection.
                std::thread::spawn(move || drop(connection.serve(&requests, &*script)));
            }
        });
        fake
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("root://127.0.0.1:{}/{path}", self.port)).unwrap()
    }

    /// The number of requests of a kind.
    pub(super) fn count(&self, code: RequestCode) -> usize {
        self.requests.lock().unwrap().iter().filter(|(_, request)| request.code() == code).count()
    }
}

struct Connection {
    socket: TcpStream,
    index: usize,
    security: &'static str,
    closes: Arc<AtomicUsize>,
}

impl Connection {
    fn serve(
        mut self,
        requests: &Mutex<Vec<(usize, Request)>>,
        script: &Script,
    ) -> std::io::Result<()> {
        let (mut framer, mut input) = (RequestFramer::new(), Bytes::new());
        loop {
            while let Some(event) = framer.next(&mut input).map_err(std::io::Error::other)? {
                match event {
                    RequestEvent::Handshake => {
                        let answer = HandshakeAnswer {
                            version: ProtocolVersion::CURRENT,
                            data_server: true,
                        };
                        self.socket.write_all(&answer.encode())?;
                    }
                    RequestEvent::Data { .. } => {}
                    RequestEvent::Request(ReceivedRequest { header, request, .. }) => {
                        let request = request.unwrap();
                        let act = match self.greet(&request) {
                            Some(act) => act,
                            None => {
                                let index = requests.lock().unwrap().len();
                                requests.lock().unwrap().push((self.index, request.clone()));
                                script(self.index, index, &request)
                            }
                        };
                        if let Act::Close = act {
                            return Ok(());
                        }
                        self.socket.write_all(&bytes_of(act, header.stream, header.code))?;
                    }
                }
            }
            let mut buffer = vec![0; 100_000];
            match self.socket.read(&mut buffer)? {
                0 => return Ok(()),
                count => input = Bytes::copy_from_slice(&buffer[..count]),
            }
        }
    }

    fn greet(&self, request: &Request) -> Option<Act> {
        let body = match request {
            Request::Protocol(_) => {
                let flags = ServerFlags::SERVER | ServerFlags::PAGES;
                ProtocolAnswer { version: ProtocolVersion::CURRENT, flags, ..Default::default() }
                    .encode()
            }
            Request::Login(_) => {
                let session = SessionId([7; 16]);
                LoginAnswer { session, security: self.security.to_owned() }.encode()
            }
            Request::Close(_) => {
                self.closes.fetch_add(1, Ordering::SeqCst);
                Ok(Vec::new())
            }
            Request::Endsess(_) => Ok(Vec::new()),
            Request::Auth(auth) if auth.protocol == *b"unix" => Ok(Vec::new()),
            _ => return None,
        };
        Some(ok(body.unwrap()))
    }
}

fn bytes_of(act: Act, stream: StreamId, code: RequestCode) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (offset, data) = match act {
        Act::Answer(responses) => {
            responses.iter().for_each(|response| response.encode(stream, &mut bytes).unwrap());
            return bytes;
        }
        Act::Raw(make) => return make(stream),
        Act::Close | Act::Silence => return bytes,
        Act::Written(offset, data) => (offset, data),
        Act::Pages(offset, data, is_damaged) => {
            let mut wire = Vec::new();
            page::encode_pages(offset, &data, &mut wire);
            wire[10] ^= u8::from(is_damaged);
            (offset, wire)
        }
    };
    let kind = StatusKind::FINAL;
    let status = Status { request: code, kind, offset, data_bytes: data.len() as u32 };
    Response::Status(status).encode(stream, &mut bytes).unwrap();
    bytes.extend_from_slice(&data);
    bytes
}

/// An `ok` response with this body.
pub(super) fn ok(body: impl Into<Bytes>) -> Act {
    Act::Answer(vec![Response::Ok(body.into())])
}

/// The answer to an open.
pub(super) fn opened() -> Act {
    let answer = OpenAnswer { handle: FileHandle([0, 0, 0, 3]), compression: None, stat: None };
    ok(answer.encode().unwrap())
}
