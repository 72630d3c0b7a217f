//! Floods: a server in a separate process, whose threads, descriptors and resident memory are counted while clients of
//! one machine misbehave, and a client of another machine continues to work.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use femtobarn_server::{Config, Server};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use xrd::HANDSHAKE;
use xrd::flags::OpenOptions as Flags;

use crate::killable::{self, Killable};
use crate::xroot::{Peer, pattern, wait_until};

/// The machine of hostile clients; others come from 127.0.0.1.
const HOSTILE: [u8; 4] = [127, 0, 0, 2];
/// Files of the served folder.
const FILES: usize = 1200;
/// The file to which the process writes the address of its server.
const ADDRESS: &str = "address";

/// A server in a process with a limited number of descriptors.
struct Flooded {
    process: Killable,
    address: SocketAddr,
    folder: TempDir,
}

/// The resources that a process uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: usize,
    descriptors: usize,
    resident_bytes: usize,
}

impl Flooded {
    fn start(descriptors: u64) -> Self {
        // This test has as many clients.
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("store")).unwrap();
        std::fs::write(folder.path().join("store/file"), pattern(100_000)).unwrap();
        let argument = format!("{descriptors} {}", folder.path().display());
        let process = Killable::start("floods::serves", argument);
        let told = folder.path().join(ADDRESS);
        wait_until("starting", || told.exists());
        let address = std::fs::read_to_string(told).unwrap().parse().unwrap();
        Flooded { process, address, folder }
    }

    fn usage(&self) -> Usage {
        let proc = format!("/proc/{}", self.process.id());
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
        let number = |name: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Usage {
            threads: number("Threads:"),
            descriptors: std::fs::read_dir(format!("{proc}/fd")).unwrap().count(),
            resident_bytes: number("VmRSS:") << 10,
        }
    }

    /// A connection of a hostile client, which sends this first.
    fn hostile(&self, first: &[u8]) -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Or their ports would be taken for a minute, also for the servers of other tests.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.bind(&SocketAddr::from((HOSTILE, 0)).into())?;
        socket.connect(&self.address.into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(first)?;
        Ok(stream)
    }

    /// Fails unless a client of another machine logs in, reads, and gets a page.
    fn assert_well(&self) {
        let mut peer = Peer::logged_in(self.address);
        let handle = peer.open("/store/file", Flags::READ);
        assert!(peer.read(handle, 1000, 4096) == pattern(100_000)[1000..5096]);
        let mut http = TcpStream::connect(self.address).unwrap();
        http.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        http.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Not a test: the server's process runs it.
#[test]
#[ignore = "run by other tests as another process"]
fn serves() {
    let Some(argument) = killable::argument() else { return };
    let (descriptors, folder) = argument.split_once(' ').unwrap();
    let (descriptors, folder) = (descriptors.parse().unwrap(), Path::new(folder));
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).unwrap();
    let mut config = Config { address: "127.0.0.1".into(), port: 0, ..Config::default() };
    config.export(folder.join("store"), String::new());
    let server = Server::start(config).unwrap();
    let draft = folder.join("draft");
    std::fs::write(&draft, server.address().to_string()).unwrap();
    std::fs::rename(draft, folder.join(ADDRESS)).unwrap();
    loop {
        std::thread::park();
    }
}

/// One machine could once take all connections, by not logging in or by slow requests, so that no other client got one.
#[test]
fn silent_and_slow_connections_leave_room_for_others() {
    const CONNECTIONS: usize = 3000;
    let server = Flooded::start(CONNECTIONS as u64);
    server.assert_well();
    let before = server.usage();
    let beginnings: [&[u8]; 6] = [
        b"",
        &HANDSHAKE[..1],
        &HANDSHAKE,
        b"GET /healthz HTTP/1.1\r\nHost:",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
        b"PUT /store/new HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nslow",
    ];
    let mut connections: Vec<_> = (0..CONNECTIONS)
        .map(|number| server.hostile(beginnings[number % beginnings.len()]))
        .collect();
    server.assert_well();
    let now = server.usage();
    // A machine gets half of the half for connections.
    let most = CONNECTIONS / 2 / 2;
    assert!(now.descriptors <= before.descriptors + most + 10, "{before:?} {now:?}");
    assert!(now.descriptors >= before.descriptors + most * 3 / 5, "{before:?} {now:?}");
    assert!(now.threads <= before.threads + 8, "{before:?} {now:?}");
    let growth = now.resident_bytes.saturating_sub(before.resident_bytes);
    assert!(growth < most * (64 << 10), "{growth} bytes: {before:?} {now:?}");
    connections.clear();
    wait_until("giving all back", || server.usage().descriptors <= before.descriptors + 10);
}

/// Clients that opened more files than there are descriptors once kept all others from connecting.
#[test]
fn opens_of_more_files_than_there_are_descriptors_leave_some_for_others() {
    let server = Flooded::start(512);
    let name = |number: usize| format!("/store/{number}");
    for number in 0..FILES {
        std::fs::write(server.folder.path().join(&name(number)[1..]), number.to_string()).unwrap();
    }
    server.assert_well();
    let before = server.usage();
    let mut peers: Vec<_> = (0..3).map(|_| Peer::logged_in(server.address)).collect();
    let handles: Vec<_> =
        (0..FILES).map(|number| peers[number % 3].open(&name(number), Flags::READ)).collect();
    let now = server.usage();
    assert!(now.descriptors <= before.descriptors + 512 / 4 + 10, "{before:?} {now:?}");
    assert!(now.threads <= before.threads + 8, "{before:?} {now:?}");
    server.assert_well();
    // Files that were closed meanwhile are opened again.
    for (number, handle) in handles.into_iter().enumerate().step_by(7) {
        assert_eq!(peers[number % 3].read(handle, 0, 10), number.to_string());
    }
    assert!(server.usage().descriptors <= before.descriptors + 512 / 4 + 10);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Sends `flood` and reads the answers until the server has closed the connection.
fn until_closed(mut stream: TcpStream, flood: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    for bytes in flood {
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    // The connection may be reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn floods_of_headers_and_of_cancelled_requests_end_their_connection_alone() {
    let server = Flooded::start(512);
    server.assert_well();
    let before = server.usage();

    let lines = std::iter::repeat_n(b"X-Flood: 0123456789\r\n".repeat(500), 2000);
    let answer = until_closed(server.hostile(b"GET / HTTP/1.1\r\n").unwrap(), lines);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");

    let greeting = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat();
    // `GET / http`, by the numbers of HPACK's static table.
    let request = [0x82, 0x84, 0x86];
    // CVE-2023-44487: requests that are cancelled at once do not count as open.
    let cancelled = (0..200_000_u32).map(|number| {
        let stream = 2 * number + 1;
        [frame(1, 5, stream, &request), frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    let mut sent = 0;
    let counted = cancelled.inspect(|_| sent += 1);
    until_closed(server.hostile(&greeting).unwrap(), counted);
    assert!(sent < 200_000, "the server took all requests that were cancelled");

    // Headers without an end.
    let begin = std::iter::once(frame(1, 0, 1, &request));
    let more = [&[0x40, 1, b'x', 0x7f, 0x81, 0x7c][..], &[b'y'; 16_000]].concat();
    let endless = begin.chain(std::iter::repeat_n(frame(9, 0, 1, &more), 5000));
    let mut sent = 0;
    let counted = endless.inspect(|_| sent += 1);
    until_closed(server.hostile(&greeting).unwrap(), counted);
    assert!(sent < 5000, "the server took all headers");

    server.assert_well();
    let now = server.usage();
    assert!(now.threads <= before.threads + 8, "{before:?} {now:?}");
    assert!(now.descriptors <= before.descriptors + 10, "{before:?} {now:?}");
    let growth = now.resident_bytes.saturating_sub(before.resident_bytes);
    assert!(growth < 32 << 20, "{growth} bytes: {before:?} {now:?}");
}
