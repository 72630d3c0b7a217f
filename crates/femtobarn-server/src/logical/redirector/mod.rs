//! A server without data, which redirects clients to servers that have it.
//!
//! | module | contents |
//! |---|---|
//! | this one | which server a client is redirected to, and what it is told if there is none |
//! | `kept` | what servers have said about a path, for a few seconds |
//! | `data_server` | one server: whether it is up, how much it has to do, whether it has a file |
//!
//! A module uses those below it in this table, and none above.
//!
//! 1. Servers that are up are asked at once, over connections that are kept. All who ask for a path meanwhile wait for one
//!    question, and at most [`PATIENCE`].
//! 2. Of the servers that have a file two are drawn, and the one with less to do is taken.
//! 3. A client is not redirected to a server that it has tried, so it meets none twice. A server behind a redirector is none
//!    itself, so there are no loops.
//! 4. Redirectors share nothing: any number of them may have the same servers.

mod data_server;
mod kept;

use std::fmt::Write;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nix::errno::Errno;
use xrd::ErrorCode;
use xrd::client::{Endpoint, Url};

pub use data_server::{DataServer, Presence};
use kept::KeptPresences;

use super::placement::{is_below, less_loaded, was_tried};
use crate::physical::{Opaque, StorageError, StoragePath, StorageResult};

/// How long a server is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Once a server has a file, the others have as long again as it took, and at least this time.
const GRACE_MIN: Duration = Duration::from_millis(50);
/// When a client may come again if no server was asked yet whether it is up.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Read what exists.
    Read,
    /// Change what exists.
    Change,
    /// Make a file or folder, or change it if it exists.
    Create,
}

/// What a client asks a redirector.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The path.
    pub path: &'a StoragePath,
    /// It may name servers that the client has tried.
    pub opaque: Opaque<'a>,
    /// Whether servers are to be asked, whatever they have said before.
    pub anew: bool,
}

/// Redirects clients to servers.
pub struct Redirector {
    /// The folder at all servers without a slash at its end, so empty for `/`.
    top: Vec<u8>,
    servers: Vec<DataServer>,
    kept: KeptPresences,
}

impl Redirector {
    /// A redirector to these servers, which have their files in the same folder.
    ///
    /// # Errors
    /// A text that names the server whose folder is another one, or that is named twice.
    pub fn new(urls: Vec<Url>) -> Result<Self, String> {
        let clean = |url: &Url| {
            let path = StoragePath::new(url.location.path());
            path.map_err(|_| format!("redirect.to: invalid path in {url}"))
        };
        let Some(first) = urls.first() else { return Err("redirect.to: no server".to_owned()) };
        let top = clean(first)?;
        for (index, url) in urls.iter().enumerate() {
            if clean(url)? != top {
                return Err(format!("redirect.to: {url} must have the path of {first}"));
            }
            if urls[..index].iter().any(|other| other.server == url.server) {
                return Err(format!("redirect.to: {} is named twice", url.server));
            }
        }
        let top = top.as_bytes().strip_suffix(b"/").unwrap_or(top.as_bytes()).to_vec();
        let servers = urls.into_iter().map(DataServer::new).collect();
        Ok(Redirector { top, servers, kept: KeptPresences::default() })
    }

    /// The folder, `/store`.
    pub fn name(&self) -> String {
        format!("/{}", String::from_utf8_lossy(&self.top).trim_start_matches('/'))
    }

    /// All servers.
    pub fn servers(&self) -> &[DataServer] {
        &self.servers
    }

    /// Asks all servers every second whether they are up. Never returns.
    pub async fn watch(&self) {
        self.servers.iter().map(DataServer::watch).collect::<FuturesUnordered<_>>().count().await;
    }

    /// The server that a client is redirected to.
    ///
    /// # Errors
    /// `ENOENT` if no server has the path, `EACCES` if one does not tell, `EHOSTUNREACH` if none answers or all that have it
    /// were tried; the text tells what each said. [`StorageError::NotBefore`] just after the start.
    pub async fn find(&self, asked: Asked<'_>, wish: Wish) -> StorageResult<Endpoint> {
        let said = self.ask(asked, false).await?;
        let all = || self.servers.iter().zip(&said);
        let exists = all().any(|(server, it)| server.is_up() && it.is_here());
        let is_fit = |it: &Presence| it.is_here() || wish == Wish::Create && !exists;
        let fit: Vec<_> = all()
            .filter(|(server, it)| is_fit(it) && server.is_up() && !is_tried(server, asked))
            .map(|(server, _)| server)
            .collect();
        if fit.is_empty() {
            return Err(self.nobody(asked, &said));
        }
        let chosen =
            fit[less_loaded(fit.len() as u64, |number| fit[number as usize].weight()) as usize];
        chosen.sent();
        if wish != Wish::Read {
            self.forget(asked.path);
        }
        Ok(chosen.endpoint().clone())
    }

    /// All servers that have a path, and how.
    ///
    /// # Errors
    /// Those of [`Redirector::find`].
    pub async fn locate(&self, asked: Asked<'_>) -> StorageResult<Vec<(Endpoint, Presence)>> {
        let said = self.ask(asked, true).await?;
        let here: Vec<_> = self
            .servers
            .iter()
            .zip(&said)
            .filter(|(server, it)| it.is_here() && server.is_up() && !is_tried(server, asked))
            .map(|(server, it)| (server.endpoint().clone(), it.clone()))
            .collect();
        if here.is_empty() { Err(self.nobody(asked, &said)) } else { Ok(here) }
    }

    /// Forgets what servers have said about a path, since it may change.
    pub fn forget(&self, path: &StoragePath) {
        self.kept.forget(path);
    }

    /// What each server says about a path; with `patiently`, all that are up are waited for.
    async fn ask(&self, asked: Asked<'_>, patiently: bool) -> StorageResult<Vec<Presence>> {
        let path = asked.path;
        if !is_below(path.as_bytes(), &self.top) {
            let what =
                format!("{path} is not below {}, for which this server redirects", self.name());
            return Err(StorageError::refused(Errno::ENOENT, what));
        }
        if self.servers.iter().any(|server| !server.is_known()) {
            let what = "this server has just started to ask others whether they are up";
            return Err(StorageError::NotBefore(COME_AGAIN, what.to_owned()));
        }
        // A client that comes back found something else than what was said.
        let anew = asked.anew || asked.opaque.value_of("tried").is_some();
        Ok(self.kept.get(path, patiently, anew, || self.ask_servers(path, patiently)).await)
    }

    async fn ask_servers(&self, path: &StoragePath, patiently: bool) -> Vec<Presence> {
        let started = tokio::time::Instant::now();
        let mut end = started + PATIENCE;
        let mut said: Vec<_> = self.servers.iter().map(DataServer::unasked).collect();
        let numbered = self.servers.iter().enumerate();
        let mut questions: FuturesUnordered<_> =
            numbered.map(|(number, it)| async move { (number, it.presence(path).await) }).collect();
        while let Ok(Some((number, presence))) =
            tokio::time::timeout_at(end, questions.next()).await
        {
            if presence.is_here() && !patiently {
                let now = tokio::time::Instant::now();
                end = end.min(now + (now - started).max(GRACE_MIN));
            }
            said[number] = presence;
        }
        said
    }

    /// The error that tells what each server said.
    fn nobody(&self, asked: Asked<'_>, said: &[Presence]) -> StorageError {
        let mut text = format!("no server for {}", asked.path);
        let mut separator = ':';
        for (server, presence) in self.servers.iter().zip(said) {
            let tried = if is_tried(server, asked) { "was tried, " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator} {} {tried}{presence}", server.endpoint());
            separator = ';';
        }
        let has_said =
            |code| said.iter().any(|it| matches!(it, Presence::Absent(it, _) if *it == code));
        let errno = if said.iter().any(Presence::is_here) {
            Errno::EHOSTUNREACH
        } else if has_said(ErrorCode::NOT_FOUND) {
            Errno::ENOENT
        } else if has_said(ErrorCode::NOT_AUTHORIZED) {
            Errno::EACCES
        } else {
            Errno::EHOSTUNREACH
        };
        StorageError::refused(errno, text)
    }
}

fn is_tried(server: &DataServer, asked: Asked<'_>) -> bool {
    was_tried(&server.endpoint().host, asked.opaque)
}
