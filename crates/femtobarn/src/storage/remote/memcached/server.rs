//! One memcached server: its connections, and how long it is left out after a failure.
//!
//! 1. An exchange takes no longer than [`EXCHANGE_TIME`], from connecting to the last byte.
//! 2. After a failure the server is left out for [`PAUSE_MIN`], doubling up to [`PAUSE_MAX`]; then one exchange tries
//!    it. So a server that does not answer costs one time-out, not one for each read.
//! 3. A connection whose exchange failed is closed, since answers may still arrive on it.
//!
//! It uses `get` and `set` of the text protocol (`doc/protocol.txt` of memcached), which all versions support.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::storage::remote::tier::TierCounts;

/// Time for one exchange.
const EXCHANGE_TIME: Duration = Duration::from_millis(200);
/// Time for which a server is left out after its first failure.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Longest time for which a server is left out.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Connections that are kept for the next exchanges.
const IDLE_MAX: usize = 8;
const PORT: u16 = 11211;
/// Bytes of the largest value and of the longest line that are accepted.
const VALUE_BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MAX: u64 = 1024;

/// A memcached server.
#[derive(Debug)]
pub(super) struct MemcachedServer {
    /// As `host:port`.
    address: String,
    idle: Mutex<Vec<MemcachedConnection>>,
    health: Mutex<ServerHealth>,
}

#[derive(Debug, Default)]
struct ServerHealth {
    /// Failures since the last success.
    failures: u32,
    /// When the server is tried again; `None` while it works.
    retry_at: Option<Instant>,
}

impl MemcachedServer {
    /// The server at `host`, or `host:port`. It is connected to at the first exchange.
    ///
    /// # Errors
    /// `Invalid` if the address has another form.
    pub(super) fn new(address: &str) -> Result<Self> {
        let has_port = address.rfind(':') > address.rfind(']');
        let address = if has_port { address.to_owned() } else { format!("{address}:{PORT}") };
        let parts = address.rsplit_once(':');
        let is_address = parts.is_some_and(|(host, port)| {
            let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
            let is_host = is_host && (!host.contains(':') || host.starts_with('['));
            is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !is_address {
            return Err(Error::invalid(format!(
                "memcached {address:?}: give the address of a server as \"host:port\""
            )));
        }
        Ok(MemcachedServer { address, idle: Mutex::default(), health: Mutex::default() })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The values of keys; all are missing if the server is left out or fails.
    pub(super) fn get<T>(&self, keys: &[(String, T)], counts: &TierCounts) -> Vec<Option<Vec<u8>>> {
        let got = self.exchange(counts, |connection| {
            let lines: String = keys.iter().map(|(key, _)| format!("get {key}\r\n")).collect();
            connection.stream.get_mut().write_all(lines.as_bytes())?;
            keys.iter().map(|(key, _)| connection.read_value(key)).collect()
        });
        got.unwrap_or_else(|| keys.iter().map(|_| None).collect())
    }

    /// Stores values. A server that has no room for one may refuse it.
    pub(super) fn set(&self, values: &[(String, Vec<u8>)], counts: &TierCounts) {
        self.exchange(counts, |connection| {
            for (key, value) in values {
                let stream = connection.stream.get_mut();
                // Flags, and the time after which it is dropped: never.
                stream.write_all(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes())?;
                stream.write_all(value)?;
                stream.write_all(b"\r\n")?;
            }
            values.iter().try_for_each(|_| connection.read_stored())
        });
    }

    /// Runs an exchange over a connection; `None` if the server is left out, or fails.
    fn exchange<T>(
        &self,
        counts: &TierCounts,
        exchange: impl Fn(&mut MemcachedConnection) -> io::Result<T>,
    ) -> Option<T> {
        let now = clock::now();
        let failures = self.begin(now)?;
        match self.exchange_until(now + EXCHANGE_TIME, exchange) {
            Ok(answer) => {
                if failures > 0 {
                    *self.health.lock() = ServerHealth::default();
                }
                Some(answer)
            }
            Err(_) => {
                self.idle.lock().clear();
                if self.health.lock().fail(failures, clock::now()) {
                    counts.add_failure();
                }
                None
            }
        }
    }

    /// The number of failures so far; `None` if the server is left out.
    fn begin(&self, now: Instant) -> Option<u32> {
        self.health.lock().begin(now)
    }

    fn exchange_until<T>(
        &self,
        deadline: Instant,
        exchange: impl Fn(&mut MemcachedConnection) -> io::Result<T>,
    ) -> io::Result<T> {
        let idle = self.idle.lock().pop();
        if let Some(mut connection) = idle {
            connection.stream.get_mut().deadline = deadline;
            match exchange(&mut connection) {
                Ok(answer) => {
                    self.keep(connection);
                    return Ok(answer);
                }
                Err(error) if is_time_out(&error) => return Err(error),
                // The server has closed it, as when it was restarted.
                Err(_) => self.idle.lock().clear(),
            }
        }
        let mut connection = MemcachedConnection::open(&self.address, deadline)?;
        let answer = exchange(&mut connection)?;
        self.keep(connection);
        Ok(answer)
    }

    /// Keeps a connection for a later exchange, unless the server sent more than was asked for.
    fn keep(&self, connection: MemcachedConnection) {
        let mut idle = self.idle.lock();
        if connection.stream.buffer().is_empty() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

impl ServerHealth {
    /// The number of failures so far; `None` if the server is left out. After the pause one exchange may try.
    fn begin(&mut self, now: Instant) -> Option<u32> {
        match self.retry_at {
            Some(at) if now < at => return None,
            Some(_) => self.retry_at = Some(now + 2 * EXCHANGE_TIME),
            None => {}
        }
        Some(self.failures)
    }

    /// Leaves the server out after a failure; false if another exchange that began at the same time did so.
    fn fail(&mut self, failures_before: u32, now: Instant) -> bool {
        if self.failures != failures_before {
            return false;
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        (self.failures, self.retry_at) = (self.failures.saturating_add(1), Some(now + pause));
        true
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// A connection to a server.
#[derive(Debug)]
struct MemcachedConnection {
    stream: BufReader<DeadlineStream>,
}

impl MemcachedConnection {
    fn open(address: &str, deadline: Instant) -> io::Result<Self> {
        let mut failed = io::Error::from(ErrorKind::NotFound);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, time_left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let stream = DeadlineStream { stream, deadline };
                    return Ok(MemcachedConnection {
                        stream: BufReader::with_capacity(64 << 10, stream),
                    });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Reads the answer to `get`: `VALUE key flags bytes`, the bytes and `END`, or only `END`.
    fn read_value(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let line = self.read_line()?;
        if line == "END" {
            return Ok(None);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["VALUE", name, _flags, size] = words[..] else { return Err(unexpected(&line)) };
        let size: usize = size.parse().map_err(|_| unexpected(&line))?;
        if name != key || size > VALUE_BYTES_MAX {
            return Err(unexpected(&line));
        }
        let mut value = vec![0; size];
        self.stream.read_exact(&mut value)?;
        for expected in ["", "END"] {
            let line = self.read_line()?;
            if line != expected {
                return Err(unexpected(&line));
            }
        }
        Ok(Some(value))
    }

    /// Reads the answer to `set`. A server without room refuses the value, which does not count as a failure.
    fn read_stored(&mut self) -> io::Result<()> {
        let line = self.read_line()?;
        match line.split(' ').next() {
            Some("STORED" | "SERVER_ERROR") => Ok(()),
            _ => Err(unexpected(&line)),
        }
    }

    /// Reads a line, without its end.
    fn read_line(&mut self) -> io::Result<String> {
        let mut line = vec![];
        (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line).into_owned();
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| unexpected(&line))
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("unexpected answer of memcached: {line:?}"))
}

/// A socket whose reads and writes end at a deadline.
#[derive(Debug)]
struct DeadlineStream {
    stream: TcpStream,
    deadline: Instant,
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(clock::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(time_left(self.deadline)?))?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(time_left(self.deadline)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn addresses_have_a_host_and_may_have_a_port() {
        let address = |text: &str| MemcachedServer::new(text).ok().map(|server| server.address);
        assert_eq!(address("cache1").as_deref(), Some("cache1:11211"));
        assert_eq!(address("cache1:11212").as_deref(), Some("cache1:11212"));
        assert_eq!(address("[::1]").as_deref(), Some("[::1]:11211"));
        assert_eq!(address("[::1]:80").as_deref(), Some("[::1]:80"));
        for wrong in ["", ":11211", "cache1:", "cache1:0", "cache1:http", "cache 1", "a:b:1", "::1"]
        {
            assert_eq!(address(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_failed_server_is_left_out_for_longer_each_time_and_then_tried_once() {
        let (mut health, mut now) = (ServerHealth::default(), clock::now());
        assert_eq!(health.begin(now), Some(0));
        assert_eq!(health.begin(now), Some(0), "two at once");
        assert!(health.fail(0, now));
        assert!(!health.fail(0, now), "two failures at once are one");
        for (failures, seconds) in [(1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 60), (7, 60)] {
            let pause = Duration::from_secs(seconds);
            assert_eq!(health.begin(now + pause - Duration::from_millis(1)), None);
            now += pause;
            assert_eq!(health.begin(now), Some(failures));
            assert_eq!(health.begin(now), None, "another exchange is trying it");
            assert!(health.fail(failures, now));
        }
    }

    /// A server that sends this answer to each connection's first bytes, and the number of its connections.
    fn answering(answer: &'static [u8]) -> (MemcachedServer, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let count = Arc::new(AtomicUsize::new(0));
        let connections = count.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                connections.fetch_add(1, Ordering::SeqCst);
                let mut stream = stream.unwrap();
                let read = stream.read(&mut [0; 4096]).unwrap_or(0);
                if read > 0 {
                    drop(stream.write_all(answer));
                }
            }
        });
        (MemcachedServer::new(&address).unwrap(), count)
    }

    #[test]
    fn answers_of_another_form_are_a_miss_and_leave_the_server_out() {
        for answer in [
            &b"VALUE another 0 3\r\nabc\r\nEND\r\n"[..],
            b"VALUE key 0 3\r\nabcd\r\nEND\r\n",
            b"VALUE key 0 3\r\nab",
            b"VALUE key 0 99999999999\r\n",
            b"VALUE key 0 -1\r\n",
            b"VALUE key 0 3\r\nabc\r\n",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\xff\xfe\r\n",
            b"SERVER_ERROR out of memory\r\n",
            b"",
            &[b'x'; 2000],
        ] {
            let (server, connections) = answering(answer);
            let counts = TierCounts::default();
            assert_eq!(server.get(&[("key".to_owned(), ())], &counts), [None]);
            server.set(&[("key".to_owned(), b"abc".to_vec())], &counts);
            let text = String::from_utf8_lossy(answer);
            assert_eq!(counts.statistics("memcached").failures, 1, "{text}");
            assert_eq!(connections.load(Ordering::SeqCst), 1, "{text}");
        }
    }

    #[test]
    fn a_connection_that_the_server_has_closed_is_opened_again() {
        let (server, connections) = answering(b"VALUE key 0 3\r\nabc\r\nEND\r\n");
        let counts = TierCounts::default();
        for count in 1..4 {
            assert_eq!(server.get(&[("key".to_owned(), ())], &counts), [Some(b"abc".to_vec())]);
            assert_eq!(connections.load(Ordering::SeqCst), count);
        }
        assert_eq!(counts.statistics("memcached").failures, 0);
    }
}
