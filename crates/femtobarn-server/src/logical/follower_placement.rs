//! Redirects of readers to copies of a federation.
//!
//! 1. A server is chosen only if it answered within the last seconds and has the requested snapshot: without a number,
//!    that is the newest commit here, which the client is then told to request. So a reader that has just learned of a
//!    commit finds it.
//! 2. Of this server and all eligible ones, two are drawn, and the one with the lower load is chosen: the requests in
//!    progress that it reported, plus the clients that it was sent since.
//! 3. Writers stay here, and so do clients that read files as they are on disk, or request a tag.

use std::sync::Arc;

use femtobarn_catalog::Csn;

use super::catalogue::{CopyServer, FederationService};
use super::exports::Exports;
use super::placement::{Neighbour, Opening, Placement, is_below, less_loaded, was_tried};
use crate::physical::{Opaque, StoragePath};

/// Redirects readers to copies that follow.
pub struct ToFollowers {
    /// The federations of this server.
    pub federations: Vec<Arc<FederationService>>,
    /// The exports, which measure this server's load.
    pub exports: Arc<Exports>,
}

impl Placement for ToFollowers {
    fn redirect_target(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        opening: Opening,
    ) -> Option<Neighbour> {
        let stays = |key| opaque.value_of(key).is_some();
        if opening.is_writing || stays("fb.raw") || stays("fb.tag") {
            return None;
        }
        let federation = self
            .federations
            .iter()
            .find(|service| is_below(&path.as_bytes()[1..], service.name().as_bytes()))?;
        let servers = federation.followers().servers();
        if servers.is_empty() {
            return None;
        }
        let asked =
            opaque.value_of("fb.csn").map(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let needed = match asked {
            Some(csn) => Csn(csn?),
            None => federation.catalog().head().ok()?,
        };
        let servers: Vec<(Neighbour, CopyServer)> = servers
            .into_iter()
            .filter(|server| server.at >= needed)
            .filter_map(|server| {
                Some((neighbour(&server.address, asked.is_none(), needed)?, server))
            })
            .filter(|(there, _)| !was_tried(&there.host, opaque))
            .collect();
        // Number 0 is this server.
        let load = |number: u64| match number {
            0 => self.exports.requests_running(),
            other => servers[other as usize - 1].1.load(),
        };
        let chosen = less_loaded(servers.len() as u64 + 1, load);
        let (there, server) = servers.get(chosen.checked_sub(1)? as usize)?;
        federation.followers().sent_to(&server.address);
        Some(there.clone())
    }

    fn may_redirect(&self) -> bool {
        let has_others = |service: &Arc<FederationService>| {
            service.site().is_some() || !service.followers().servers().is_empty()
        };
        self.federations.iter().any(has_others)
    }
}

/// A server, and the commit that a client has to read there if it did not request one.
fn neighbour(address: &str, is_unnamed: bool, at: Csn) -> Option<Neighbour> {
    let (host, port) = address.rsplit_once(':')?;
    let opaque = if is_unnamed { format!("fb.csn={at}") } else { String::new() };
    Some(Neighbour { host: host.to_owned(), port: port.parse().ok()?, opaque })
}
