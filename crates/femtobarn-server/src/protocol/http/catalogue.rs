//! `/api/federations`: the contents of catalogues, for the status page.

use std::collections::HashMap;

use femtobarn_catalog::{Csn, LocalCatalogue, Result};
use serde::Serialize;

/// Commits that are shown.
const COMMITS_SHOWN: u64 = 50;
/// Databases, and containers, that are shown of a federation.
const ROWS_SHOWN: usize = 2000;

/// The contents of a federation as of a commit.
#[derive(Debug, Serialize)]
pub(super) struct FederationContents {
    name: String,
    uuid: String,
    head: u64,
    csn: u64,
    databases: Vec<DatabaseSummary>,
    /// Whether databases or containers were left out.
    is_cut: bool,
    commits: Vec<CommitSummary>,
    tags: Vec<TagSummary>,
}

#[derive(Debug, Serialize)]
struct DatabaseSummary {
    name: String,
    state: String,
    uuid: String,
    containers: Vec<ContainerSummary>,
}

#[derive(Debug, Serialize)]
struct ContainerSummary {
    name: String,
    class: String,
    class_version: u32,
    objects: u64,
    bytes: u64,
    csn: u64,
}

#[derive(Debug, Serialize)]
struct CommitSummary {
    csn: u64,
    time_us: i64,
    message: String,
    user: String,
    host: String,
}

#[derive(Debug, Serialize)]
struct TagSummary {
    name: String,
    csn: u64,
    message: String,
}

/// The contents of a catalogue as of a commit, by default the newest.
///
/// # Errors
/// Those of the catalogue: `NotFound` if the commit's snapshot is gone, or that of a failed read.
pub(super) fn contents(catalog: &LocalCatalogue, csn: Option<u64>) -> Result<FederationContents> {
    let head = catalog.head()?;
    let at = csn.map_or(head, |csn| Csn(csn.min(head.0)));
    let mut left = ROWS_SHOWN;
    let mut databases = vec![];
    let rows = catalog.databases(at)?;
    let is_cut = rows.len() > ROWS_SHOWN;
    for row in rows.into_iter().take(ROWS_SHOWN) {
        let versions: HashMap<_, _> = match left {
            0 => HashMap::new(),
            _ => {
                catalog.newest_versions(row.id, at)?.into_iter().map(|v| (v.container, v)).collect()
            }
        };
        let containers = match left {
            0 => vec![],
            _ => catalog.containers(row.id, at)?,
        };
        let containers = containers.into_iter().take(left).map(|container| {
            let version = versions.get(&container.id);
            ContainerSummary {
                name: container.name,
                class: container.class,
                class_version: container.class_version,
                objects: version.map_or(0, |v| v.entries.saturating_sub(v.deleted)),
                bytes: version.map_or(0, |v| v.bytes),
                csn: version.map_or(container.created, |v| v.csn).0,
            }
        });
        let containers: Vec<_> = containers.collect();
        left -= containers.len();
        databases.push(DatabaseSummary {
            name: row.name,
            state: row.state.to_string(),
            uuid: row.uuid.to_string(),
            containers,
        });
    }
    let commits = catalog.history(COMMITS_SHOWN)?.into_iter().map(|row| CommitSummary {
        csn: row.csn.0,
        time_us: row.time_us,
        message: row.message,
        user: row.user,
        host: row.host,
    });
    let tags = catalog.tags()?.into_iter();
    let tags = tags.map(|row| TagSummary { name: row.name, csn: row.csn.0, message: row.message });
    Ok(FederationContents {
        name: catalog.name().to_owned(),
        uuid: catalog.uuid().to_string(),
        head: head.0,
        csn: at.0,
        databases,
        is_cut: is_cut || left == 0,
        commits: commits.collect(),
        tags: tags.collect(),
    })
}
