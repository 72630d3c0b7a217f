//! A server without data, which redirects clients to servers that have it.
//!
//! | module | contents |
//! |---|---|
//! | this one | asks servers, and redirects clients |
//! | `caches` | the caches of the servers: which of them a file is read from |
//! | `choice` | the server that a client is redirected to, and the error if there is none |
//! | `demand` | how many clients were sent to read each file within the last minute |
//! | `kept` | the answers of servers about a path, kept for a few seconds |
//! | `data_server` | one server: whether it is up, its load, whether it has a path |
//!
//! A module uses those below it in this table, and none above.
//!
//! 1. Servers that are up are asked at the same time, over connections that stay open. All clients that ask for a path
//!    meanwhile wait for one question, and for at most 2 seconds.
//! 2. If kept answers lead to no server, servers are asked once more.
//! 3. A client is not redirected to a server that it has tried, so it meets none twice. A server behind a redirector is
//!    not a redirector itself, so there are no loops.
//! 4. Redirectors share no state: any number of them may have the same servers.
//! 5. Caches are used for reading only, and are not asked: they have the files of the servers.

mod caches;
mod choice;
mod data_server;
mod demand;
mod kept;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::clock;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use nix::errno::Errno;
use xrd::Location;
use xrd::client::{Endpoint, Url};

use caches::Caches;
pub use choice::{AccessKind, ClientQuestion, RedirectedClient};
use choice::{AnsweredQuestion, is_missing, location};
use data_server::PATIENCE;
pub use data_server::{DataServer, Presence};
use kept::KeptPresences;

use super::placement::is_below;
use crate::network::Network;
use crate::physical::{Opaque, StorageError, StoragePath, StorageResult};

/// Once a server has a file, the other servers get as much time again as that took, and at least this time.
const GRACE_MIN: Duration = Duration::from_millis(50);
/// Paths of one request that servers are asked for at the same time, so that one client does not delay the others.
const PATHS_AT_ONCE: usize = 32;

/// Redirects clients to servers.
pub struct Redirector {
    /// The folder at all servers without a trailing slash, so empty for `/`.
    top: Vec<u8>,
    servers: Arc<[DataServer]>,
    kept: KeptPresences,
    caches: Caches,
}

impl Redirector {
    /// A redirector to these servers and caches, which have their files in the same folder. `clients_near` returns the
    /// clients that are near one of them. A file is read from one cache for every `clients_per_copy` clients a minute.
    ///
    /// # Errors
    /// A text that names the server whose folder differs, or whose host is named twice.
    pub fn new(
        servers: Vec<Url>,
        caches: Vec<Url>,
        clients_near: impl Fn(&Url) -> Vec<Network>,
        clients_per_copy: NonZeroU32,
    ) -> Result<Self, String> {
        let urls: Vec<&Url> = servers.iter().chain(&caches).collect();
        let clean = |url: &Url| {
            let path = StoragePath::new(url.location.path());
            path.map_err(|_| format!("redirect: invalid path in {url}"))
        };
        let Some(first) = urls.first() else { return Err("redirect: no server".to_owned()) };
        let top = clean(first)?;
        for (index, url) in urls.iter().enumerate() {
            if clean(url)? != top {
                return Err(format!("redirect: {url} must have the path of {first}"));
            }
            let host = &url.server.host;
            if urls[..index].iter().any(|other| other.server.host.eq_ignore_ascii_case(host)) {
                // Clients name failed servers without ports.
                return Err(format!(
                    "redirect: {host} is named twice: each server needs a name or address of its own"
                ));
            }
        }
        let top = top.as_bytes().strip_suffix(b"/").unwrap_or(top.as_bytes()).to_vec();
        let known = |urls: Vec<Url>| -> Arc<[DataServer]> {
            let known = urls.into_iter().map(|url| {
                let near = clients_near(&url);
                DataServer::new(url, near)
            });
            known.collect()
        };
        let caches = Caches::new(known(caches), clients_per_copy);
        let (servers, kept) = (known(servers), KeptPresences::default());
        Ok(Redirector { top, servers, kept, caches })
    }

    /// The folder, `/store`.
    pub fn name(&self) -> String {
        format!("/{}", String::from_utf8_lossy(&self.top).trim_start_matches('/'))
    }

    /// All servers, and whether they are caches.
    pub fn servers(&self) -> impl Iterator<Item = (&DataServer, bool)> {
        let servers = self.servers.iter().map(|server| (server, false));
        servers.chain(self.caches.servers.iter().map(|server| (server, true)))
    }

    /// Asks all servers every second whether they are up. Never returns.
    pub async fn watch(&self) {
        let watched = self.servers().map(|(server, _)| server.watch());
        watched.collect::<FuturesUnordered<_>>().count().await;
    }

    /// The server to which a client that asks for these paths is redirected.
    ///
    /// # Errors
    /// `ENOENT` if all servers that are up have answered that there is no such path, `EACCES` if one refuses to answer,
    /// `ENOTSUP` if no server has all paths, `EHOSTUNREACH` if servers do not answer or all that have it were tried;
    /// the text has the answer of each server. [`StorageError::NotBefore`] if the path is to be made while a server has
    /// not answered whether it has it, and just after the start. `EROFS` if the path is to be changed and all servers
    /// are caches.
    pub async fn find(
        &self,
        asked: &[ClientQuestion<'_>],
        wish: AccessKind,
    ) -> StorageResult<Endpoint> {
        self.check_changeable(wish)?;
        let chosen = self.chosen(asked, wish).await;
        let server = match asked {
            [read] if !wish.is_change() && (wish != AccessKind::Use || self.servers.is_empty()) => {
                let are_all_up = !self.servers.iter().any(DataServer::is_down);
                self.caches.reader(chosen, read, wish, are_all_up)?
            }
            _ => chosen?,
        };
        Ok(self.send(server, asked, wish))
    }

    /// The server to which a client is redirected that moves a path to another one.
    ///
    /// # Errors
    /// The errors of [`Redirector::find`], and `EXDEV` if another server has the other path.
    pub async fn find_to_move(
        &self,
        from: ClientQuestion<'_>,
        to: ClientQuestion<'_>,
    ) -> StorageResult<Endpoint> {
        self.check_changeable(AccessKind::Change)?;
        let chosen = self.chosen(&[from], AccessKind::Change).await?;
        choice::check_move(&self.servers, chosen, &self.hear(to, true).await?)?;
        Ok(self.send(chosen, &[from, to], AccessKind::Change))
    }

    /// All servers that have a path, with their answers; of the caches, those from which it is read.
    ///
    /// # Errors
    /// The errors of [`Redirector::find`].
    pub async fn locate(
        &self,
        asked: ClientQuestion<'_>,
    ) -> StorageResult<Vec<(Endpoint, Presence)>> {
        let heard = self.hear(asked, true).await?;
        let numbered = self.servers.iter().enumerate();
        let mut here: Vec<_> = numbered
            .map(|(number, server)| (server, heard.of(number)))
            .filter(|(server, it)| it.is_here() && server.is_up())
            .filter(|(server, _)| !choice::is_tried(server, asked))
            .map(|(server, it)| (server.endpoint().clone(), it.clone()))
            .collect();
        let at_server = |server: &DataServer| here.iter().any(|(it, _)| it == server.endpoint());
        let holder = self.servers.iter().find(|server| at_server(server));
        let is_missing = holder.is_none() && is_missing(&choice::nobody(&self.servers, &heard));
        if !is_missing && !asked.client.is_server {
            let has = Presence::Here { is_online: true, is_writable: false };
            let caches = self.caches.of(&asked, AccessKind::ReadOn, holder).into_iter();
            here.extend(caches.map(|server| (server.endpoint().clone(), has.clone())));
        }
        if here.is_empty() { Err(choice::nobody(&self.servers, &heard)) } else { Ok(here) }
    }

    async fn chosen(
        &self,
        asked: &[ClientQuestion<'_>],
        wish: AccessKind,
    ) -> StorageResult<&DataServer> {
        let came = clock::now();
        // The fastest server may be one that cannot be written, or that has not all paths.
        let patiently = wish.is_change() || asked.len() > 1;
        let heard = self.hear_all(asked, patiently, false).await?;
        let is_kept = heard.iter().any(|it| it.said.at < came);
        match self.choose(&heard, wish).await {
            // The answer that no server has the path is kept on purpose. Other answers may have changed.
            Err(error) if is_kept && !is_missing(&error) => {
                self.choose(&self.hear_all(asked, true, true).await?, wish).await
            }
            chosen => chosen,
        }
    }

    async fn choose(
        &self,
        heard: &[AnsweredQuestion<'_>],
        wish: AccessKind,
    ) -> StorageResult<&DataServer> {
        let servers = &*self.servers;
        if let Some(server) = choice::holder(servers, heard, wish) {
            return Ok(server);
        }
        let ([made], AccessKind::Create) = (heard, wish) else {
            return Err(choice::nowhere(servers, heard, wish));
        };
        let homes = choice::homes(servers, made)?;
        let path = made.asked.path;
        let folder = path.parent().map(|(folder, _)| folder);
        let above = match &folder {
            Some(path) if homes.len() > 1 && is_below(path.as_bytes(), &self.top) => {
                let asked =
                    ClientQuestion { path, opaque: Opaque::default(), anew: false, ..made.asked };
                Some(self.hear(asked, true).await?)
            }
            _ => None,
        };
        let home = choice::home(servers, homes, path, above.as_ref());
        home.ok_or_else(|| choice::nobody(servers, made))
    }

    /// Records that a client is redirected to a server, which may change the paths.
    fn send(
        &self,
        server: &DataServer,
        asked: &[ClientQuestion<'_>],
        wish: AccessKind,
    ) -> Endpoint {
        server.sent();
        if let (AccessKind::Read, [read]) = (wish, asked)
            && !read.client.is_server
        {
            self.caches.count(read);
        }
        if wish.is_change() {
            // The parent folders may be made with it.
            let changed =
                asked.iter().flat_map(|it| it.path.folders_above().chain([it.path.clone()]));
            let paths = changed.filter_map(|path| location(&path, Opaque::default()).ok());
            paths.for_each(|path| self.kept.forget(&path));
        }
        server.endpoint().clone()
    }

    /// Checks that there is a server that can be changed.
    fn check_changeable(&self, wish: AccessKind) -> StorageResult<()> {
        if wish.is_change() && self.servers.is_empty() {
            let what = "all servers are caches: change the files at their origin";
            return Err(StorageError::refused(Errno::EROFS, what));
        }
        Ok(())
    }

    async fn hear_all<'a>(
        &self,
        asked: &[ClientQuestion<'a>],
        patiently: bool,
        anew: bool,
    ) -> StorageResult<Vec<AnsweredQuestion<'a>>> {
        let mut heard = Vec::with_capacity(asked.len());
        for some in asked.chunks(PATHS_AT_ONCE) {
            let asked = some.iter().map(|it| ClientQuestion { anew: it.anew || anew, ..*it });
            heard.extend(try_join_all(asked.map(|it| self.hear(it, patiently))).await?);
        }
        Ok(heard)
    }

    /// The answer of each server about a path; with `patiently`, all that are up are waited for.
    async fn hear<'a>(
        &self,
        asked: ClientQuestion<'a>,
        patiently: bool,
    ) -> StorageResult<AnsweredQuestion<'a>> {
        let path = asked.path;
        if !is_below(path.as_bytes(), &self.top) {
            let what =
                format!("{path} is not below {}, for which this server redirects", self.name());
            return Err(StorageError::refused(Errno::ENOENT, what));
        }
        let is_any = |is_so: fn(&DataServer) -> bool| self.servers.iter().any(is_so);
        if !is_any(DataServer::is_up) && is_any(|server| !server.is_known()) {
            return Err(choice::just_started());
        }
        // The earlier answer to a returning client was wrong or is out of date, and the file may be on the slowest
        // server.
        let comes_back = asked.opaque.value_of("tried").is_some();
        let patiently = patiently || comes_back;
        let question = (location(path, asked.opaque)?, patiently);
        let ask = || ask_servers(Arc::clone(&self.servers), question.0.clone(), patiently);
        let said = self.kept.get(question.clone(), asked.anew || comes_back, ask).await;
        Ok(AnsweredQuestion { asked, said })
    }
}

async fn ask_servers(
    servers: Arc<[DataServer]>,
    question: Location,
    patiently: bool,
) -> Vec<Presence> {
    let ask = |number: usize| {
        let (servers, question) = (Arc::clone(&servers), question.clone());
        // A task of its own, since the question continues when its answer is late.
        let asked = tokio::spawn(async move { servers[number].presence(&question).await });
        async move { asked.await.unwrap_or(Presence::Unknown) }
    };
    let questions = (0..servers.len()).map(ask).collect();
    gathered(questions, PATIENCE, (!patiently).then_some(GRACE_MIN)).await
}

/// The answers within this time. Once a server has the path, the other servers get as much time again as that took, and
/// at least `grace`; without `grace` all are waited for.
async fn gathered(
    questions: Vec<impl Future<Output = Presence>>,
    patience: Duration,
    grace: Option<Duration>,
) -> Vec<Presence> {
    let started = tokio::time::Instant::now();
    let mut end = started + patience;
    let mut said = vec![Presence::Unknown; questions.len()];
    let numbered = questions.into_iter().enumerate();
    let mut questions: FuturesUnordered<_> =
        numbered.map(|(number, question)| async move { (number, question.await) }).collect();
    while let Ok(Some((number, presence))) = tokio::time::timeout_at(end, questions.next()).await {
        if let (true, Some(grace)) = (presence.is_here(), grace) {
            let now = tokio::time::Instant::now();
            end = end.min(now + (now - started).max(grace));
        }
        said[number] = presence;
    }
    said
}

#[cfg(test)]
mod tests;
