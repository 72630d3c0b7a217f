//! A proxy between clients and a server that loses answers, freezes or breaks connections on request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy in front of a server.
pub(crate) struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Answers of the server are lost.
    loses_answers: AtomicBool,
    is_shut: AtomicBool,
    /// No bytes pass, and no connection is closed.
    is_frozen: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.is_shut.load(Ordering::SeqCst) {
                    continue;
                }
                // Without a server the client's connection is closed.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let mut streams = accepting.streams.lock().unwrap();
                streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (back, from) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (there, again) = (accepting.clone(), accepting.clone());
                thread::spawn(move || pass(client, server, &there, false));
                thread::spawn(move || pass(from, back, &again, true));
            }
        });
        Proxy { port, shared }
    }

    /// Loses all answers of the server from now on.
    pub(crate) fn lose_answers(&self) {
        self.shared.loses_answers.store(true, Ordering::SeqCst);
    }

    /// Lets no more bytes pass, as a network that has failed.
    pub(crate) fn freeze(&self) {
        self.shared.is_frozen.store(true, Ordering::SeqCst);
    }

    /// Breaks all present and later connections.
    pub(crate) fn shut(&self) {
        self.shared.is_shut.store(true, Ordering::SeqCst);
        self.break_all();
    }

    /// Breaks all present connections; later ones work.
    pub(crate) fn break_all(&self) {
        self.shared.loses_answers.store(false, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            // The connection may be broken already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, is_answer: bool) {
    let mut buffer = [0; 16 << 10];
    loop {
        let count = from.read(&mut buffer);
        if shared.is_frozen.load(Ordering::SeqCst) {
            // The sockets stay open, so that neither end sees a closed connection.
            std::mem::forget((from, to));
            return;
        }
        let count = match count {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let is_lost = is_answer && shared.loses_answers.load(Ordering::SeqCst);
        if !is_lost && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
