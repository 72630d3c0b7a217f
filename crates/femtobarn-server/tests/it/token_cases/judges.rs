//! Asks a server by each protocol whether a client with a token may read the federation, and change it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use femtobarn_rpc::v1::{ChangeRequest, ListLocksRequest, Named, change_request};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tonic::Code;
use xrd::client::blocking::Client;
use xrd::client::{ClientError, Options, Token, Url};
use xrd::flags::DirlistOptions;
use xrd::{ErrorCode, Location};

use super::Verdict;
use crate::tokens::Guarded;

/// The clients of a server: a connection for HTTP and gRPC, and the means for connections of `root://`.
pub(super) struct Judges {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    origin: String,
    url: Url,
    options: Options,
}

/// The server's answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The token is not valid.
    Refused,
    /// The client lacks the right.
    Denied,
    /// Any other answer.
    Done,
}

impl Judges {
    pub(super) fn of(guarded: &Guarded) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&guarded.certificate).unwrap()).unwrap();
        let provider = rustls::crypto::ring::default_provider().into();
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let sender = runtime.block_on(async {
            let socket = TcpStream::connect(guarded.server.address()).await.unwrap();
            socket.set_nodelay(true).unwrap();
            let secret = TlsConnector::from(Arc::new(config));
            let secret = secret.connect("localhost".try_into().unwrap(), socket).await.unwrap();
            let (sender, connection) =
                handshake(TokioExecutor::new(), TokioIo::new(secret)).await.unwrap();
            tokio::spawn(connection);
            sender
        });
        let options = Options {
            authorities: Some(guarded.certificate.clone()),
            patience: Duration::from_secs(60),
            ..Options::default()
        };
        let url = Url::parse(&guarded.url("roots", "/")).unwrap();
        Judges { runtime, sender, origin: guarded.url("https", ""), url, options }
    }

    /// The verdict of each protocol on a token.
    pub(super) fn verdicts(&mut self, token: &str) -> [(&'static str, Verdict); 3] {
        [
            ("root", self.over_root(token)),
            ("HTTP", self.over_http(token)),
            ("gRPC", verdict(self.list_locks(token), self.drop_tag(token))),
        ]
    }

    fn over_root(&self, token: &str) -> Verdict {
        let options = Options { token: Some(Token(token.to_owned())), ..self.options.clone() };
        let client = match Client::connect(&self.url, options) {
            Ok(client) => client,
            Err(ClientError::Login { .. }) => return Verdict::Refused,
            Err(other) => panic!("{other}"),
        };
        let answer = |error: Option<ClientError>| match error {
            Some(ClientError::Refused { code: ErrorCode::AUTH_FAILED, .. }) => Answer::Refused,
            Some(ClientError::Refused { message, .. }) if message.contains("has no right") => {
                Answer::Denied
            }
            Some(ClientError::Refused { .. }) | None => Answer::Done,
            Some(other) => panic!("{other}"),
        };
        let at = |path| Location::new(path).unwrap();
        let listed = client.dirlist(&at("/lhc.fed"), DirlistOptions::default()).err();
        verdict(answer(listed), answer(client.rm(&at("/lhc.fed/none")).err()))
    }

    fn list_locks(&mut self, token: &str) -> Answer {
        let request = ListLocksRequest { federation: "lhc.fed".to_owned(), survey: None };
        self.over_grpc("ListLocks", &request, token)
    }

    fn drop_tag(&mut self, token: &str) -> Answer {
        let of =
            change_request::Of::DropTag(Named { name: "none".to_owned(), ..Default::default() });
        let request =
            ChangeRequest { federation: "lhc.fed".to_owned(), of: Some(of), ..Default::default() };
        self.over_grpc("Change", &request, token)
    }

    /// Nobody changes a federation over HTTP, whatever his rights.
    fn over_http(&mut self, token: &str) -> Verdict {
        let (status, _, body) = self.ask(Method::GET, "lhc.fed/", token, Bytes::new());
        match status {
            StatusCode::UNAUTHORIZED => Verdict::Refused,
            StatusCode::FORBIDDEN => Verdict::Valid { reads: false, changes: false },
            StatusCode::OK => Verdict::Valid { reads: true, changes: false },
            _ => panic!("{status}: {body:?}"),
        }
    }

    fn over_grpc(&mut self, call: &str, request: &impl Message, token: &str) -> Answer {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(request.encoded_len() as u32);
        request.encode(&mut body).unwrap();
        let path = format!("femtobarn.catalogue.v1.Catalogue/{call}");
        let (status, headers, _) = self.ask(Method::POST, &path, token, body.freeze());
        assert_eq!(status, StatusCode::OK, "{headers:?}");
        match Code::from_bytes(headers["grpc-status"].as_bytes()) {
            Code::Unauthenticated => Answer::Refused,
            Code::PermissionDenied => Answer::Denied,
            _ => Answer::Done,
        }
    }

    /// The status, the headers with the trailers, and the bytes of the answer to a request.
    fn ask(
        &mut self,
        method: Method,
        path: &str,
        token: &str,
        body: Bytes,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.origin))
            .header("authorization", [b"Bearer ", token.as_bytes()].concat())
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body))
            .unwrap();
        let sender = &mut self.sender;
        self.runtime.block_on(async {
            sender.ready().await.unwrap();
            let answer = sender.send_request(request).await.unwrap();
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap();
            let mut headers = head.headers;
            headers.extend(body.trailers().cloned().unwrap_or_default());
            (head.status, headers, body.to_bytes())
        })
    }
}

/// The verdict on a token, from the answers to a read and a change.
fn verdict(read: Answer, change: Answer) -> Verdict {
    assert_eq!(read == Answer::Refused, change == Answer::Refused, "{read:?}, {change:?}");
    match read {
        Answer::Refused => Verdict::Refused,
        _ => Verdict::Valid { reads: read == Answer::Done, changes: change == Answer::Done },
    }
}
