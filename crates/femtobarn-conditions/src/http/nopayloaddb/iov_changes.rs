//! Changes of IOVs: creating them, inserting them into lists, deleting them.
//!
//! The list of a locked tag takes only IOVs that do not overlap with its own, and an IOV without an end after the last
//! one without an end. In any other list a new IOV hides the IOVs that it overlaps with.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use femtobarn::{ContainerKey, Result, Transaction};
use serde::Deserialize;
use serde_json::Value;

use super::answers::{JsonText, body, denied, invalid, not_found};
use super::list_changes::writable;
use super::listings::iov_numbers;
use super::moments::{ENDLESS, IovMoment};
use super::names;
use super::overview::{NamedList, TagOverview};
use super::pending_iovs::NewIov;
use super::service::{PayloadService, SharedService};
use super::stored_payloads::{append, range};
use crate::global_tag::GlobalTagState;
use crate::series::Series;

#[derive(Deserialize)]
struct AttachedIov {
    payload_list: String,
    piov_id: i64,
}

#[derive(Deserialize)]
struct ListedIov {
    payload_list: String,
    #[serde(flatten)]
    iov: NewIov,
}

/// Creates an IOV that is in no list yet.
pub(super) async fn create(State(service): SharedService, text: Bytes) -> Response {
    service
        .read(move |service| {
            let iov: NewIov = body(&text)?;
            check_order(&iov)?;
            let id = service.pending.add(iov.clone());
            JsonText::of(&iov_row(&iov, id, None))
        })
        .await
}

/// An IOV that is in no list yet.
pub(super) async fn pending(State(service): SharedService, Path(number): Path<String>) -> Response {
    service
        .read(move |service| {
            let missing = || not_found(format!("payload IOV {number:?} does not exist"));
            let id = number.parse().map_err(|_| missing())?;
            JsonText::of(&iov_row(&service.pending.find(id)?, id, None))
        })
        .await
}

pub(super) async fn attach(State(service): SharedService, text: Bytes) -> Response {
    let change =
        move |service: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let AttachedIov { payload_list, piov_id } = body(&text)?;
            let iov = service.pending.find(piov_id)?;
            insert(service, overview, transaction, &payload_list, std::slice::from_ref(&iov))?;
            Ok((payload_list, piov_id, iov))
        };
    let answer = |service: &PayloadService, (list, id, iov): (String, i64, NewIov)| {
        service.pending.remove(id);
        JsonText::of(&iov_row(&iov, id, Some(&list)))
    };
    service.write("payload IOV inserted".to_owned(), change, answer).await
}

/// Inserts many IOVs in one commit.
pub(super) async fn insert_many(State(service): SharedService, text: Bytes) -> Response {
    let change =
        move |service: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let listed: Vec<ListedIov> = body(&text)?;
            let mut by_list: BTreeMap<String, Vec<NewIov>> = BTreeMap::new();
            for ListedIov { payload_list, iov } in listed {
                by_list.entry(payload_list).or_default().push(iov);
            }
            for (list, iovs) in &by_list {
                insert(service, overview, transaction, list, iovs)?;
            }
            Ok(())
        };
    let answer = |_: &PayloadService, ()| JsonText::of(&Value::Null);
    service.write("payload IOVs inserted".to_owned(), change, answer).await
}

pub(super) async fn delete(State(service): SharedService, Path(iov): Path<String>) -> Response {
    let message = format!("payload IOV {iov} deleted");
    let change =
        move |service: &PayloadService, overview: &TagOverview, transaction: &mut Transaction| {
            let IovAddress { tag, type_name, start, end } = address_of(&iov)?;
            let lists = overview.tag(tag)?;
            let type_path = names::path_of(type_name);
            let list = lists.lists.get(&*type_path).ok_or_else(|| {
                not_found(format!("global tag {tag:?} has no list of payload type {type_name:?}"))
            })?;
            let of = NamedList { tag: Some(lists), type_path, list: list.clone() };
            let (key, _) = writable(service, transaction, &of)?;
            let series = Series::open(vec![transaction.view_by_key(key)?])?;
            let clock = series.options().clock;
            let (since, until) = (start.since(clock)?, end.until(clock)?);
            let found = series.interval(0, since)?;
            let entry = found.entry.filter(|_| (found.since, found.until) == (since, until));
            let entry = entry.ok_or_else(|| {
                not_found(format!(
                    "global tag {tag:?} has no IOV of payload type {type_name:?} from {:?} to {:?}",
                    (start.major, start.minor),
                    (end.major, end.minor)
                ))
            })?;
            transaction.delete(key, &[entry])?;
            Ok(())
        };
    let answer = |_: &PayloadService, ()| JsonText::detail("payload IOV was deleted");
    service.write(message, change, answer).await
}

fn insert(
    service: &PayloadService,
    overview: &TagOverview,
    transaction: &mut Transaction,
    list: &str,
    iovs: &[NewIov],
) -> Result<()> {
    let of = overview.list(list)?;
    let (key, path) = writable(service, transaction, &of)?;
    let is_locked = of.tag.is_some_and(|it| it.tag.state == GlobalTagState::Locked);
    for iov in iovs {
        if is_locked {
            check_only_adds(transaction, key, iov)?;
        }
        append(transaction, key, &path, iov)?;
    }
    Ok(())
}

/// Refuses an IOV that would hide another.
fn check_only_adds(transaction: &mut Transaction, key: ContainerKey, iov: &NewIov) -> Result<()> {
    let series = Series::open(vec![transaction.view_by_key(key)?])?;
    let (since, until) = range(iov, series.options().clock)?;
    let overlapping = series.intervals(0, since..until)?;
    let is_after = |it: &crate::timeline::Interval| it.since < since && it.until == ENDLESS;
    if until == ENDLESS && overlapping.len() == 1 && is_after(&overlapping[0]) {
        return Ok(());
    }
    let Some(found) = overlapping.first() else { return Ok(()) };
    let clock = series.options().clock;
    let shown = |moment| {
        let IovMoment { major, minor } = IovMoment::of(moment, clock);
        format!("({major}, {minor})")
    };
    Err(denied(format!(
        "the global tag is locked, and the IOV of {} from {} to {} overlaps with one from {} to {}; unlock the tag to \
         change validities",
        iov.payload_url,
        shown(since),
        shown(until),
        shown(found.since),
        shown(found.until)
    )))
}

fn check_order(iov: &NewIov) -> Result<()> {
    let key = |it: IovMoment| (it.major, it.minor);
    let (start, end) = (key(iov.start()), key(iov.end()));
    if start < end {
        return Ok(());
    }
    Err(invalid(format!(
        "the IOV of {} must end after its beginning: it begins at {start:?} and ends at {end:?}, which it does not contain",
        iov.payload_url
    )))
}

/// The address by which clients delete an IOV.
struct IovAddress<'a> {
    tag: &'a str,
    type_name: &'a str,
    start: IovMoment,
    end: IovMoment,
}

/// Parses `TAG/TYPE/MAJOR/MINOR`, optionally followed by `/MAJOR/MINOR` of the end and by `/delete`.
fn address_of(path: &str) -> Result<IovAddress<'_>> {
    let parts: Vec<&str> = path.strip_suffix("/delete").unwrap_or(path).split('/').collect();
    let numbers: Option<Vec<i64>> = parts.iter().skip(2).map(|it| it.parse().ok()).collect();
    let moment = |pair: &[i64]| IovMoment { major: pair[0], minor: pair[1] };
    match (&*parts, numbers.as_deref()) {
        ([tag, type_name, ..], Some(numbers)) if matches!(numbers.len(), 2 | 4) => Ok(IovAddress {
            tag,
            type_name,
            start: moment(numbers),
            end: numbers.get(2..4).map_or(IovMoment { major: ENDLESS, minor: ENDLESS }, moment),
        }),
        _ => Err(invalid(format!(
            "{path:?} names no IOV; write TAG/TYPE/MAJOR/MINOR, and MAJOR/MINOR of its end if it has one"
        ))),
    }
}

fn iov_row(iov: &NewIov, id: i64, list: Option<&str>) -> Value {
    let mut row = iov_numbers(id, iov.start(), iov.end(), list);
    row["payload_url"] = iov.payload_url.clone().into();
    row["checksum"] = iov.checksum.clone().into();
    row
}
