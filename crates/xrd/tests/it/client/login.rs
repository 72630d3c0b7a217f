//! Servers that end a login, or never end it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use xrd::client::{Client, ClientError, Options, Url, blocking};
use xrd::codes::AttentionCode;
use xrd::flags::ServerFlags;
use xrd::response::{Answer, Attention, ProtocolAnswer};
use xrd::{HandshakeAnswer, ProtocolVersion, Response, StreamId};

/// The server's answer to the handshake and the protocol request.
fn greeting(flags: ServerFlags) -> Vec<u8> {
    let version = ProtocolVersion::CURRENT;
    let answer = ProtocolAnswer { version, flags, ..Default::default() }.encode().unwrap();
    let mut bytes = HandshakeAnswer { version, data_server: true }.encode().to_vec();
    Response::Ok(answer.into()).encode(StreamId([0, 1]), &mut bytes).unwrap();
    bytes
}

/// A server that greets clients. Then it sends `more` again and again, or, if that is empty, closes the connection.
fn server(flags: ServerFlags, more: Vec<u8>) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("root://{}//", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            socket.write_all(&greeting(flags)).unwrap();
            while !more.is_empty() && socket.write_all(&more).is_ok() {}
            drop(socket.shutdown(Shutdown::Write));
            // A connection that is closed with unread bytes is reset.
            drop(socket.read_to_end(&mut Vec::new()));
        }
    });
    Url::parse(&url).unwrap()
}

/// Threads and tasks find the server unreachable.
fn assert_unreachable(url: &Url) {
    let limit = Duration::from_millis(200);
    let options = Options {
        connect_timeout: limit,
        patience: limit,
        without_credentials: true,
        ..Options::default()
    };
    let error = blocking::Client::connect(url, options.clone()).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(Client::connect(url, options)).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}

#[test]
fn a_server_that_closes_the_connection_before_the_login_is_unreachable() {
    assert_unreachable(&server(ServerFlags::SERVER, Vec::new()));
}

#[cfg(feature = "tls")]
#[test]
fn a_server_that_closes_the_connection_during_the_tls_handshake_is_unreachable() {
    let tls = ServerFlags::HAVE_TLS | ServerFlags::GO_TO_TLS | ServerFlags::TLS_LOGIN;
    assert_unreachable(&server(ServerFlags::SERVER | tls, Vec::new()));
}

#[test]
fn a_server_that_sends_messages_instead_of_an_answer_to_the_login_is_unreachable() {
    let message = Attention::Other { code: AttentionCode::MESSAGE, parameters: "busy".into() };
    let mut bytes = Vec::new();
    Response::Attn(message).encode(StreamId([0, 0]), &mut bytes).unwrap();
    assert_unreachable(&server(ServerFlags::SERVER, bytes));
}
