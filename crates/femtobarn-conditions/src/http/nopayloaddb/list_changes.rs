//! Changes of payload types and payload lists.

use std::collections::HashSet;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use femtobarn::{ContainerKey, ContainerOptions, ErrorKind, Result, Snapshot, Transaction};
use serde::Deserialize;

use super::answers::{JsonText, body, denied, exists, invalid};
use super::listings::{list_row, type_row};
use super::names;
use super::overview::{NamedList, TagOverview};
use super::service::{PayloadService, SharedService};
use super::stored_payloads::{PayloadKind, create_payload_series, create_series};
use super::tag_changes::change_lists;
use crate::global_tag::{GlobalTagState, TagChange};

/// Entries that are copied at once.
const COPIED_AT_ONCE: u64 = 64 << 10;

#[derive(Deserialize)]
struct NewType {
    name: String,
}

#[derive(Deserialize)]
struct NewList {
    payload_type: String,
}

#[derive(Deserialize)]
struct Attachment {
    payload_list: String,
    global_tag: String,
}

pub(super) async fn create_type(State(service): SharedService, text: Bytes) -> Response {
    let change = move |_: &PayloadService,
                       overview: &TagOverview,
                       transaction: &mut Transaction| {
        let NewType { name } = body(&text)?;
        let path = names::path_of(&name);
        if overview.types.contains_key(&*path) {
            return Err(exists(format!("payload type {name:?} exists already")));
        }
        if names::type_of_list(&path).is_some_and(|of| overview.types.contains_key(of)) {
            return Err(invalid(format!(
                "payload type {name:?} would be taken for a list of another type; choose a name without a number at its end"
            )));
        }
        create_payload_series(transaction, &path)?;
        Ok(name)
    };
    let answer = |service: &PayloadService, name: String| {
        let (path, row) = service.overview()?.type_row(&name)?;
        JsonText::of(&type_row(service, &path, row))
    };
    service.write("new payload type".to_owned(), change, answer).await
}

pub(super) async fn delete_type(
    State(service): SharedService,
    Path(name): Path<String>,
) -> Response {
    let message = format!("payload type {name} deleted");
    let change = move |service: &PayloadService,
                       overview: &TagOverview,
                       transaction: &mut Transaction| {
        let (path, row) = overview.type_row(&name)?;
        let attached =
            overview.tags.values().filter(|it| it.tag.series.contains_key(&path)).count();
        let lists =
            overview.detached.keys().filter(|it| names::type_of_list(it) == Some(&*path)).count();
        if attached + lists > 0 {
            return Err(exists(format!(
                "payload type {name:?} has {} payload lists; delete them first",
                attached + lists
            )));
        }
        if row.conditions > 0 {
            return Err(exists(format!(
                "payload type {name:?} has {} conditions; it is not deleted",
                row.conditions
            )));
        }
        check_is_payload(&service.federation.snapshot(None)?, &path)?;
        let (database, container) = names::parts(&path);
        let database = transaction.database(database)?;
        transaction.drop_container(database, container)?;
        Ok(name.clone())
    };
    let answer = |_: &PayloadService, name: String| {
        JsonText::detail(&format!("payload type {name} was deleted"))
    };
    service.write(message, change, answer).await
}

/// Creates a list that belongs to no tag yet.
pub(super) async fn create_list(State(service): SharedService, text: Bytes) -> Response {
    let change =
        move |service: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let NewList { payload_type } = body(&text)?;
            let (type_path, row) = overview.type_row(&payload_type)?;
            let path = unused_list_path(transaction, &type_path)?;
            match row.id {
                None => create_payload_series(transaction, &path)?,
                Some(_) => {
                    let of = service.federation.snapshot(None)?.view(&type_path)?;
                    let options = ContainerOptions::from_json(&of.container().options)?;
                    create_series(transaction, &path, of.class(), options)?
                }
            };
            Ok(names::name_of(&path))
        };
    service.write("new payload list".to_owned(), change, list_answer).await
}

pub(super) async fn attach_list(State(service): SharedService, text: Bytes) -> Response {
    let change = move |_: &PayloadService,
                       overview: &TagOverview,
                       transaction: &mut Transaction| {
        let Attachment { payload_list, global_tag } = body(&text)?;
        let NamedList { tag, type_path, list } = overview.list(&payload_list)?;
        let to = overview.tag(&global_tag)?;
        match tag {
            Some(of) if of.tag.name == global_tag => return Ok(payload_list),
            Some(of) => {
                return Err(exists(format!(
                    "payload list {payload_list:?} belongs to global tag {:?}; clone the tag, or make a new list",
                    of.tag.name
                )));
            }
            None => {}
        }
        if to.tag.state == GlobalTagState::Locked && to.lists.contains_key(&*type_path) {
            return Err(denied(format!(
                "global tag {global_tag:?} is locked and has a list of payload type {}",
                names::name_of(&type_path)
            )));
        }
        change_lists(transaction, &to.tag, to.following(&type_path, &list.path))?;
        Ok(payload_list)
    };
    service.write("payload list attached".to_owned(), change, list_answer).await
}

pub(super) async fn delete_list(
    State(service): SharedService,
    Path(name): Path<String>,
) -> Response {
    let message = format!("payload list {name} deleted");
    let change =
        move |_: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let NamedList { tag, type_path, list } = overview.list(&name)?;
            let count = list.row.conditions;
            if count > 0 {
                return Err(exists(format!(
                    "payload list {name:?} has {count} payload IOVs; delete them first"
                )));
            }
            if let Some(tag) = tag.filter(|it| it.tag.series.contains_key(&type_path)) {
                let change = TagChange { remove: vec![type_path.clone()], ..Default::default() };
                change_lists(transaction, &tag.tag, change)?;
            }
            let mut lists = overview.tags.values().flat_map(|it| it.lists.values());
            let readers = lists.by_ref().filter(|it| it.path == list.path).count();
            if names::type_of_list(&list.path) == Some(&*type_path)
                && readers <= 1
                && list.csn.is_none()
            {
                let (database, container) = names::parts(&list.path);
                let database = transaction.database(database)?;
                transaction.drop_container(database, container)?;
            }
            Ok(name.clone())
        };
    let answer = |_: &PayloadService, name: String| {
        JsonText::detail(&format!("payload list {name} was deleted"))
    };
    service.write(message, change, answer).await
}

/// The container of a list, ready for a change. If its tag reads the list as of a commit, the list is copied first, and
/// from then on the tag reads the copy.
///
/// # Errors
/// `Denied` if the tag is frozen.
pub(super) fn writable(
    service: &PayloadService,
    transaction: &mut Transaction,
    of: &NamedList<'_>,
) -> Result<(ContainerKey, String)> {
    let NamedList { tag, type_path, list } = of;
    if let Some(tag) = tag.filter(|it| it.tag.state == GlobalTagState::Frozen) {
        return Err(denied(format!("global tag {:?} is frozen for ever", tag.tag.name)));
    }
    let Some((tag, csn)) = tag.zip(list.csn) else {
        let (database, container) = names::parts(&list.path);
        let database = transaction.database(database)?;
        return Ok((transaction.container(database, container)?, list.path.to_string()));
    };
    let view = service.federation.snapshot(Some(csn))?.view(&list.path)?;
    let path = unused_list_path(transaction, type_path)?;
    let options = ContainerOptions::from_json(&view.container().options)?;
    let key = create_series(transaction, &path, view.class(), options)?;
    let all = view.select_all();
    for run in view.live_runs(0..view.entries())? {
        for start in run.clone().step_by(COPIED_AT_ONCE as usize) {
            let entries = start..(start + COPIED_AT_ONCE).min(run.end);
            transaction.extend(key, view.read(&all, entries)?)?;
        }
    }
    change_lists(transaction, &tag.tag, tag.following(type_path, &path))?;
    Ok((key, path))
}

/// The path of a new list of a type.
fn unused_list_path(transaction: &mut Transaction, type_path: &str) -> Result<String> {
    let (database, _) = names::parts(type_path);
    let snapshot = transaction.snapshot()?;
    let databases = snapshot.databases()?;
    let mut taken = HashSet::new();
    if let Some(found) = databases.iter().find(|it| it.name == database) {
        taken.extend(
            snapshot.containers(found.id)?.into_iter().map(|it| format!("{database}/{}", it.name)),
        );
    }
    let mut paths = (1..).map(|number| names::list_path(type_path, number));
    Ok(paths.find(|path| !taken.contains(path)).expect("numbers do not end"))
}

fn check_is_payload(snapshot: &Snapshot, path: &str) -> Result<()> {
    let view = match snapshot.view(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        view => view?,
    };
    if PayloadKind::of(view.class())? == PayloadKind::Other {
        let class = view.class().name.clone();
        return Err(denied(format!(
            "series {path} has objects of class {class}; drop it with Femtobarn's own functions"
        )));
    }
    Ok(())
}

fn list_answer(service: &PayloadService, name: String) -> Result<JsonText> {
    let overview = service.overview()?;
    let found = overview.list(&name)?;
    JsonText::of(&list_row(service, found.tag.map(|it| &*it.tag), &found.type_path, &found.list))
}
