//! A federation as of a commit: its identity, its sums, its classes and how they link, its tags.

use std::collections::BTreeMap;

use femtobarn_catalog::{CommitRow, LocalCatalogue, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Catalogues, Question};

#[derive(Deserialize)]
pub(super) struct OverviewQuery {
    csn: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Overview {
    name: String,
    uuid: String,
    /// The newest commit.
    head: u64,
    /// The requested commit.
    csn: u64,
    /// The newest commit up to `csn`; `None` before the first one.
    commit: Option<CommitSummary>,
    databases: usize,
    containers: usize,
    objects: u64,
    bytes: u64,
    classes: Vec<ClassSummary>,
    tags: Vec<TagSummary>,
}

/// A class that has containers.
#[derive(Serialize)]
struct ClassSummary {
    name: String,
    containers: usize,
    objects: u64,
    bytes: u64,
    /// The definition of the newest version that containers have.
    definition: Value,
}

#[derive(Serialize)]
struct TagSummary {
    name: String,
    csn: u64,
    message: String,
}

/// A commit in a list.
#[derive(Serialize)]
pub(super) struct CommitSummary {
    csn: u64,
    time_us: i64,
    message: String,
    user: String,
    host: String,
}

impl From<CommitRow> for CommitSummary {
    fn from(row: CommitRow) -> Self {
        let CommitRow { csn, time_us, message, user, host, .. } = row;
        CommitSummary { csn: csn.0, time_us, message, user, host }
    }
}

impl Question for OverviewQuery {
    type Shown = Overview;

    fn look(
        &self,
        catalogues: &Catalogues,
        name: &str,
        catalog: &LocalCatalogue,
    ) -> Result<Overview> {
        let looked = catalogues.at(name, catalog, self.csn)?;
        let rows = looked.containers.iter().filter(|row| !row.container.is_empty());
        // Containers, objects, bytes and the newest version of each class.
        let mut sums: BTreeMap<&str, (usize, u64, u64, u32)> = BTreeMap::new();
        for row in rows {
            let sum = sums.entry(&row.class).or_default();
            let version = sum.3.max(row.class_version);
            *sum = (sum.0 + 1, sum.1 + row.objects, sum.2 + row.bytes, version);
        }
        let classes = sums.iter().map(|(class, (containers, objects, bytes, version))| {
            Ok(ClassSummary {
                name: (*class).to_owned(),
                containers: *containers,
                objects: *objects,
                bytes: *bytes,
                definition: definition(catalog, class, *version)?,
            })
        });
        let mut names: Vec<&str> =
            looked.containers.iter().map(|row| row.database.as_str()).collect();
        names.dedup();
        let tags = catalog.tags()?.into_iter();
        let tags =
            tags.map(|row| TagSummary { name: row.name, csn: row.csn.0, message: row.message });
        Ok(Overview {
            name: catalog.name().to_owned(),
            uuid: catalog.uuid().to_string(),
            head: looked.head.0,
            csn: looked.at.0,
            commit: catalog.commits_until(looked.at, "", 1)?.pop().map(CommitSummary::from),
            databases: names.len(),
            containers: sums.values().map(|sum| sum.0).sum(),
            objects: sums.values().map(|sum| sum.1).sum(),
            bytes: sums.values().map(|sum| sum.2).sum(),
            classes: classes.collect::<Result<_>>()?,
            tags: tags.collect(),
        })
    }
}

/// The definition of a class; null if it is not JSON.
///
/// # Errors
/// The errors of [`LocalCatalogue::class`].
pub(super) fn definition(catalog: &LocalCatalogue, class: &str, version: u32) -> Result<Value> {
    let row = catalog.class(class, Some(version))?;
    Ok(serde_json::from_str(&row.definition).unwrap_or_default())
}
