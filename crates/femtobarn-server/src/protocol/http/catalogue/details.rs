//! One container as of a snapshot: its class, its history, and its links.

use std::collections::BTreeSet;

use femtobarn_catalog::{LocalCatalogue, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::overview::definition;
use super::{Catalogues, Question};

/// Versions that are shown of a container, the newest ones.
const VERSIONS_SHOWN: usize = 100;

#[derive(Deserialize)]
pub(super) struct DetailsQuery {
    csn: Option<u64>,
    database: String,
    container: String,
}

#[derive(Serialize)]
pub(super) struct Details {
    csn: u64,
    database: String,
    container: String,
    class: String,
    class_version: u32,
    /// The definition of its class.
    definition: Value,
    /// The versions that are kept, the oldest first.
    versions: Vec<VersionSummary>,
    /// The databases that the container's links may point to.
    links_to: BTreeSet<String>,
    created: u64,
    options: Value,
}

#[derive(Serialize)]
struct VersionSummary {
    csn: u64,
    objects: u64,
    deleted: u64,
    bytes: u64,
}

impl Question for DetailsQuery {
    type Shown = Details;

    fn look(
        &self,
        catalogues: &Catalogues,
        name: &str,
        catalog: &LocalCatalogue,
    ) -> Result<Details> {
        let looked = catalogues.at(name, catalog, self.csn)?;
        let at = looked.at;
        let database = catalog.database(&self.database, at)?;
        let container = catalog.container(database.id, &self.container, at)?;
        let versions = catalog.versions(database.id, container.id)?;
        let versions = versions.iter().filter(|version| version.csn <= at);
        let mut versions: Vec<_> = versions
            .rev()
            .take(VERSIONS_SHOWN)
            .map(|version| VersionSummary {
                csn: version.csn.0,
                objects: version.entries.saturating_sub(version.deleted),
                deleted: version.deleted,
                bytes: version.bytes,
            })
            .collect();
        versions.reverse();
        let mut links_to = BTreeSet::new();
        for uuid in catalog.link_targets(database.id, container.id)? {
            links_to.extend(catalog.database_by_uuid_at(uuid, at)?.map(|row| row.name));
        }
        Ok(Details {
            csn: at.0,
            database: database.name,
            definition: definition(catalog, &container.class, container.class_version)?,
            container: container.name,
            class: container.class,
            class_version: container.class_version,
            versions,
            links_to,
            created: container.created.0,
            options: serde_json::from_str(&container.options).unwrap_or_default(),
        })
    }
}
