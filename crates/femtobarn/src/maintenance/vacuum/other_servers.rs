//! The part of a vacuum that concerns the other servers of a federation: their pinned snapshots, and locks of
//! databases.
//!
//! The horizon is raised before the servers are asked, and a reader pins before it looks at the horizon: one of the two
//! sees the other, whatever server the reader uses.

use std::time::Duration;

use femtobarn_catalog::{KeptSnapshots, LocalCatalogue, ServerRow};
use femtobarn_rpc::client::{ConnectOptions, RemoteCatalogue};

use crate::error::{Error, Result};
use crate::storage::remote::connect::connect_options;

/// How long to wait for a server.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the federation's servers, through which databases are locked; `None` if no server has joined the
/// federation.
///
/// # Errors
/// `Unavailable` if no server answers.
pub(super) fn connect(catalog: &LocalCatalogue) -> Result<Option<RemoteCatalogue>> {
    let servers = catalog.servers()?;
    let mut failed = None;
    for server in servers.iter().filter(|server| server.is_alive) {
        match RemoteCatalogue::connect(&server.url, &connect_options(PATIENCE)) {
            Ok(connected) => return Ok(Some(connected)),
            Err(error) => failed = Some(error),
        }
    }
    let silent = || femtobarn_catalog::Error::Unavailable {
        what: "no server of the federation is alive; start the server of this folder".to_owned(),
    };
    if servers.is_empty() { Ok(None) } else { Err(failed.unwrap_or_else(silent).into()) }
}

/// Adds the snapshots before the horizon that live servers have pinned.
///
/// # Errors
/// `Unavailable` if a server whose lease is valid does not answer: its readers may need any snapshot.
pub(super) fn with_their_pins(
    catalog: &LocalCatalogue,
    mut kept: KeptSnapshots,
) -> Result<KeptSnapshots> {
    for server in catalog.servers()?.into_iter().filter(|server| server.is_alive) {
        let options = ConnectOptions { has_alternatives: true, ..connect_options(PATIENCE) };
        let asked = RemoteCatalogue::connect(&server.url, &options)
            .and_then(|there| there.survey(Some(kept.horizon)));
        kept.csns.extend(asked.map_err(|error| silent(&server, &error.to_string()))?.pins);
    }
    kept.csns.sort_unstable();
    kept.csns.dedup();
    Ok(kept)
}

fn silent(server: &ServerRow, why: &str) -> Error {
    let what = format!(
        "server {:?} does not report which snapshots its readers need: {why}; vacuum again when it answers or its \
         lease has expired",
        server.name
    );
    femtobarn_catalog::Error::Unavailable { what }.into()
}
