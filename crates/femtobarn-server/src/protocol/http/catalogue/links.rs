//! The targets of a container's links: the names of the containers that stored links refer to by numbers.

use std::collections::BTreeMap;

use femtobarn_catalog::{ContainerId, Error, ErrorKind, LocalCatalogue, Result};
use serde::Deserialize;

use super::{Catalogues, Question};

/// Targets of a question.
const TARGETS_MAX: usize = 1000;

#[derive(Deserialize)]
pub(super) struct LinksQuery {
    csn: Option<u64>,
    database: String,
    container: String,
    /// The targets, each as `POSITION.CONTAINER` as links store them, separated by commas.
    to: String,
}

impl Question for LinksQuery {
    /// `DATABASE/CONTAINER` by target; targets that the snapshot does not have are left out.
    type Shown = BTreeMap<String, String>;

    fn look(
        &self,
        catalogues: &Catalogues,
        name: &str,
        catalog: &LocalCatalogue,
    ) -> Result<Self::Shown> {
        let targets: Vec<&str> = self.to.split(',').filter(|target| !target.is_empty()).collect();
        if targets.len() > TARGETS_MAX {
            let what = format!("links are looked up for at most {TARGETS_MAX} targets at once");
            return Err(Error::Invalid { what });
        }
        let looked = catalogues.at(name, catalog, self.csn)?;
        let at = looked.at;
        let own = catalog.database(&self.database, at)?;
        let container = catalog.container(own.id, &self.container, at)?;
        let others = catalog.link_targets(own.id, container.id)?;
        let mut found = BTreeMap::new();
        for target in targets {
            let (position, id) = parsed(target)?;
            let database = match position.checked_sub(1) {
                None => Some(own.clone()),
                Some(other) => match others.get(other) {
                    Some(uuid) => catalog.database_by_uuid_at(*uuid, at)?,
                    None => None,
                },
            };
            let Some(database) = database else { continue };
            match catalog.container_by_id(database.id, id, at) {
                Ok(row) => {
                    found.insert(target.to_owned(), format!("{}/{}", database.name, row.name));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

fn parsed(target: &str) -> Result<(usize, ContainerId)> {
    let numbers = target
        .split_once('.')
        .and_then(|(position, id)| Some((position.parse().ok()?, ContainerId(id.parse().ok()?))));
    numbers.ok_or_else(|| Error::Invalid {
        what: format!("{target:?} is not the target of a link, such as 1.3"),
    })
}
