//! Redirects clients that want the file of a database to its home. For a list of all files, asks other servers for
//! theirs.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, Error, ErrorKind, ServerRow};
use nix::errno::Errno;
use xrd::Location;
use xrd::client::{Options, Url, blocking};
use xrd::flags::DirlistOptions;

use super::reached_servers;
use super::site::{DatabasePlace, Site};
use crate::physical::{
    FilesElsewhere, Metadata, Opaque, StorageError, StorageResult, metadata_at_server,
};

/// The longest wait for another server's list of files.
const PATIENCE: Duration = Duration::from_secs(2);

impl Site {
    /// Redirects a client that wants the file of a database on another server. If the database has no home yet, the
    /// opaque information may name the server that will get the file.
    ///
    /// # Errors
    /// [`StorageError::Elsewhere`] with the home; [`StorageError::NotBefore`] if the home does not answer;
    /// `EHOSTUNREACH` with its name if its lease is over.
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

    /// The databases whose files are on disks of other servers. If `are_asked`, one server for each disk is asked for
    /// the files in a snapshot.
    ///
    /// # Errors
    /// The errors of the catalogue.
    pub fn files_elsewhere(&self, at: Csn, are_asked: bool) -> StorageResult<FilesElsewhere> {
        let databases = self.databases_elsewhere().map_err(unavailable)?;
        let mut disks: HashMap<String, Vec<ServerRow>> = HashMap::new();
        if are_asked && !databases.is_empty() {
            let others = self.servers().into_iter();
            for row in others.filter(|row| row.is_alive && !self.shares_disk(row)) {
                disks.entry(row.storage.clone()).or_default().push(row);
            }
        }
        // In separate threads, because this one may run a task.
        let metadata = thread::scope(|scope| {
            let ask =
                |servers: &Vec<ServerRow>| servers.iter().find_map(|row| self.list_at(row, at));
            let asked: Vec<_> =
                disks.values().map(|servers| scope.spawn(move || ask(servers))).collect();
            let listed = asked.into_iter().filter_map(|asked| asked.join().ok().flatten());
            listed.flatten().collect()
        });
        Ok(FilesElsewhere { databases, metadata })
    }

    /// A server's list of the files on its disk, with their names; `None` if it does not answer.
    fn list_at(&self, row: &ServerRow, at: Csn) -> Option<Vec<(Vec<u8>, Metadata)>> {
        let url = Url::parse(&row.url).ok()?;
        if !self.reached.has(&url.server.host, url.server.port) {
            return None;
        }
        let options = Options { patience: PATIENCE, ..Options::default() };
        let client = blocking::Client::connect(&url, options).ok()?;
        let opaque = format!("?fb.csn={at}&fb.here=1").into_bytes();
        let location = Location::new([url.location.path(), &opaque].concat()).ok()?;
        let listed = client.dirlist(&location, DirlistOptions::STAT).ok()?.entries;
        let listed = listed.into_iter();
        Some(
            listed
                .filter_map(|it| Some((it.name.to_vec(), metadata_at_server(&it.stat?))))
                .collect(),
        )
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
