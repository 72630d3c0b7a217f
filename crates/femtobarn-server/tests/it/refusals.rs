//! Refusals arrive though the client has sent more than the server has read.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::metrics::serving;

/// The kernel reset the connection, so that a client which went on to send its file could lose the reason why it was refused.
#[test]
fn a_refused_upload_receives_the_reason() {
    let (server, _folder) = serving("");
    let mut socket = TcpStream::connect(server.address()).unwrap();
    // One that waits to be told to send is answered at once, and this one does not wait.
    let head = "PUT /store/file HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 8388608\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&vec![0; 1 << 20]).unwrap();
    let mut answer = vec![];
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
}
