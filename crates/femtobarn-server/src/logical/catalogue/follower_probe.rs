//! Asks the servers to which readers may be redirected, every second, whether they have a copy, up to which commit, and
//! for their load.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Csn, LocalCatalogue};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};

use super::service::FederationService;

/// Between two questions to a server.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait for a server.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks servers, each named `host:port`, until the federation is no longer served. Each server has a thread, so that a
/// silent one delays no other.
///
/// # Errors
/// The operating system's if it cannot start a thread.
pub fn watch_followers(
    federation: &Arc<FederationService>,
    servers: &[String],
) -> std::io::Result<()> {
    for server in servers {
        let (federation, server) = (Arc::downgrade(federation), server.clone());
        let name = "femtobarn-copy".to_owned();
        thread::Builder::new().name(name).spawn(move || watch(&federation, &server))?;
    }
    Ok(())
}

fn watch(federation: &Weak<FederationService>, server: &str) {
    while let Some(service) = federation.upgrade() {
        let url = format!("root://{server}//{}", service.name());
        let uuid = service.catalog().uuid();
        drop(service);
        // Without TLS no token of this server's user is sent.
        let options = ConnectOptions { patience: PATIENCE, ..ConnectOptions::default() };
        if let Ok(catalogue) = RemoteCatalogue::connect(&url, &options)
            && catalogue.uuid() == uuid
        {
            ask_while_it_answers(federation, server, &catalogue);
        }
        thread::sleep(INTERVAL);
    }
}

/// Whether the newest commit that both have is the same: a server that a promotion has left behind has other commits.
fn has_same_history(here: &LocalCatalogue, there: &RemoteCatalogue, at: Csn) -> bool {
    let Ok(head) = here.head() else { return false };
    let common = head.min(at);
    let transaction = |catalogue: &dyn Catalogue| {
        catalogue.commit_by_csn(common).map(|commit| commit.transaction)
    };
    match (transaction(here), transaction(there)) {
        (Ok(here), Ok(there)) => here == there,
        // Neither has a commit.
        _ => common == Csn::ZERO,
    }
}

fn ask_while_it_answers(
    federation: &Weak<FederationService>,
    server: &str,
    catalogue: &RemoteCatalogue,
) {
    loop {
        let answer = catalogue.head_and_load().ok().map(|(at, load)| (at, load.running));
        // This server must be able to stop meanwhile, so its federation is not held while another server is asked.
        let Some(here) = federation.upgrade().map(|service| service.catalog().clone()) else {
            return;
        };
        let answer = answer.filter(|(at, _)| has_same_history(&here, catalogue, *at));
        let Some(service) = federation.upgrade() else { return };
        service.followers().answered(server, answer);
        if answer.is_none() {
            return;
        }
        drop(service);
        thread::sleep(INTERVAL);
    }
}
