//! A container of a file that is being attached, as its anchor or its newest commit record describes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use femtobarn_catalog::{
    BlobRange, ContainerId, DatabaseId, EnvelopeRange, NewContainer, NewVersion,
};
use femtobarn_format::link;
use rntuple::{Anchor, DELETED_FIELD, Reader, tfile};
use uuid::Uuid;

use crate::ContainerOptions;
use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::description::{self, DESCRIPTION, Description};
use crate::error::{Error, Result};
use crate::schema::class::Class;
use crate::storage::commit_record::RecordedVersion;
use crate::storage::file::DatabaseFile;
use crate::storage::scan::{self, NewestState};
use crate::transaction::range;

/// A container that is being attached.
pub(super) struct IncomingContainer {
    pub(super) name: String,
    pub(super) class: Class,
    options: String,
    pub(super) targets: Vec<Uuid>,
    pub(super) id: Option<ContainerId>,
    header: EnvelopeRange,
    footer: EnvelopeRange,
    annex: BlobRange,
    entries: u64,
    deleted: u64,
    bytes: u64,
    ignored: Vec<(String, String)>,
}

/// The containers of a complete ROOT file.
pub(super) fn anchored(source: &Arc<DatabaseFile>, what: &str) -> Result<Vec<IncomingContainer>> {
    let mut anchors = tfile::anchors(&**source).map_err(Error::storage(what))?;
    let descriptions = description::read(source.clone())?;
    anchors.retain(|(name, _)| name != DESCRIPTION);
    if anchors.is_empty() {
        return Err(Error::invalid(format!(
            "{what} has no RNTuple; TTrees cannot be attached, import them instead"
        )));
    }
    let descriptions: BTreeMap<String, Description> =
        descriptions.into_iter().map(|it| (it.name.clone(), it)).collect();
    check_described(&anchors, &descriptions, what)?;
    let entry = |(name, anchor): &(String, Anchor)| {
        IncomingContainer::anchored(source, name, anchor, descriptions.get(name), what)
    };
    anchors.iter().map(entry).collect()
}

/// The containers of an unsealed database, from its newest commit records.
pub(super) fn recorded(
    source: &Arc<DatabaseFile>,
    uuid: Uuid,
    what: &str,
) -> Result<Vec<IncomingContainer>> {
    let Some(newest) = NewestState::of(scan::records(&**source, uuid, &mut |_| true)?) else {
        return Err(Error::invalid(format!(
            "{what} is incomplete: its writer did not close it, and it has no commit record"
        )));
    };
    let containers = newest.containers.into_values();
    containers.map(|container| IncomingContainer::recorded(source, container, what)).collect()
}

impl IncomingContainer {
    fn anchored(
        source: &Arc<DatabaseFile>,
        name: &str,
        anchor: &Anchor,
        described: Option<&Description>,
        file: &str,
    ) -> Result<Self> {
        let what = || format!("RNTuple {name} of {file}");
        let reader = Reader::from_anchor(source.clone(), anchor)
            .and_then(|reader| reader.check_locations().map(|()| reader))
            .map_err(Error::storage(what()))?;
        check_metadata_keys(&reader, anchor).map_err(Error::storage(what()))?;
        // The name of an RNTuple in a subdirectory has slashes, which separate database and container here.
        let name = name.replace('/', "_");
        let class = match described {
            Some(description) => Class::from_json(&description.definition)?,
            None => Class::of_members(&name, &reader.members()),
        };
        let mut members = reader.members();
        let (annex, deleted) = match described {
            Some(described) => described.annex(&**source, reader.entries())?,
            None => (BlobRange::default(), 0),
        };
        if deleted > 0 {
            members.retain(|(name, _)| name != DELETED_FIELD);
        }
        if described.is_some() && class.members() != members {
            return Err(not_of_class(&what(), &class));
        }
        Ok(IncomingContainer {
            class,
            options: match described {
                Some(description) => description.options.clone(),
                None => ContainerOptions::default().to_json(),
            },
            targets: described.map_or(Ok(vec![]), Description::targets)?,
            id: described.map(|description| ContainerId(description.container)),
            name,
            header: range(&anchor.header),
            footer: range(&anchor.footer),
            annex,
            entries: reader.entries(),
            deleted,
            bytes: reader.stored_bytes(),
            ignored: reader.ignored().to_vec(),
        })
    }

    fn recorded(source: &Arc<DatabaseFile>, of: RecordedVersion, file: &str) -> Result<Self> {
        let what = format!("container {} of {file}", of.name);
        let reader = Reader::from_links(source.clone(), &link(&of.header), &link(&of.footer))
            .and_then(|reader| reader.check_locations().map(|()| reader))
            .map_err(Error::storage(&what))?;
        if reader.members() != of.class.members() {
            return Err(not_of_class(&what, &of.class));
        }
        let annex = Annex::read(&**source, of.annex)?;
        Deletions::new(&annex.deletions, of.deleted, of.entries)?;
        if reader.entries() != of.entries {
            let (read, stated) = (reader.entries(), of.entries);
            return Err(Error::Corrupt {
                what: format!("{what} has {read} entries, but its commit record states {stated}"),
            });
        }
        Ok(IncomingContainer {
            name: of.name,
            class: Arc::unwrap_or_clone(of.class),
            options: of.options.to_json(),
            targets: of.link_targets,
            id: Some(of.id),
            header: of.header,
            footer: of.footer,
            annex: of.annex,
            entries: of.entries,
            deleted: of.deleted,
            bytes: of.bytes,
            ignored: vec![],
        })
    }

    pub(super) fn id(&self) -> ContainerId {
        self.id.expect("every container was numbered")
    }

    pub(super) fn container(&self, database: DatabaseId) -> NewContainer {
        NewContainer {
            database,
            id: self.id(),
            name: self.name.clone(),
            class: self.class.name.clone(),
            class_version: self.class.version,
            options: self.options.clone(),
        }
    }

    pub(super) fn version(&self, database: DatabaseId, record: BlobRange) -> NewVersion {
        NewVersion {
            database,
            container: self.id(),
            base: None,
            header: self.header,
            footer: self.footer,
            annex: self.annex,
            record,
            class_version: self.class.version,
            entries: self.entries,
            deleted: self.deleted,
            bytes: self.bytes,
        }
    }

    pub(super) fn record(&self) -> Result<RecordedVersion> {
        Ok(RecordedVersion {
            id: self.id(),
            name: self.name.clone(),
            class: Arc::new(self.class.clone()),
            options: ContainerOptions::from_json(&self.options)?,
            base: None,
            header: self.header,
            footer: self.footer,
            annex: self.annex,
            entries: self.entries,
            deleted: self.deleted,
            bytes: self.bytes,
            link_targets: self.targets.clone(),
        })
    }

    pub(super) fn targets(
        &self,
        database: DatabaseId,
    ) -> Option<(DatabaseId, ContainerId, Vec<Uuid>)> {
        (!self.targets.is_empty()).then(|| (database, self.id(), self.targets.clone()))
    }

    pub(super) fn ignored(&self) -> Vec<String> {
        let line = |(field, reason): &(String, String)| format!("{}.{field}: {reason}", self.name);
        self.ignored.iter().map(line).collect()
    }
}

fn not_of_class(what: &str, class: &Class) -> Error {
    Error::Corrupt { what: format!("{what}: its fields differ from those of class {}", class.name) }
}

/// Refuses metadata split over several keys: the catalogue stores one range for each envelope.
fn check_metadata_keys(reader: &Reader, anchor: &Anchor) -> rntuple::Result<()> {
    let lists = reader.footer().cluster_groups.iter().map(|group| group.page_list.locator.size);
    let sizes = lists.chain([anchor.header.locator.size, anchor.footer.locator.size]);
    // uproot writes 0 for "no limit".
    if anchor.max_key_size > 0 && sizes.max() > Some(anchor.max_key_size) {
        Err(rntuple::Error::Unsupported {
            what: format!("metadata in several keys of at most {} bytes", anchor.max_key_size),
        })
    } else {
        Ok(())
    }
}

/// Checks that the containers and their descriptions in a file match one to one.
fn check_described(
    anchors: &[(String, Anchor)],
    descriptions: &BTreeMap<String, Description>,
    what: &str,
) -> Result<()> {
    let is_there = |name: &String| anchors.iter().any(|(anchor, _)| anchor == name);
    let missing = descriptions.keys().find(|name| !is_there(name));
    let mut names = anchors.iter().map(|(name, _)| name);
    let unknown = names.find(|name| !descriptions.is_empty() && !descriptions.contains_key(*name));
    match missing.or(unknown) {
        None => Ok(()),
        Some(name) => Err(Error::Corrupt {
            what: format!("{what}: container {name:?} lacks its description or its anchor"),
        }),
    }
}
