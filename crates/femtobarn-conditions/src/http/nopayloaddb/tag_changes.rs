//! Changes of global tags: new ones, copies, statuses, deletion.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use femtobarn::{Result, Transaction};
use serde::Deserialize;

use super::answers::{JsonText, body, exists, failed, invalid};
use super::names::{self, STATUSES, state_of};
use super::overview::{TagLists, TagOverview};
use super::service::{PayloadService, SharedService};
use crate::global_tag::{GlobalTag, GlobalTagState, TagChange};

#[derive(Deserialize)]
struct NewTag {
    name: String,
    status: String,
    #[serde(default)]
    author: Option<String>,
}

#[derive(Deserialize)]
struct NewStatus {
    name: String,
}

pub(super) async fn create(State(service): SharedService, text: Bytes) -> Response {
    let change = move |_: &PayloadService, _: &TagOverview, transaction: &mut Transaction| {
        let new: NewTag = body(&text)?;
        let change = TagChange {
            create: Some(None),
            state: Some(named_state(&new.status)?),
            only_listed: Some(true),
            message: new.author.map(|author| format!("created by {author}")).unwrap_or_default(),
            ..Default::default()
        };
        GlobalTag::change_within(transaction, &new.name, &change)?;
        Ok(new.name)
    };
    service.write("new global tag".to_owned(), change, tag_answer).await
}

/// The three statuses are fixed; no others can be created.
pub(super) async fn create_status(text: Bytes) -> Response {
    let error = match body(&text) {
        Ok(NewStatus { name }) if state_of(&name).is_some() => {
            exists(format!("global tag status {name:?} exists already"))
        }
        Ok(NewStatus { name }) => unknown_status(&name),
        Err(error) => error,
    };
    failed(&error)
}

pub(super) async fn clone(
    State(service): SharedService,
    Path((name, clone)): Path<(String, String)>,
) -> Response {
    let message = format!("global tag {clone}: copy of {name}");
    let change =
        move |_: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let original = overview.tag(&name)?;
            let change = TagChange {
                create: Some(Some(name.clone())),
                state: Some(GlobalTagState::Open),
                // Until it is changed, the copy reads the versions that the original has now.
                csn: original.tag.csn.is_none().then_some(Some(overview.csn)),
                message: format!("copy of {name}"),
                ..Default::default()
            };
            GlobalTag::change_within(transaction, &clone, &change)?;
            Ok(clone.clone())
        };
    service.write(message, change, tag_answer).await
}

pub(super) async fn change_status(
    State(service): SharedService,
    Path((name, status)): Path<(String, String)>,
) -> Response {
    let message = format!("global tag {name}: {status}");
    let change =
        move |_: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let state = named_state(&status)?;
            if overview.tag(&name)?.tag.state != state {
                let change = TagChange { state: Some(state), ..Default::default() };
                GlobalTag::change_within(transaction, &name, &change)?;
            }
            Ok(name.clone())
        };
    service.write(message, change, tag_answer).await
}

pub(super) async fn remove(State(service): SharedService, Path(name): Path<String>) -> Response {
    let message = format!("global tag {name} deleted");
    let change =
        move |_: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let lists = overview.tag(&name)?;
            let change = TagChange { state: Some(GlobalTagState::Deleted), ..Default::default() };
            GlobalTag::change_within(transaction, &name, &change)?;
            for path in own_lists(overview, lists) {
                let (database, container) = names::parts(path);
                let database = transaction.database(database)?;
                transaction.drop_container(database, container)?;
            }
            Ok(name.clone())
        };
    let answer = |_: &PayloadService, name: String| {
        JsonText::detail(&format!("global tag {name} was deleted"))
    };
    service.write(message, change, answer).await
}

/// The containers of lists that only this tag reads.
fn own_lists<'a>(overview: &'a TagOverview, of: &'a TagLists) -> impl Iterator<Item = &'a str> {
    let others = || overview.tags.values().filter(|other| other.tag.name != of.tag.name);
    let explicit = of.lists.iter().filter(|(path, list)| {
        of.tag.series.contains_key(&***path)
            && list.csn.is_none()
            && names::type_of_list(&list.path) == Some(&***path)
    });
    let paths = explicit.map(|(_, list)| &*list.path);
    paths.filter(move |path| !others().any(|it| it.lists.values().any(|list| *list.path == **path)))
}

/// Applies a change to a tag. A locked tag may gain lists: it is opened for that, and then locked again.
pub(super) fn change_lists(
    transaction: &mut Transaction,
    tag: &GlobalTag,
    change: TagChange,
) -> Result<()> {
    if tag.state != GlobalTagState::Locked {
        return GlobalTag::change_within(transaction, &tag.name, &change);
    }
    let opened = TagChange { state: Some(GlobalTagState::Open), ..change };
    GlobalTag::change_within(transaction, &tag.name, &opened)?;
    let locked = TagChange { state: Some(GlobalTagState::Locked), ..Default::default() };
    GlobalTag::change_within(transaction, &tag.name, &locked)
}

fn named_state(status: &str) -> Result<GlobalTagState> {
    state_of(status).ok_or_else(|| unknown_status(status))
}

fn unknown_status(status: &str) -> femtobarn::Error {
    let known = STATUSES.map(|(_, name)| name).join(", ");
    invalid(format!("unknown status {status:?} of a global tag; the statuses are {known}"))
}

fn tag_answer(service: &PayloadService, name: String) -> Result<JsonText> {
    let overview = service.overview()?;
    let lists = overview.tag(&name)?;
    JsonText::of(&super::listings::tag_row(lists))
}
