//! Clients that want the file of a database are sent on to its home.

use femtobarn_catalog::{DatabaseId, Error, ErrorKind};
use nix::errno::Errno;
use xrd::client::Url;

use super::reached_servers;
use super::site::{DatabasePlace, Site};
use crate::physical::{Opaque, StorageError, StorageResult};

impl Site {
    /// Sends a client on that wants the file of a database which is elsewhere. If that has no home yet, its opaque information may name the server
    /// that is to have the file of a new database.
    ///
    /// # Errors
    /// [`StorageError::Elsewhere`] with the home; [`StorageError::NotBefore`] if that does not answer; `EHOSTUNREACH` with its name if its lease is over.
    pub fn redirect(&self, database: DatabaseId, opaque: Opaque<'_>) -> StorageResult<()> {
        let named = opaque.value_of("fb.home").and_then(|name| std::str::from_utf8(name).ok());
        let place = match (self.place_of(database).map_err(unavailable)?, named) {
            (DatabasePlace::Here, Some(name)) if name != self.name() && !self.has(database) => {
                DatabasePlace::There(self.server(name).map_err(unavailable)?)
            }
            (place, _) => place,
        };
        let DatabasePlace::There(home) = place else { return Ok(()) };
        let unreachable = |what: String| Err(StorageError::refused(Errno::EHOSTUNREACH, what));
        if !home.is_alive {
            return unreachable(home.absence(database).to_string());
        }
        let Ok(url) = Url::parse(&home.url) else {
            return unreachable(format!("server {:?} has no address: {}", home.server, home.url));
        };
        let (host, port) = (url.server.host, url.server.port);
        if !self.reached.has(&host, port) {
            let what = format!("server {:?}, which has the file, does not answer", home.server);
            return Err(StorageError::NotBefore(reached_servers::INTERVAL, what));
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let (opaque, is_encrypted) = (String::new(), url.wants_tls);
        Err(StorageError::Elsewhere { host, port, opaque, is_encrypted })
    }
}

fn unavailable(error: Error) -> StorageError {
    match error.kind() {
        ErrorKind::Unavailable => {
            StorageError::NotBefore(reached_servers::INTERVAL, error.to_string())
        }
        _ => StorageError::refused(Errno::EIO, error.to_string()),
    }
}
