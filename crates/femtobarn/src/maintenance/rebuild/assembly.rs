//! The rows of a catalogue that a history of transactions makes.

use std::collections::BTreeMap;

use femtobarn_catalog::{
    Author, ClassRow, CommitRow, ContainerId, ContainerRecord, ContainerRow, Contents, Csn,
    DatabaseId, DatabaseRecord, DatabaseRow, DatabaseState, LinkTargets, NameRow, TagRow,
    VersionRow,
};
use uuid::Uuid;

use super::RebuildReport;
use super::history::{History, RecordedTransaction};
use super::scanned_file::ScannedFile;
use super::tags;
use crate::storage::commit_record::{self, CommitRecord, End};
use crate::storage::scan::FoundRecord;

/// The rows that a history implies, and those of tags.
pub(super) fn contents(
    history: &History<'_>,
    files: &[ScannedFile],
    tagged: &[(TagRow, CommitRow)],
    report: &mut RebuildReport,
) -> Contents {
    let mut assembly = Assembly::default();
    for transaction in &history.transactions {
        assembly.apply(transaction, files);
    }
    tags::restore(&mut assembly.contents, tagged);
    for file in files.iter().filter(|file| file.is_sealed) {
        assembly.seal(&file.path);
    }
    for file in files.iter().filter(|file| !assembly.has(&file.path)) {
        report.left_out.push(format!("{}: no complete commit", file.path));
    }
    let Assembly { mut contents, databases, containers, targets, .. } = assembly;
    contents.databases = databases.into_values().collect();
    contents.containers = containers.into_values().collect();
    let linked = targets.into_iter().filter(|(_, targets)| !targets.is_empty());
    contents.link_targets = linked
        .map(|((database, container), targets)| LinkTargets { database, container, targets })
        .collect();
    contents
}

#[derive(Default)]
struct Assembly {
    contents: Contents,
    databases: BTreeMap<DatabaseId, DatabaseRecord>,
    containers: BTreeMap<(DatabaseId, ContainerId), ContainerRecord>,
    targets: BTreeMap<(DatabaseId, ContainerId), Vec<(Uuid, Csn)>>,
    last_us: i64,
}

impl Assembly {
    fn apply(&mut self, transaction: &RecordedTransaction<'_>, files: &[ScannedFile]) {
        let Some((_, first)) = transaction.parts.first() else { return };
        let CommitRecord { time_us, message, author, .. } = &first.record;
        self.commit(transaction.csn, transaction.id, *time_us, message.clone(), author.clone());
        for (file, found) in &transaction.parts {
            self.apply_part(transaction.csn, &files[*file].path, found);
        }
    }

    fn commit(
        &mut self,
        csn: Csn,
        transaction: Uuid,
        time_us: i64,
        message: String,
        author: Option<Author>,
    ) {
        // Times of commits ascend, even if a clock stepped back.
        self.last_us = self.last_us.max(time_us);
        let time_us = self.last_us;
        let nobody = || Author { user: String::new(), host: String::new(), pid: 0 };
        let Author { user, host, pid } = author.unwrap_or_else(nobody);
        let row = CommitRow { csn, transaction, time_us, message, user, host, pid };
        self.contents.commits.push(row);
    }

    fn apply_part(&mut self, csn: Csn, path: &str, found: &FoundRecord) {
        let record = &found.record;
        let database =
            self.databases.entry(record.number).or_insert_with(|| database_of(record, path, csn));
        rename(&mut database.names, &record.name, csn);
        database.row.name.clone_from(&record.name);
        if let Some(end) = record.end {
            database.dropped = Some(csn);
            database.keeps_file = end == End::Detached;
            database.names.iter_mut().for_each(|name| end_name(name, csn));
            return;
        }
        for container in &record.containers {
            self.apply_version(csn, found, container);
        }
        for (id, name) in &record.renamed {
            if let Some(container) = self.containers.get_mut(&(record.number, *id)) {
                rename(&mut container.names, name, csn);
                container.row.name.clone_from(name);
            }
        }
        for id in &record.dropped {
            if let Some(container) = self.containers.get_mut(&(record.number, *id)) {
                container.dropped = Some(csn);
                container.names.iter_mut().for_each(|name| end_name(name, csn));
            }
        }
    }

    fn apply_version(
        &mut self,
        csn: Csn,
        found: &FoundRecord,
        of: &commit_record::RecordedVersion,
    ) {
        let key = (found.record.number, of.id);
        let class = of.class.row();
        let is_known = |(known, _): &(ClassRow, Csn)| {
            (&known.name, known.version) == (&class.name, class.version)
        };
        if !self.contents.classes.iter().any(is_known) {
            self.contents.classes.push((class, csn));
        }
        let container = self.containers.entry(key).or_insert_with(|| container_of(key.0, of, csn));
        // A later version proves that the drop was never committed.
        if container.dropped.take().is_some() {
            container.names.last_mut().into_iter().for_each(|name| name.until = None);
        }
        rename(&mut container.names, &of.name, csn);
        container.row.name.clone_from(&of.name);
        let targets = self.targets.entry(key).or_default();
        let known = targets.len();
        targets.extend(of.link_targets.iter().skip(known).map(|uuid| (*uuid, csn)));
        self.contents.versions.push(VersionRow {
            database: key.0,
            container: key.1,
            csn,
            header: of.header,
            footer: of.footer,
            annex: of.annex,
            record: found.range,
            class_version: of.class.version,
            entries: of.entries,
            deleted: of.deleted,
            bytes: of.bytes,
        });
    }

    /// Sealing writes no record, but its file is complete.
    fn seal(&mut self, path: &str) {
        let next = self.contents.commits.last().map_or(1, |commit| commit.csn.0 + 1);
        let open = self.databases.values_mut();
        let Some(database) = open.rev().find(|it| it.row.path == path && it.dropped.is_none())
        else {
            return;
        };
        database.sealed = Some(Csn(next));
        let message = format!("seal {}", database.row.name);
        self.commit(Csn(next), Uuid::new_v4(), self.last_us, message, None);
    }

    fn has(&self, path: &str) -> bool {
        self.databases.values().any(|database| database.row.path == path)
    }
}

fn database_of(record: &CommitRecord, path: &str, csn: Csn) -> DatabaseRecord {
    DatabaseRecord {
        row: DatabaseRow {
            id: record.number,
            uuid: record.database,
            name: record.name.clone(),
            path: path.to_owned(),
            state: DatabaseState::Open,
            created: csn,
            epoch: 0,
        },
        sealed: None,
        dropped: None,
        keeps_file: false,
        names: vec![],
    }
}

fn container_of(
    database: DatabaseId,
    of: &commit_record::RecordedVersion,
    csn: Csn,
) -> ContainerRecord {
    ContainerRecord {
        row: ContainerRow {
            database,
            id: of.id,
            name: of.name.clone(),
            class: of.class.name.clone(),
            class_version: of.class.version,
            options: of.options.to_json(),
            created: csn,
        },
        dropped: None,
        names: vec![],
    }
}

/// Adds a name, valid from commit `since` on.
fn rename(names: &mut Vec<NameRow>, name: &str, since: Csn) {
    if names.last().is_some_and(|last| last.name == name && last.until.is_none()) {
        return;
    }
    names.iter_mut().for_each(|before| end_name(before, since));
    names.push(NameRow { name: name.to_owned(), since, until: None });
}

fn end_name(name: &mut NameRow, until: Csn) {
    name.until = name.until.or(Some(until));
}
