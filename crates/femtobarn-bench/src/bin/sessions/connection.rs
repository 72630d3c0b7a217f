//! One session with a server: sends a request and waits for the whole answer.

use bytes::{Bytes, BytesMut};
use femtobarn_bench::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xrd::codes::Expect;
use xrd::flags::ProtocolOptions;
use xrd::request::{Capability, Login, Protocol, Request};
use xrd::{HANDSHAKE, ProtocolVersion, Response, ResponseEvent, ResponseFramer, StreamId};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
const STREAM: StreamId = StreamId([0, 1]);

/// A session.
pub(crate) struct Connection {
    stream: TcpStream,
    framer: ResponseFramer,
    input: BytesMut,
    read: Bytes,
    sent: Vec<u8>,
}

/// A whole answer.
pub(crate) struct Answered {
    /// The body of the last response, unless it is data.
    pub body: Bytes,
    /// Bytes of data.
    pub bytes: u64,
}

impl Connection {
    /// Connects and logs in without credentials.
    pub(crate) async fn open(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (framer, input) = (ResponseFramer::new(), BytesMut::new());
        let mut connection = Connection { stream, framer, input, read: Bytes::new(), sent: vec![] };
        connection.sent.extend_from_slice(&HANDSHAKE);
        let protocol = Protocol {
            version: ProtocolVersion::CURRENT,
            options: ProtocolOptions::default(),
            expect: Expect(0),
        };
        Request::from(protocol).encode(STREAM, &mut connection.sent)?;
        connection.send().await?;
        connection.answer().await?;
        connection.answer().await?;
        let login = Login {
            process: std::process::id() as i32,
            user: *b"bench\0\0\0",
            ability_more: Default::default(),
            ability: Default::default(),
            capability: Capability::new(5, true),
            opaque: Bytes::new(),
        };
        connection.ask(login.into()).await?;
        Ok(connection)
    }

    /// Asks, and waits for the whole answer.
    pub(crate) async fn ask(&mut self, request: Request) -> Outcome<Answered> {
        request.encode(STREAM, &mut self.sent)?;
        self.send().await?;
        self.answer().await
    }

    async fn send(&mut self) -> Outcome {
        self.stream.write_all(&self.sent).await?;
        self.sent.clear();
        Ok(())
    }

    /// Asks, and waits for a redirect to another server.
    pub(crate) async fn be_redirected(&mut self, request: Request) -> Outcome {
        request.encode(STREAM, &mut self.sent)?;
        self.send().await?;
        match self.response().await? {
            (_, Response::Redirect(_)) => Ok(()),
            (_, other) => Err(format!("the server answered {other:?}").into()),
        }
    }

    async fn answer(&mut self) -> Outcome<Answered> {
        let mut bytes = 0;
        loop {
            let (data, response) = self.response().await?;
            bytes += data;
            match response {
                Response::Ok(body) => {
                    return Ok(Answered { bytes: bytes + body.len() as u64, body });
                }
                Response::OkSoFar(body) => bytes += body.len() as u64,
                Response::Status(status) if status.kind == xrd::response::StatusKind::FINAL => {
                    return Ok(Answered { body: Bytes::new(), bytes });
                }
                Response::Status(_) | Response::Attn(_) => {}
                other => return Err(format!("the server answered {other:?}").into()),
            }
        }
    }

    /// The next response, and the bytes of data before it.
    async fn response(&mut self) -> Outcome<(u64, Response)> {
        loop {
            match self.framer.next(&mut self.read)? {
                Some(ResponseEvent::Response(received)) => {
                    return Ok((received.data.len() as u64, received.response?));
                }
                Some(_) => {}
                None => self.more().await?,
            }
        }
    }

    async fn more(&mut self) -> Outcome {
        self.input.reserve(READ_BYTES);
        if self.stream.read_buf(&mut self.input).await? == 0 {
            return Err("the server closed the connection".into());
        }
        self.read = self.input.split().freeze();
        Ok(())
    }
}
