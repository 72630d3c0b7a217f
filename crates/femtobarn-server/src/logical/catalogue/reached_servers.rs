//! Whether the servers of a federation accept connections, as of the last second: clients would wait for minutes for a
//! server that has died.

use std::collections::HashMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;

/// How long the result for a server is reused.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// The time after which a server counts as unreachable.
const CONNECT_MAX: Duration = Duration::from_millis(500);

/// When addresses were connected to, and whether that was possible.
#[derive(Debug, Default)]
pub(super) struct ReachedServers {
    known: Mutex<HashMap<(String, u16), (Instant, bool)>>,
}

impl ReachedServers {
    /// Whether something listens there.
    pub(super) fn has(&self, host: &str, port: u16) -> bool {
        let place = (host.to_owned(), port);
        let known = self.known.lock().get(&place).copied();
        if let Some((_, is_reachable)) = known.filter(|(since, _)| since.elapsed() < INTERVAL) {
            return is_reachable;
        }
        let is_reachable = is_listening(host, port);
        self.known.lock().insert(place, (clock::now(), is_reachable));
        is_reachable
    }
}

fn is_listening(host: &str, port: u16) -> bool {
    let addresses = (host, port).to_socket_addrs();
    addresses.is_ok_and(|mut all| {
        all.any(|address| TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok())
    })
}
