//! A connection between client and server that can be made to lose what the server says, and to break.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What goes on between clients and a server.
pub(crate) struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What the server says is lost.
    is_deaf: AtomicBool,
    is_shut: AtomicBool,
    /// Nothing comes through, and nothing is closed.
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
                // Where there is no server, the client finds its connection closed.
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

    /// Loses all that the server says from now on.
    pub(crate) fn lose_answers(&self) {
        self.shared.is_deaf.store(true, Ordering::SeqCst);
    }

    /// Lets nothing through any more, as a network that is gone.
    pub(crate) fn freeze(&self) {
        self.shared.is_frozen.store(true, Ordering::SeqCst);
    }

    /// Breaks all connections, and all that come later.
    pub(crate) fn shut(&self) {
        self.shared.is_shut.store(true, Ordering::SeqCst);
        self.break_all();
    }

    /// Breaks all connections; new ones are whole.
    pub(crate) fn break_all(&self) {
        self.shared.is_deaf.store(false, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            // It may be broken already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, is_answer: bool) {
    let mut buffer = [0; 16 << 10];
    loop {
        let count = from.read(&mut buffer);
        if shared.is_frozen.load(Ordering::SeqCst) {
            // Who waits for an end sees none.
            std::mem::forget((from, to));
            return;
        }
        let count = match count {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let is_lost = is_answer && shared.is_deaf.load(Ordering::SeqCst);
        if !is_lost && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
