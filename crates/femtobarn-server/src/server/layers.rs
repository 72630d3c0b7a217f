//! The logical layer of a server, from its configuration.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use femtobarn_archive::Recaller;

use super::descriptors::held_files_max;
use super::error::StartError;
use super::no_threads;
use crate::config::Config;
use crate::logical::catalogue::{self, FederationService};
use crate::logical::exports::Exports;
use crate::logical::follower_placement::ToFollowers;
use crate::logical::placement::{FirstOf, Placement};
use crate::logical::stage_requests::StageRequests;
use crate::logical::{Logical, Settings};

/// The logical layer of a server.
pub(super) fn logical(
    config: &Config,
    exports: Exports,
    federations: &[Arc<FederationService>],
    recallers: &[(String, Arc<Recaller>)],
) -> Result<Logical, StartError> {
    let mut logical = Logical::new(settings(config), exports);
    logical.placement = placement(config, federations, &logical.exports)?;
    logical.redirector = config.redirector().map_err(StartError::Config)?.map(Arc::new);
    let folders = recallers.iter().map(|(_, recaller)| recaller.archive().folder());
    logical.stage_requests = StageRequests::open(folders);
    Ok(logical)
}

/// The policy of redirects: to followers first.
fn placement(
    config: &Config,
    federations: &[Arc<FederationService>],
    exports: &Arc<Exports>,
) -> Result<Arc<dyn Placement>, StartError> {
    let others = config.placement().map_err(StartError::Config)?;
    let servers = &config.redirect.followers;
    if federations.is_empty() || servers.is_empty() && config.site.name.is_empty() {
        return Ok(others);
    }
    let listens_at = config.listen_address();
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    if listens_at != "localhost" && !listens_at.parse().is_ok_and(is_loopback) {
        for follower in servers.iter().filter(|server| catalogue::is_at_local_address(server)) {
            tracing::warn!(
                follower,
                "clients on other machines are redirected to a follower at an address of their own machine; name the \
                 follower by an address in redirect.followers that they reach"
            );
        }
    }
    for federation in federations {
        catalogue::watch_followers(federation, servers).map_err(no_threads)?;
    }
    let followers = ToFollowers { federations: federations.to_vec(), exports: Arc::clone(exports) };
    Ok(Arc::new(FirstOf(followers, others)))
}

fn settings(config: &Config) -> Settings {
    let (logical, limits) = (&config.logical, &config.limits);
    let unless_0 = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    Settings {
        reuse_files: logical.reuse_files,
        eliminate_syncs: logical.eliminate_syncs,
        keep_checksums: logical.keep_checksums,
        pass_files: logical.pass_files,
        close_idle_files: unless_0(logical.close_idle_files_seconds),
        end_idle_sessions: unless_0(limits.idle_seconds),
        held_files_max: held_files_max(),
        machine_percent: limits.machine_percent,
        ..Settings::default()
    }
}
