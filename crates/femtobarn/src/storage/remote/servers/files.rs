//! A database's file at several servers, opened at each when it is first read there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use femtobarn_catalog::{Catalogue, Csn, DatabaseId, DatabaseRow};
use parking_lot::Mutex;
use rntuple::ReadRequest;

use super::group::{ChosenServer, ServerGroup};
use super::member::MemberConnection;
use crate::storage::remote::folder::{RemoteFile, path_on_server};
use crate::storage::remote::server_file::{ServerFile, into_io};
use crate::storage::remote::tier::total;

/// The copies of a file.
#[derive(Debug)]
pub(crate) struct FileCopies {
    group: Arc<ServerGroup>,
    database: DatabaseId,
    path: PathBuf,
    relative: String,
    /// The open file at each server, with the connection that it was opened over.
    copies: Box<[Mutex<Option<OpenCopy>>]>,
    /// The server that was read from last.
    last: AtomicUsize,
}

type OpenCopy = (Arc<MemberConnection>, Arc<RemoteFile>);

impl FileCopies {
    pub(crate) fn new(group: Arc<ServerGroup>, database: &DatabaseRow) -> Self {
        let relative = path_on_server(database);
        FileCopies {
            path: group.path_of(&relative),
            relative,
            database: database.id,
            copies: group.members.iter().map(|_| Mutex::default()).collect(),
            last: AtomicUsize::new(0),
            group,
        }
    }

    /// The file at a server, under the path that it has there.
    fn copy(&self, chosen: &ChosenServer<'_>, at: Csn) -> crate::error::Result<Arc<RemoteFile>> {
        let mut copy = self.copies[chosen.place].lock();
        if let Some((connection, file)) = &*copy
            && Arc::ptr_eq(connection, &chosen.connection)
        {
            return Ok(Arc::clone(file));
        }
        let MemberConnection { catalogue, folder } = &*chosen.connection;
        let row = catalogue.database_by_id(self.database, at)?;
        let file = Arc::new(folder.open(&path_on_server(&row))?);
        *copy = Some((Arc::clone(&chosen.connection), Arc::clone(&file)));
        Ok(file)
    }

    /// Reads from one server after the other until one has the bytes; `read` returns how many they were.
    fn read(
        &self,
        at: Csn,
        avoided: Option<usize>,
        mut read: impl FnMut(&RemoteFile) -> std::io::Result<u64>,
    ) -> std::io::Result<u64> {
        self.group.ask(at, avoided, |chosen| {
            let file = self.copy(chosen, at).map_err(into_io)?;
            let request = chosen.member.load.begin();
            let bytes = read(&file)?;
            request.end_read();
            chosen.member.counts.add_hits(1, bytes);
            self.last.store(chosen.place, Ordering::Relaxed);
            Ok(bytes)
        })
    }
}

impl ServerFile for FileCopies {
    fn path(&self) -> &Path {
        &self.path
    }

    fn relative(&self) -> &str {
        &self.relative
    }

    fn size(&self, at: Csn) -> std::io::Result<u64> {
        self.group.ask(at, None, |chosen| self.copy(chosen, at).map_err(into_io)?.size(at))
    }

    fn read_many(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        let read = |file: &RemoteFile| file.read_many(at, requests).map(|()| total(requests));
        self.read(at, None, read).map(drop)
    }

    fn read_again(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        let read = |file: &RemoteFile| file.read_many(at, requests).map(|()| total(requests));
        self.read(at, Some(self.last.load(Ordering::Relaxed)), read).map(drop)
    }

    fn read_ahead(&self, at: Csn, requests: &mut [ReadRequest<'_>]) -> std::io::Result<()> {
        let read = |file: &RemoteFile| file.read_ahead(at, requests).map(|()| total(requests));
        self.read(at, None, read).map(drop)
    }

    fn read_ahead_at(&self, at: Csn, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = |file: &RemoteFile| file.read_ahead_at(at, offset, buffer).map(|n| n as u64);
        self.read(at, None, read).map(|count| count as usize)
    }
}
