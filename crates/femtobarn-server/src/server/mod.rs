//! A server: it opens the exports of its configuration, starts the layers and the port, and stops them.
//!
//! | module | contents |
//! |---|---|
//! | `exports`, `layers` | opens the exported folders as storages; the logical layer over them |
//! | `descriptors` | how many connections and open files there may be |
//! | `sites` | leases of one of several servers of a federation |
//! | `reload` | the settings that can change while the server runs |
//! | `status_report`, `recall_report`, `cache_report`, `state` | the status of a running server, and the state that it is read from |
//! | `error` | why a server did not start |
//!
//! 1. The number of threads is bounded by the cores: for `root://`, for HTTP and gRPC, and a blocking pool for each of
//!    the two and for files over HTTP, so that a wait for a disk does not delay catalogues. The pool of `root://` is
//!    larger if disks are throttled, or calls wait for other machines. One more thread accepts connections, closes idle
//!    files and sessions, and fetches the keys of token issuers.
//! 2. An invalid certificate, issuer's key or log level is logged at a reload, and the old one stays in force. All
//!    other settings are read once, at the start.
//! 3. A server that is stopped accepts no more connections, waits for transfers and transactions in progress for at
//!    most the configured time, and ends the rest.

mod alerts;
mod cache_report;
mod descriptors;
mod error;
mod exports;
mod layers;
mod recall_report;
mod reload;
mod sites;
mod state;
mod status_report;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use femtobarn_catalog::clock;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;

use crate::auth::{Authenticator, Tokens};
use crate::config::Config;
use crate::logical::cluster::Membership;
use crate::protocol::answer_counting::counted;
use crate::protocol::http::files::FileSite;
use crate::protocol::http::files::copy::OtherServers;
use crate::protocol::http::mounts::{self, Mount, ServedFederation};
use crate::protocol::http::{self, Site, Turn};
use crate::protocol::listener::{self, ConnectionCounts, Protocols, ServeRoot};
use crate::protocol::workers::Workers;
use crate::protocol::{rpc, xroot};
use crate::status::ServerStatus;
use crate::tls;
pub use error::StartError;
use exports::OpenExports;
use reload::ReloadableSettings;
use state::ServerState;

/// Threads of a blocking pool, for each core.
const BLOCKING_THREADS_PER_CORE: usize = 16;
/// The threads of `root://` if disks are throttled, or calls wait for origins or stores, so that the calls waiting for
/// one do not delay those to another. Each thread may hold a buffer.
const WAITING_THREADS_PER_CORE: usize = 1024;
/// A stopping server ends early if there was no traffic for this time.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait of a request for its turn to read the status, and then for the status.
const STATUS_WAIT_MAX: Duration = Duration::from_secs(5);
/// The longest waits for the contents of caches: 200,000 files take two seconds.
const CACHES_WAIT_MAX: Duration = Duration::from_secs(60);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A running server, with its own threads. Dropping it stops it at once.
pub struct Server {
    address: SocketAddr,
    exports: Vec<String>,
    drain: Duration,
    settings: Mutex<ReloadableSettings>,
    state: Arc<ServerState>,
    /// The tasks that bring new clients: the port, and the login at a cluster.
    attracting: Vec<JoinHandle<()>>,
    /// The threads for `root://`, and those for HTTP and gRPC.
    workers: [Arc<Workers>; 2],
    /// `None` once the server has ended.
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// [`StartError`], which names the setting, folder or address.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with_mounts(config, |_| Ok(vec![]))
    }

    /// Starts a server as [`start`](Self::start) does, with the pages that `mounts` makes for a federation.
    ///
    /// # Errors
    /// [`StartError`], also with the text of `mounts` if that fails.
    pub fn start_with_mounts(
        config: Config,
        mounts: impl Fn(&ServedFederation) -> Result<Vec<Mount>, String>,
    ) -> Result<Self, StartError> {
        let listen_at = checked(&config)?;
        let open = exports::open(&config)?;
        let authenticator = config.authenticator().map_err(StartError::Config)?;
        let (tls, certificates) =
            tls::server_config(&config.tls).map_err(StartError::Config)?.unzip();
        let (tokens, audit) = (authenticator.tokens.clone(), authenticator.audit.clone());
        let blocking = blocking_threads(&open);
        let runtime = runtime(blocking)?;
        let root_workers = start_workers("femtobarn-root", blocking)?;
        let http_workers = start_workers("femtobarn-http", BLOCKING_THREADS_PER_CORE)?;
        let workers = [Arc::clone(&root_workers), Arc::clone(&http_workers)];
        let connections_max = descriptors::connections_max(&config.limits);
        let logical = layers::logical(&config, open.exports, &open.federations, &open.recallers)?;
        // Files of other servers take no space here.
        let elsewhere = logical.redirector.iter().map(|redirector| redirector.name());
        let names: Vec<_> = open.names.iter().cloned().chain(elsewhere).collect();
        let state = Arc::new(ServerState {
            started: clock::now(),
            exports: open.names,
            is_draining: AtomicBool::new(false),
            counts: Arc::new(ConnectionCounts::default()),
            connections_max,
            logical: Arc::new(logical),
            http_bytes: Arc::default(),
            federations: open.federations,
            disks: open.disks,
            caches: open.caches,
            login: open.membership.as_ref().map(Membership::login),
            recallers: open.recallers,
            in_place: open.in_place,
            _rule_keepers: open.rule_keepers,
        });
        let site = Arc::new(site(&state, &config, authenticator.clone()));
        let exports = Arc::clone(&state.logical.exports);
        let counts = Arc::clone(&state.logical.request_counts);
        let remote = rpc::routes(state.federations.clone(), exports, authenticator.clone(), counts);
        let files =
            Arc::new(file_site(&state, &config, authenticator.clone(), runtime.handle().clone())?);
        let pages = http::routes(site, Arc::clone(&files));
        let pages = pages.merge(mounted(open.served, mounts, &authenticator)?).merge(remote);
        let pages = http::with_files(pages, files);
        let mut root = xroot::RootService::new(Arc::clone(&state.logical), authenticator);
        root.tls.clone_from(&tls);
        root.requires_tls = config.tls.required;
        root.copy_hosts.clone_from(&config.copy.hosts);
        let protocols = Arc::new(Protocols {
            root: serve_root(root, root_workers),
            http: counted(pages, Arc::clone(&state.logical.request_counts)),
            http_workers,
            tls,
            is_tls_required: config.tls.required,
            connections_max,
            limits: config.limits,
            counts: Arc::clone(&state.counts),
        });
        let (listener, address) = bind(&runtime, listen_at)?;
        sites::join(&config, &state.federations, address)?;
        let mut attracting = vec![runtime.spawn(listener::accept(listener, protocols))];
        attracting.extend(open.membership.map(|it| runtime.spawn(it.hold(address.port()))));
        start_tasks(&runtime, &workers[0], &state, tokens.clone());
        tracing::info!(%address, exports = ?names, connections_max, "serving");
        Ok(Server {
            address,
            exports: names,
            drain: Duration::from_secs(config.limits.drain_seconds),
            settings: Mutex::new(ReloadableSettings { config, certificates, tokens, audit }),
            state,
            attracting,
            workers,
            runtime: Some(runtime),
        })
    }

    /// Applies the settings of a configuration that can change while the server runs: certificates, even if their files
    /// have the same names, the keys of token issuers, and the log's level. Logs the changes.
    ///
    /// # Errors
    /// A text for each setting that was refused and keeps its old value. The texts are logged, too.
    pub fn reload(&self, config: &Config) -> Result<(), Vec<String>> {
        let outcome = self.settings.lock().reload(config);
        tracing::info!(taken = outcome.taken.join(", "), "reloaded");
        for what in &outcome.wrong {
            tracing::error!(what, "a setting was not reloaded; its old value stays in force");
        }
        if outcome.wrong.is_empty() { Ok(()) } else { Err(outcome.wrong) }
    }

    /// The address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The names of the exports, which are prefixes of paths.
    pub fn exports(&self) -> Vec<String> {
        self.exports.clone()
    }

    /// The current status.
    pub fn status(&self) -> ServerStatus {
        status_report::status(&self.state)
    }

    /// Accepts no more connections, waits for traffic and transactions to end, and stops.
    pub fn stop(mut self) {
        self.state.is_draining.store(true, Ordering::Release);
        self.attracting.iter().for_each(JoinHandle::abort);
        let (end, mut traffic) = (clock::now() + self.drain, self.traffic());
        while clock::now() < end && (self.state.counts.open() > 0 || self.has_locks()) {
            std::thread::sleep(DRAIN_CHECK_INTERVAL);
            let before = std::mem::replace(&mut traffic, self.traffic());
            if traffic == before && !self.has_locks() {
                break;
            }
        }
        self.end();
    }

    /// Requests and bytes of `root://` clients, and bytes of files over HTTP, so far. Open files without traffic do not
    /// delay the stop: their clients open them again at another server, or at this one later.
    fn traffic(&self) -> [u64; 4] {
        let totals = self.state.logical.sessions.totals();
        let counters =
            [&totals.requests, &totals.bytes_in, &totals.bytes_out, &*self.state.http_bytes];
        counters.map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Whether a remote transaction is in progress.
    fn has_locks(&self) -> bool {
        let mut sessions = self.state.federations.iter().flat_map(|served| served.sessions());
        sessions.any(|session| session.locks() > 0)
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.workers.iter().for_each(|workers| workers.stop());
            let sessions = &self.state.logical.sessions;
            sessions.all().iter().for_each(|session| sessions.remove(session));
            sites::leave(&self.state.federations);
            runtime.shutdown_timeout(Duration::from_secs(1));
            tracing::info!(address = %self.address, "stopped");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The status page and metrics of a server.
fn site(state: &Arc<ServerState>, config: &Config, authenticator: Authenticator) -> Site {
    let (status, draining) = (Arc::clone(state), Arc::clone(state));
    let (recalling, caching) = (Arc::clone(state), Arc::clone(state));
    Site {
        status: Box::new(move || status_report::status(&status)),
        recalls: Box::new(move || recall_report::queues(&recalling)),
        caches: Box::new(move || cache_report::caches(&caching)),
        status_turn: Turn::new(STATUS_WAIT_MAX),
        caches_turn: Turn::new(CACHES_WAIT_MAX),
        is_draining: Box::new(move || draining.is_draining.load(Ordering::Relaxed)),
        metrics: config.metrics_readers(),
        federations: state
            .federations
            .iter()
            .map(|service| (format!("/{}", service.name()), Arc::clone(service.catalog())))
            .collect(),
        authenticator,
    }
}

/// The files of a server over HTTP.
fn file_site(
    state: &ServerState,
    config: &Config,
    authenticator: Authenticator,
    blocking: Handle,
) -> Result<FileSite, StartError> {
    let hosts = &config.copy.hosts;
    let has_tls = config.tls.has_certificate();
    let others = if hosts.is_empty() {
        None
    } else {
        Some(Arc::new(OtherServers::new(hosts.clone(), !has_tls).map_err(StartError::Config)?))
    };
    Ok(FileSite {
        logical: Arc::clone(&state.logical),
        authenticator,
        federations: state.federations.iter().map(|it| format!("/{}", it.name())).collect(),
        buffers: Arc::default(),
        blocking,
        transferred: Arc::clone(&state.http_bytes),
        origins: config.http.origins.clone(),
        others,
    })
}

/// The mounts of all federations.
fn mounted(
    served: Vec<ServedFederation>,
    mounts: impl Fn(&ServedFederation) -> Result<Vec<Mount>, String>,
    authenticator: &Authenticator,
) -> Result<Router, StartError> {
    let mut pages = Router::new();
    for federation in served {
        for mount in mounts(&federation).map_err(StartError::System)? {
            pages = pages.merge(mounts::mounted(mount, federation.clone(), authenticator.clone()));
        }
    }
    Ok(pages)
}

/// Starts the tasks that are not caused by requests.
fn start_tasks(
    runtime: &Runtime,
    root_workers: &Workers,
    state: &Arc<ServerState>,
    tokens: Option<Arc<Tokens>>,
) {
    runtime.spawn(sites::renew(Arc::clone(state)));
    if let Some(tokens) = tokens {
        runtime.spawn(async move { tokens.keep_keys().await });
    }
    runtime.spawn(Arc::clone(&state.logical).close_idle());
    for federation in &state.federations {
        runtime.spawn(Arc::clone(federation).sweep_earlier());
    }
    for (_, cache) in &state.caches {
        runtime.spawn(Arc::clone(cache).clear_idle());
    }
    if let Some(redirector) = state.logical.redirector.clone() {
        root_workers.spawn(async move { redirector.watch().await });
    }
}

/// Serves connections of `root://` on these threads.
fn serve_root(service: xroot::RootService, workers: Arc<Workers>) -> ServeRoot {
    let service = Arc::new(service);
    Box::new(move |stream, slot| {
        let service = Arc::clone(&service);
        workers.serve(stream, |stream| async move {
            xroot::serve(stream, service).await;
            drop(slot);
        })
    })
}

fn start_workers(name: &str, blocking: usize) -> Result<Arc<Workers>, StartError> {
    Workers::start(name, cores(), blocking).map(Arc::new).map_err(no_threads)
}

fn blocking_threads(open: &OpenExports) -> usize {
    let has_waits = !open.disks.is_empty() || !open.caches.is_empty() || !open.in_place.is_empty();
    if has_waits { WAITING_THREADS_PER_CORE } else { BLOCKING_THREADS_PER_CORE }
}

fn runtime(blocking_per_core: usize) -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(blocking_per_core * cores())
        .thread_name("femtobarn")
        .enable_all()
        .build()
        .map_err(no_threads)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn no_threads(error: std::io::Error) -> StartError {
    StartError::System(format!("cannot start threads: {error}"))
}

/// The error of listening on an address.
fn cannot_listen(address: impl std::fmt::Display, error: &std::io::Error) -> StartError {
    let failed = format!("cannot listen on {address}: {error}");
    match error.kind() {
        ErrorKind::AddrInUse => {
            StartError::System(format!("{failed}; another program has the port, take another one"))
        }
        ErrorKind::PermissionDenied => {
            StartError::Denied(format!("{failed}; ports below 1024 need root, take another one"))
        }
        _ => StartError::System(failed),
    }
}

/// Checks a configuration, and returns its address. Other machines can reach that only over TLS, or because `tls.off`
/// is set.
fn checked(config: &Config) -> Result<SocketAddr, StartError> {
    config.check().map_err(StartError::Config)?;
    let at = (config.listen_address().trim_matches(['[', ']']), config.port);
    let text = format!("{}:{}", at.0, at.1);
    let address = std::net::ToSocketAddrs::to_socket_addrs(&at)
        .map_err(|error| cannot_listen(&text, &error))?
        .next()
        .ok_or_else(|| StartError::Config(format!("cannot listen on {text}: no such address")))?;
    config.check_address(address.ip()).map_err(StartError::Config)?;
    Ok(address)
}

/// Listens on an address, and returns it with the port. The address can be reused at once after a restart.
fn bind(runtime: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let open = || {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let _entered = runtime.enter();
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|error| cannot_listen(address, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_only_root_may_have_is_denied() {
        let failed = |kind: ErrorKind| cannot_listen("0.0.0.0:80", &kind.into());
        assert!(matches!(failed(ErrorKind::PermissionDenied), StartError::Denied(_)));
        assert!(matches!(failed(ErrorKind::AddrInUse), StartError::System(_)));
    }
}
