//! The rows that a commit inserts into the catalogue.

use femtobarn_catalog::{
    Commit, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, DroppedDatabase, NewContainer,
    NewDatabase, NewVersion,
};

use super::{ContainerKey, Transaction};
use crate::schema::class::Class;

impl Transaction {
    pub(super) fn catalogue_commit(&self, versions: &[(ContainerKey, NewVersion)]) -> Commit {
        let new_databases = self.databases.values().filter(|open| open.is_new);
        let new_containers = self.containers.values().filter(|open| open.is_new);
        // Rows of a container without a new version wait for its next one: a fork may have added them.
        let changed = self.containers.iter().filter(|(_, open)| open.is_changed);
        let link_targets = changed.filter_map(|(key, open)| {
            let new = open.targets[open.known_targets..].to_vec();
            (!new.is_empty()).then_some((key.database, key.container, new))
        });
        Commit {
            transaction: self.id,
            message: self.options.message.clone(),
            new_databases: new_databases.map(|open| new_database(&open.row)).collect(),
            new_containers: new_containers.map(|open| new_container(&open.row)).collect(),
            new_classes: self.new_classes.iter().map(Class::row).collect(),
            versions: versions.iter().map(|(_, version)| *version).collect(),
            link_targets: link_targets.collect(),
            renamed_databases: self
                .names
                .renamed_databases
                .iter()
                .map(|(id, (seen, name))| (*id, *seen, name.clone()))
                .collect(),
            renamed_containers: self.renamed_containers(),
            dropped_databases: self.dropped_databases(),
            dropped_containers: self
                .dropped_containers()
                .map(|(key, seen)| (key.database, key.container, seen))
                .collect(),
            reads: self
                .reads
                .iter()
                .map(|(key, at)| (key.database, key.container, Some(*at)))
                .collect(),
            ..Commit::default()
        }
    }

    /// Dropped containers that were committed before; each with the commit that was the newest at that time.
    pub(super) fn dropped_containers(&self) -> impl Iterator<Item = (ContainerKey, Csn)> {
        let is_old =
            |key: &ContainerKey| !self.dropped.containers.get(key).is_some_and(|open| open.is_new);
        let dropped = self.names.dropped_containers.iter();
        dropped.filter(move |(key, _)| is_old(key)).map(|(key, seen)| (*key, *seen))
    }

    fn renamed_containers(&self) -> Vec<(DatabaseId, ContainerId, Csn, String)> {
        let renamed = self.names.renamed_containers.iter();
        let named = renamed.filter_map(|(key, seen)| {
            let name = self.containers.get(key)?.row.name.clone();
            Some((key.database, key.container, *seen, name))
        });
        named.collect()
    }

    fn dropped_databases(&self) -> Vec<DroppedDatabase> {
        let is_old =
            |id: &DatabaseId| !self.dropped.databases.get(id).is_some_and(|open| open.is_new);
        let dropped = self.names.dropped_databases.iter().filter(|(id, _)| is_old(id));
        dropped.map(|(&id, &(seen, keeps_file))| DroppedDatabase { id, seen, keeps_file }).collect()
    }
}

fn new_database(row: &DatabaseRow) -> NewDatabase {
    NewDatabase {
        id: row.id,
        uuid: row.uuid,
        name: row.name.clone(),
        path: row.path.clone(),
        state: row.state,
    }
}

fn new_container(row: &ContainerRow) -> NewContainer {
    NewContainer {
        database: row.database,
        id: row.id,
        name: row.name.clone(),
        class: row.class.clone(),
        class_version: row.class_version,
        options: row.options.clone(),
    }
}
