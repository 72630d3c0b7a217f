//! Lists of global tags, payload types, payload lists and IOVs.

use axum::extract::{OriginalUri, Path, State};
use axum::response::{IntoResponse, Response};
use femtobarn::{Csn, Result};
use http::HeaderMap;
use serde_json::{Value, json};

use super::answers::{JsonText, QueryOf, checked, failed, not_found};
use super::moments::{IovMoment, time_text};
use super::names::{self, STATUSES, status_of};
use super::overview::{ListOfTag, PayloadRow, TagLists};
use super::paging::PageQuery;
use super::payload_lists::ValidPayload;
use super::service::{PayloadService, SharedService};
use crate::global_tag::GlobalTag;

/// All tags, or a page of them.
pub(super) async fn tags(State(service): SharedService, query: QueryOf<PageQuery>) -> Response {
    service
        .read(move |service| {
            let query = checked(query)?;
            let overview = service.overview()?;
            let with_status =
                |it: &&TagLists| PageQuery::admits(query.status.as_ref(), status_of(it.tag.state));
            let rows: Vec<Value> =
                overview.tags.values().filter(with_status).map(tag_row).collect();
            query.answer(rows, &["name", "author"], "name")
        })
        .await
}

/// All tags with their lists and the lists' IOVs.
pub(super) async fn tags_with_lists(State(service): SharedService) -> Response {
    service
        .read(|service| {
            let overview = service.overview()?;
            let rows = overview.tags.values().map(|tag| tag_with_lists(service, tag));
            JsonText::of(&rows.collect::<Result<Vec<_>>>()?)
        })
        .await
}

pub(super) async fn tag(
    State(service): SharedService,
    Path(name): Path<String>,
    query: QueryOf<PageQuery>,
) -> Response {
    service
        .read(move |service| {
            let overview = service.overview()?;
            let tag = overview.tag(&name)?;
            match checked(query)?.light {
                Some(_) => JsonText::of(&tag_row(tag)),
                None => JsonText::of(&tag_with_lists(service, tag)?),
            }
        })
        .await
}

/// The list of each payload type of a tag.
pub(super) async fn lists_of_tag(
    State(service): SharedService,
    Path(name): Path<String>,
) -> Response {
    service
        .read(move |service| {
            let overview = service.overview()?;
            let lists = overview.tags.get(&name).into_iter().flat_map(|it| &*it.lists);
            let names: serde_json::Map<_, _> =
                lists.map(|(of, list)| (names::name_of(of), Value::from(&*list.name))).collect();
            JsonText::of(&names)
        })
        .await
}

pub(super) async fn statuses() -> axum::Json<Value> {
    axum::Json(STATUSES.map(|(id, name)| json!({ "id": id, "name": name, "created": null })).into())
}

pub(super) async fn types(State(service): SharedService, query: QueryOf<PageQuery>) -> Response {
    service
        .read(move |service| {
            let query = checked(query)?;
            let overview = service.overview()?;
            let rows =
                overview.types.iter().map(|(path, row)| type_row(service, path, *row)).collect();
            query.answer(rows, &["name"], "name")
        })
        .await
}

pub(super) async fn lists(State(service): SharedService, query: QueryOf<PageQuery>) -> Response {
    service
        .read(move |service| {
            let query = checked(query)?;
            let overview = service.overview()?;
            let mut rows = vec![];
            for tag in overview.tags.values() {
                for (of, list) in &*tag.lists {
                    rows.push(list_row(service, Some(&tag.tag), of, list));
                }
            }
            for path in overview.detached.keys() {
                let found = overview.list(&names::name_of(path))?;
                rows.push(list_row(service, None, &found.type_path, &found.list));
            }
            let text = |row: &Value, member: &str| row[member].as_str().unwrap_or("").to_owned();
            rows.retain(|row| {
                PageQuery::admits(query.global_tag.as_ref(), &text(row, "global_tag"))
                    && PageQuery::admits(query.payload_type.as_ref(), &text(row, "payload_type"))
            });
            query.answer(rows, &["name", "global_tag", "payload_type"], "name")
        })
        .await
}

pub(super) async fn list(State(service): SharedService, Path(name): Path<String>) -> Response {
    service
        .read(move |service| {
            let overview = service.overview()?;
            let found = overview.list(&name)?;
            JsonText::of(&list_row(
                service,
                found.tag.map(|it| &*it.tag),
                &found.type_path,
                &found.list,
            ))
        })
        .await
}

/// The IOVs of all lists, or a page of them.
pub(super) async fn iovs(State(service): SharedService, query: QueryOf<PageQuery>) -> Response {
    service
        .read(move |service| {
            let query = checked(query)?;
            let overview = service.overview()?;
            let mut rows = vec![];
            for tag in overview.tags.values() {
                let name = &*tag.tag.name;
                if !PageQuery::admits(query.global_tag.as_ref(), name) {
                    continue;
                }
                for (_, list) in &service.resolved(name)?.lists {
                    let of = &tag.lists[&*names::path_of(&list.type_name)];
                    if PageQuery::admits(query.payload_type.as_ref(), &list.type_name)
                        && PageQuery::admits(query.payload_list.as_ref(), &of.name)
                    {
                        for (entry, found) in list.all()? {
                            let mut row = iov_row(&found, entry as i64, Some(&of.name));
                            row["global_tag"] = name.into();
                            row["payload_type"] = (&*list.type_name).into();
                            rows.push(row);
                        }
                    }
                }
            }
            query.answer(rows, &["payload_url", "payload_list"], "id")
        })
        .await
}

/// The settings of the server that clients ask for.
pub(super) async fn setting(
    Path(name): Path<String>,
    OriginalUri(address): OriginalUri,
    headers: HeaderMap,
) -> Response {
    let value = match &*name {
        "CDB_IOV_MODE" => Some("continuous".to_owned()),
        "CDB_PAYLOAD_BASE_URL" => conditions_address(address.path(), &headers),
        _ => None,
    };
    let answer = match value {
        Some(value) => JsonText::of(&json!({ name: value })),
        None => Err(not_found(format!("there is no setting {name:?}"))),
    };
    answer.map_or_else(|error| failed(&error), IntoResponse::into_response)
}

/// The address of the federation's conditions, to which the addresses of payloads are relative.
fn conditions_address(path: &str, headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (conditions, _) = path.split_once("/nopayloaddb/api/cdb_rest/")?;
    let scheme = text("x-forwarded-proto").unwrap_or("http");
    Some(format!("{scheme}://{}{conditions}", text("host")?))
}

pub(super) fn tag_row(lists: &TagLists) -> Value {
    let tag = &lists.tag;
    json!({
        "id": tag.entry,
        "name": tag.name,
        "author": tag.user,
        "status": status_of(tag.state),
        "payload_lists_count": lists.lists.len(),
        "payload_iov_count": lists.conditions(),
        "created": time_text(tag.time / 1000),
        "updated": time_text(tag.time / 1000),
    })
}

fn tag_with_lists(service: &PayloadService, tag: &TagLists) -> Result<Value> {
    let resolved = service.resolved(&tag.tag.name)?;
    let mut lists = vec![];
    for (path, found) in &resolved.lists {
        let list = &tag.lists[path];
        let mut row = list_row(service, Some(&tag.tag), path, list);
        let iovs = found.all()?;
        row["payload_iov"] =
            iovs.iter().map(|(entry, iov)| iov_row(iov, *entry as i64, Some(&list.name))).collect();
        lists.push(row);
    }
    let mut row = tag_row(tag);
    let status = status_of(tag.tag.state);
    let id = STATUSES.iter().find(|(_, name)| *name == status).map(|(id, _)| id);
    row["status"] = json!({ "id": id, "name": status, "description": null, "created": null });
    row["payload_lists"] = lists.into();
    Ok(row)
}

pub(super) fn type_row(service: &PayloadService, path: &str, row: PayloadRow) -> Value {
    json!({ "id": row.id, "name": names::name_of(path), "created": created(service, row.created) })
}

pub(super) fn list_row(
    service: &PayloadService,
    tag: Option<&GlobalTag>,
    type_path: &str,
    list: &ListOfTag,
) -> Value {
    json!({
        "id": list.row.id,
        "name": &*list.name,
        "global_tag": tag.map(|it| &it.name),
        "payload_type": names::name_of(type_path),
        "iov_count": list.row.conditions,
        "created": created(service, list.row.created),
    })
}

fn created(service: &PayloadService, csn: Csn) -> Option<String> {
    service.time_of(csn).map(time_text)
}

fn iov_row(found: &ValidPayload<'_>, id: i64, list: Option<&str>) -> Value {
    let reference = found.reference;
    let mut row = iov_numbers(id, found.start, found.end, list);
    let value = |json: &str| serde_json::from_str(json).unwrap_or_default();
    row["payload_url"] = value(reference.url());
    row["checksum"] = value(reference.checksum());
    row["size"] = value(reference.size());
    row
}

/// The members of an IOV other than those of its payload.
pub(super) fn iov_numbers(id: i64, start: IovMoment, end: IovMoment, list: Option<&str>) -> Value {
    json!({
        "id": id,
        "major_iov": start.major,
        "minor_iov": start.minor,
        "comb_iov": start.combined(),
        "major_iov_end": end.major,
        "minor_iov_end": end.minor,
        "payload_list": list,
        "inserted": null,
    })
}
