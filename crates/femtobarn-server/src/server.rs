//! A server from its configuration: what is served, who may come, the port, and how it ends.
//!
//! 1. Threads are bounded by cores: for `root://`, for HTTP and gRPC, and some of each for what may block; more
//!    for `root://` where that waits for throttled disks. So who waits for a disk does not keep catalogues waiting.
//!    One more accepts connections, and tidies up.
//! 2. Certificates, keys of tokens' issuers and the log's level can change while it runs. A new one that is wrong is
//!    logged, and the old one stays. All other settings are read once, at the start.
//! 3. When a server is told to stop it takes no more connections, waits for copies and transactions that
//!    are under way for as long as was configured, and ends what is left.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::auth::Tokens;
use crate::config::{self, Config};
use crate::exporting::{self, Disks, Exported};
use crate::logging;
use crate::logical::catalogue::FederationService;
use crate::logical::{Logical, Settings};
use crate::monitoring;
use crate::protocol::http::{self, Site};
use crate::protocol::listen::{self, ConnectionCounts, Protocols};
use crate::protocol::workers::Workers;
use crate::protocol::{rpc, xroot};
use crate::status::Status;
use crate::tls::{self, Certificates};

/// Threads for what may block, for each core.
const BLOCKING_THREADS_PER_CORE: usize = 16;
/// The same for `root://` where disks are throttled: those who wait for one are not to keep others from
/// another. Each may hold a buffer.
const WAITING_THREADS_PER_CORE: usize = 1024;
/// How long nobody may have moved anything for a server that is about to stop to end.
const DRAIN_LOOK: Duration = Duration::from_millis(250);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Why a server did not start; texts for its operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// The server's user lacks a right to the port, or to a folder that is to be served.
    #[error("{0}")]
    Denied(String),
    /// The system refused something else.
    #[error("{0}")]
    System(String),
}

/// A server that is running, in threads of its own. Dropping it stops it at once.
pub struct Server {
    address: SocketAddr,
    exports: Vec<String>,
    drain: Duration,
    reloading: Mutex<Reloading>,
    watched: Arc<ServerState>,
    accepting: JoinHandle<()>,
    /// For `root://`, and for the rest.
    workers: [Arc<Workers>; 2],
    /// None only while it is stopped.
    runtime: Option<Runtime>,
}

/// What can change while a server runs.
struct Reloading {
    /// As it is now in force.
    config: Config,
    certificates: Option<Arc<Certificates>>,
    tokens: Option<Arc<Tokens>>,
}

/// What is told of a server.
pub(crate) struct ServerState {
    pub started: Instant,
    /// The names of exports.
    pub exports: Vec<String>,
    pub is_draining: AtomicBool,
    pub counts: Arc<ConnectionCounts>,
    pub logical: Arc<Logical>,
    pub federations: Vec<Arc<FederationService>>,
    pub disks: Vec<Disks>,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// [`StartError`], with what is wrong and where.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let Exported { exports, names, federations, disks } = exporting::open(&config)?;
        let authenticator = config.authenticator().map_err(StartError::Config)?;
        let tls = tls::server_config(&config.tls).map_err(StartError::Config)?;
        let (tls, certificates) = tls.unzip();
        let tokens = authenticator.tokens.clone();
        let runtime = runtime()?;
        let blocking = match disks.is_empty() {
            true => BLOCKING_THREADS_PER_CORE,
            false => WAITING_THREADS_PER_CORE,
        };
        let start = |name, blocking| {
            Workers::start(name, cores(), blocking).map(Arc::new).map_err(no_threads)
        };
        let root_workers = start("femtobarn-root", blocking)?;
        let http_workers = start("femtobarn-http", BLOCKING_THREADS_PER_CORE)?;
        let workers = [Arc::clone(&root_workers), Arc::clone(&http_workers)];
        let mut logical = Logical::new(settings(&config), exports);
        logical.placement = config.placement().map_err(StartError::Config)?;
        let logical = Arc::new(logical);
        let counts = Arc::new(ConnectionCounts::default());
        let watched = Arc::new(ServerState {
            started: Instant::now(),
            exports: names.clone(),
            is_draining: AtomicBool::new(false),
            counts: Arc::clone(&counts),
            logical: Arc::clone(&logical),
            federations: federations.clone(),
            disks,
        });
        let (status, draining) = (Arc::clone(&watched), Arc::clone(&watched));
        let site = Arc::new(Site {
            status: Box::new(move || monitoring::status(&status)),
            status_turn: Arc::new(Semaphore::new(1)),
            is_draining: Box::new(move || draining.is_draining.load(Ordering::Relaxed)),
            metrics: config.metrics_readers(),
            federations: federations
                .iter()
                .map(|served| (format!("/{}", served.name()), Arc::clone(served.catalog())))
                .collect(),
            authenticator: authenticator.clone(),
        });
        let remote = rpc::routes(federations, authenticator.clone());
        let mut root = xroot::Shared::new(Arc::clone(&logical), authenticator);
        root.tls.clone_from(&tls);
        root.requires_tls = config.tls.required;
        let root = Arc::new(root);
        let protocols = Arc::new(Protocols {
            root: {
                Box::new(move |stream, place| {
                    let root = Arc::clone(&root);
                    root_workers.serve(stream, |stream| async move {
                        xroot::serve(stream, root).await;
                        drop(place);
                    })
                })
            },
            http: http::routes(site).merge(remote),
            http_workers,
            tls,
            is_tls_required: config.tls.required,
            connections_max: config.limits.connections,
            counts,
        });
        let listener = listener(&runtime, &config)?;
        let address =
            listener.local_addr().map_err(|error| StartError::System(error.to_string()))?;
        let accepting = runtime.spawn(listen::accept(listener, protocols));
        runtime.spawn(logical.keep_tidy());
        tracing::info!(%address, exports = ?names, "serving");
        let drain = Duration::from_secs(config.limits.drain_seconds);
        let runtime = Some(runtime);
        let reloading = Mutex::new(Reloading { config, certificates, tokens });
        Ok(Server {
            address,
            exports: names,
            drain,
            reloading,
            watched,
            accepting,
            workers,
            runtime,
        })
    }

    /// Takes what can change while it runs from a configuration: certificates, from files that may have been
    /// written anew under the old names, keys of tokens' issuers, and the log's level. The log says what was
    /// taken.
    ///
    /// # Errors
    /// Texts of what is wrong, which the log has, too; for that the old stays in force.
    pub fn reload(&self, config: &Config) -> Result<(), Vec<String>> {
        let mut reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, mut wrong) = (vec![], vec![]);
        reloading.take_all(config, &mut taken, &mut wrong);
        tracing::info!(taken = taken.join(", "), "reloaded");
        for what in &wrong {
            tracing::error!(what, "not reloaded; the old stays in force");
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The names that paths begin with.
    pub fn exports(&self) -> Vec<String> {
        self.exports.clone()
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        monitoring::status(&self.watched)
    }

    /// Takes no more connections, waits for those that are open, and ends.
    pub fn stop(mut self) {
        self.watched.is_draining.store(true, Ordering::Release);
        self.accepting.abort();
        let (end, mut moved) = (Instant::now() + self.drain, self.moved());
        while Instant::now() < end {
            std::thread::sleep(DRAIN_LOOK);
            let before = std::mem::replace(&mut moved, self.moved());
            if moved == before && !self.has_locks() {
                break;
            }
        }
        self.end();
    }

    /// What clients of `root://` asked for and moved so far. Files that are open and not used are no work:
    /// their clients open them again elsewhere, or here.
    fn moved(&self) -> [u64; 3] {
        let totals = self.watched.logical.sessions.totals();
        [&totals.requests, &totals.bytes_in, &totals.bytes_out].map(|c| c.load(Ordering::Relaxed))
    }

    /// Whether a transaction from afar goes on.
    fn has_locks(&self) -> bool {
        let mut sessions = self.watched.federations.iter().flat_map(|served| served.sessions());
        sessions.any(|session| session.locks() > 0)
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.workers.iter().for_each(|workers| workers.stop());
            let sessions = &self.watched.logical.sessions;
            sessions.all().iter().for_each(|session| sessions.remove(session));
            runtime.shutdown_timeout(Duration::from_secs(1));
            tracing::info!(address = %self.address, "stopped");
        }
    }
}

impl Reloading {
    fn take_all(&mut self, new: &Config, taken: &mut Vec<String>, wrong: &mut Vec<String>) {
        if let Some(certificates) = &self.certificates
            && !new.tls.certificate.as_os_str().is_empty()
        {
            match certificates.read_again(&new.tls) {
                Ok(()) => {
                    taken.push(format!("the certificate {}", new.tls.certificate.display()));
                    self.config.tls.certificate.clone_from(&new.tls.certificate);
                    self.config.tls.key.clone_from(&new.tls.key);
                }
                Err(what) => wrong.push(what),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.read_again() {
                Ok(count) => taken.push(format!("the keys of {count} issuers of tokens")),
                Err(what) => wrong.extend(what),
            }
        }
        if self.config.log.level != new.log.level {
            match logging::set_level(&new.log) {
                Ok(true) => {
                    taken.push(format!("log.level {}", new.log.level));
                    self.config.log.level.clone_from(&new.log.level);
                }
                Ok(false) => {
                    wrong.push("the log is another program's, with a level of its own".into())
                }
                Err(what) => wrong.push(what),
            }
        }
        // What could not be taken was told of.
        let old = &self.config;
        let tls = config::Tls { required: new.tls.required, ..old.tls.clone() };
        let log = config::Log { format: new.log.format, ..old.log.clone() };
        let has_tls = |tls: &config::Tls| !tls.certificate.as_os_str().is_empty();
        if *old != (Config { tls, log, ..new.clone() }) || has_tls(&old.tls) != has_tls(&new.tls) {
            wrong.push("other settings changed, too; they take a restart".to_owned());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn settings(config: &Config) -> Settings {
    let (logical, limits) = (&config.logical, &config.limits);
    let unless_0 = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    Settings {
        reuse_files: logical.reuse_files,
        eliminate_syncs: logical.eliminate_syncs,
        keep_checksums: logical.keep_checksums,
        close_idle_files: unless_0(logical.close_idle_files_seconds),
        end_idle_sessions: unless_0(limits.idle_seconds),
        ..Settings::default()
    }
}

fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
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

/// What keeps a server from its port.
fn cannot_listen(address: &str, error: &std::io::Error) -> StartError {
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

/// The port, so that a server that was restarted has it again at once.
fn listener(runtime: &Runtime, config: &Config) -> Result<TcpListener, StartError> {
    let text = format!("{}:{}", config.address, config.port);
    let cannot = |error| cannot_listen(&text, &error);
    let address: SocketAddr = std::net::ToSocketAddrs::to_socket_addrs(&text)
        .map_err(cannot)?
        .next()
        .ok_or_else(|| StartError::Config(format!("{text} is not an address to listen on")))?;
    let bind = || {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let _entered = runtime.enter();
        TcpListener::from_std(socket.into())
    };
    bind().map_err(cannot)
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
