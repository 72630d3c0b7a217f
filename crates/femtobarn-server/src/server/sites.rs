//! A server among several of a federation: it joins, renews its leases, and leaves when it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_catalog::{ErrorKind, JoiningServer};
use tokio::task::{JoinSet, spawn_blocking};

use super::error::StartError;
use super::state::ServerState;
use crate::config::Config;
use crate::logical::catalogue::{FederationService, Site, watch_deadlocks};
use crate::physical::{Storage, StoragePath};

/// The number of renewals of a lease within its duration.
const RENEWALS: u32 = 4;

/// Joins the federations that a server with this address serves, if it is configured as one of several.
///
/// # Errors
/// [`StartError`] if one of them cannot have several servers, or has an alive server of this name elsewhere.
pub(super) fn join(
    config: &Config,
    federations: &[Arc<FederationService>],
    address: SocketAddr,
) -> Result<(), StartError> {
    let site = &config.site;
    if site.name.is_empty() {
        return Ok(());
    }
    if federations.is_empty() {
        return Err(StartError::Config("site.name: the server has no federation".to_owned()));
    }
    let server = if site.url.is_empty() { own_url(config, address) } else { site.url.clone() };
    let server = server.trim_end_matches('/');
    let storage = if site.storage.is_empty() { &site.name } else { &site.storage };
    let lease = Duration::from_secs(site.lease_seconds);
    let joined = federations.iter().try_for_each(|federation| {
        let (name, storage) = (site.name.clone(), storage.clone());
        let own = JoiningServer { name, storage, url: format!("{server}//{}", federation.name()) };
        join_one(federation, own, lease)
    });
    if joined.is_err() {
        leave(federations);
    }
    joined
}

fn join_one(
    federation: &FederationService,
    own: JoiningServer,
    lease: Duration,
) -> Result<(), StartError> {
    let joined = Site::join(Arc::clone(federation.catalog()), own.clone(), lease);
    let joined = joined.map_err(|error| {
        let what = format!("cannot join {} as {:?}: {error}", federation.name(), own.name);
        match error.kind() {
            ErrorKind::Denied => StartError::Denied(what),
            ErrorKind::Unsupported => StartError::Unsupported(what),
            ErrorKind::Unavailable => StartError::System(what),
            _ => StartError::Config(what),
        }
    })?;
    tracing::info!(federation = federation.name(), site = own.name, url = own.url, "joined");
    federation.be_at(Arc::new(joined));
    Ok(())
}

/// Renews the leases of a server for ever, and looks for deadlocks with the other servers. The catalogue of one
/// federation does not delay the lease in another.
pub(super) async fn renew(state: Arc<ServerState>) {
    let mut renewals = JoinSet::new();
    for (federation, site) in state.federations.iter().filter_map(|it| Some((it, it.site()?))) {
        if let Err(error) = watch_deadlocks(federation, site.name()) {
            tracing::error!(%error, "cannot look for deadlocks across servers");
        }
        renewals.spawn(renew_in(Arc::clone(&state), Arc::clone(federation), Arc::clone(site)));
    }
    while renewals.join_next().await.is_some() {}
}

async fn renew_in(state: Arc<ServerState>, federation: Arc<FederationService>, site: Arc<Site>) {
    let pause = site.lease() / RENEWALS;
    loop {
        let (state, federation, site) =
            (Arc::clone(&state), Arc::clone(&federation), Arc::clone(&site));
        // It fails only while the server is shutting down.
        let _ = spawn_blocking(move || renew_one(&state, &federation, &site)).await;
        tokio::time::sleep(pause).await;
    }
}

fn renew_one(state: &ServerState, federation: &FederationService, site: &Site) {
    let exports = &state.logical.exports;
    let space = StoragePath::new(format!("/{}", federation.name()).as_bytes());
    let space = space.and_then(|path| exports.space(&path));
    let free_bytes = space.map_or(0, |space| space.free);
    if let Err(error) = site.renew(free_bytes, exports.requests_running()) {
        tracing::warn!(federation = federation.name(), %error, "the lease was not renewed");
    }
}

/// Ends the leases of a server that stops.
pub(super) fn leave(federations: &[Arc<FederationService>]) {
    federations.iter().filter_map(|federation| federation.site()).for_each(|site| site.leave());
}

/// The URL of a server whose configuration has none: from the address that it listens on, or the name of the machine.
fn own_url(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.tls.required { "roots" } else { "root" };
    let (ip, port) = (address.ip(), address.port());
    if !ip.is_unspecified() {
        return format!("{scheme}://{address}");
    }
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{scheme}://{}:{port}", name.unwrap_or_else(|| "localhost".to_owned()))
}
