//! A store on a simulated server with tapes: an offline file is requested once, and comes online later.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use femtobarn_archive::{Error, ObjectRange, Store};
use femtobarn_catalog::ReplicaRow;
use xrd::{RequestEvent, RequestFramer};

use crate::sealed::{Sealed, on};
use crate::xrootd::store_at;

#[derive(Default)]
struct Asked {
    prepares: AtomicUsize,
    opens: AtomicUsize,
}

/// Answers one client: every file has seven bytes and is offline, and `slow` is to be waited for.
fn answer(mut stream: TcpStream, asked: &Asked) -> Option<()> {
    let mut framer = RequestFramer::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        let mut input = Bytes::copy_from_slice(&buffer[..count]);
        while let Some(event) = framer.next(&mut input).ok()? {
            let request = match event {
                RequestEvent::Handshake => {
                    stream.write_all(&[0; 4]).ok()?;
                    stream.write_all(&8_u32.to_be_bytes()).ok()?;
                    stream.write_all(&[0, 0, 5, 0, 0, 0, 0, 1]).ok()?;
                    continue;
                }
                RequestEvent::Request(received) => received,
                _ => continue,
            };
            use xrd::Request;
            let (status, body): (u16, Vec<u8>) = match request.request.ok()? {
                Request::Protocol(_) => (0, vec![0, 0, 5, 0, 0, 0, 0, 1]),
                Request::Login(_) => (0, vec![7; 16]),
                Request::Stat(stat) => match stat.target {
                    xrd::request::FileRef::Location(at) if at.path().ends_with(b"slow") => {
                        (4005, [&900_u32.to_be_bytes()[..], b"mounting"].concat())
                    }
                    _ => (0, b"1 7 24 1700000000\0".to_vec()),
                },
                Request::Prepare(_) => {
                    asked.prepares.fetch_add(1, Ordering::Relaxed);
                    (0, b"request-1".to_vec())
                }
                _ => {
                    asked.opens.fetch_add(1, Ordering::Relaxed);
                    (4003, [&3013_u32.to_be_bytes()[..], b"not here\0"].concat())
                }
            };
            stream.write_all(&request.header.stream.0).ok()?;
            stream.write_all(&status.to_be_bytes()).ok()?;
            stream.write_all(&(body.len() as u32).to_be_bytes()).ok()?;
            stream.write_all(&body).ok()?;
        }
    }
}

/// Simulates a server; returns its address, and the requests that it received.
fn play() -> (String, Arc<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("root://{}//tape", listener.local_addr().unwrap());
    let asked = Arc::new(Asked::default());
    let seen = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            thread::spawn(move || answer(stream, &seen));
        }
    });
    (url, asked)
}

#[test]
fn an_offline_copy_is_not_read_if_another_store_has_one_at_hand() {
    let (of, (url, _)) = (Sealed::new(), play());
    let tape = format!("[stores.a]\nkind = 'xrootd'\nurl = '{url}'\nin_place = true\n");
    let disk = format!("kind = 'folder'\npath = '{}'\nin_place = true\n", of.store().display());
    of.settings(&format!("{tape}[stores.b]\n{disk}"));
    let run7 = of.database("run7", b"7 bytes");
    let archive = of.archive();
    let copy = archive.migrate(run7, "b", &mut *on()).unwrap();
    of.catalogue.record_replica(&ReplicaRow { store: "a".to_owned(), ..copy.clone() }).unwrap();
    let read = || {
        let mut copies = archive.in_place(run7).unwrap();
        copies.retain(|copy| archive.at_hand(copy).is_ok());
        copies
    };
    assert_eq!(archive.in_place(run7).unwrap().len(), 2);
    assert_eq!(read(), [copy]);
    of.catalogue.discard_replica(&of.row(run7), "b", true).unwrap();
    assert!(read().is_empty(), "the file is brought back");
}

#[test]
fn an_offline_file_is_requested_once_and_staged_later() {
    let (url, asked) = play();
    let store = store_at(&url, 5);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("to");
    let mut part = [0; 3];
    for _ in 0..2 {
        let later = store.get("a", &to, &mut *on());
        assert!(matches!(later, Err(Error::NotBefore { .. })), "{later:?}");
        let later = store.read("a", &mut [ObjectRange { offset: 0, buffer: &mut part }]);
        assert!(matches!(later, Err(Error::NotBefore { .. })), "{later:?}");
    }
    assert_eq!(asked.prepares.load(Ordering::Relaxed), 1);
    assert_eq!(store.examine("a", 7, &mut *on()).unwrap().size, 7);
    assert_eq!(asked.opens.load(Ordering::Relaxed), 0, "nothing is read of what is on tape");
    let wait = match store.stat("slow") {
        Err(Error::NotBefore { wait, .. }) => wait.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait, 900);
    assert!(!to.exists());
}
