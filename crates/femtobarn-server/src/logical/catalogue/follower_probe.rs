//! Asks the servers to which readers may be redirected, every second, whether they have a copy, up to which commit, and
//! for their load. The log reports a server that gets no readers.

use std::net::IpAddr;
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

/// Failed questions in a row after which the log reports that a server gets no readers.
const FAILED_MAX: u32 = 10;

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

/// Whether a server, named `host:port`, is at an address that means another machine to each of its clients.
pub fn is_at_local_address(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_local = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    host == "localhost" || address.is_ok_and(|address| is_local(address.to_canonical()))
}

/// The questions to a server that failed since its last answer.
#[derive(Debug, Default)]
struct FailedQuestions(u32);

impl FailedQuestions {
    /// Counts one; returns whether the log is to report it: once, until the server answers.
    fn count(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0 == FAILED_MAX
    }

    /// Records an answer; returns whether the log has reported that there was none.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.0) >= FAILED_MAX
    }
}

fn watch(federation: &Weak<FederationService>, server: &str) {
    let mut failed = FailedQuestions::default();
    while let Some(service) = federation.upgrade() {
        let name = service.name().to_owned();
        let uuid = service.catalog().uuid();
        drop(service);
        let url = format!("root://{server}//{name}");
        // Without TLS no token of this server's user is sent.
        let options = ConnectOptions { patience: PATIENCE, ..ConnectOptions::default() };
        let why = match RemoteCatalogue::connect(&url, &options) {
            Ok(catalogue) if catalogue.uuid() == uuid => {
                ask_while_it_answers(federation, server, &catalogue, &mut failed)
            }
            Ok(_) => "it has another federation of this name".to_owned(),
            Err(error) => error.to_string(),
        };
        if failed.count() {
            tracing::warn!(federation = name, follower = server, why, "a follower gets no readers");
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

/// Asks a server until it does not answer, or has another history; returns why no readers are sent there then.
fn ask_while_it_answers(
    federation: &Weak<FederationService>,
    server: &str,
    catalogue: &RemoteCatalogue,
    failed: &mut FailedQuestions,
) -> String {
    loop {
        let answer = catalogue.head_and_load().map(|(at, load)| (at, load.running));
        // This server must be able to stop meanwhile, so its federation is not held while another server is asked.
        let Some(here) = federation.upgrade().map(|service| service.catalog().clone()) else {
            return String::new();
        };
        let answer = match answer {
            Ok((at, _)) if !has_same_history(&here, catalogue, at) => {
                Err("it has other commits than this server".to_owned())
            }
            answer => answer.map_err(|error| error.to_string()),
        };
        let Some(service) = federation.upgrade() else { return String::new() };
        service.followers().answered(server, answer.as_ref().ok().copied());
        if let Err(why) = answer {
            return why;
        }
        if failed.end() {
            let federation = service.name();
            tracing::info!(federation, follower = server, "a follower gets readers again");
        }
        drop(service);
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_answers_is_reported_once_until_it_answers() {
        let mut failed = FailedQuestions::default();
        for _ in 0..2 {
            let reported: Vec<_> = (1..1000).filter(|_| failed.count()).collect();
            assert_eq!(reported, [FAILED_MAX]);
            assert!(failed.end() && !failed.end());
        }
        assert!(!failed.count() && !failed.end(), "it was silent for a moment");
    }

    #[test]
    fn addresses_of_this_machine_are_distinguished() {
        for local in [
            "127.0.0.2:1095",
            "localhost:1",
            "0.0.0.0:1",
            "[::1]:1",
            "[::]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_at_local_address(local), "{local}");
        }
        for other in ["10.0.0.2:1095", "disk1.example:1095", "[fd00::1]:1", "localhost.example:1"] {
            assert!(!is_at_local_address(other), "{other}");
        }
    }
}
