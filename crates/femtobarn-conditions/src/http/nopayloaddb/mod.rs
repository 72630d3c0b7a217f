//! The routes of nopayloaddb, the conditions database of the HEP Software Foundation, over a federation's conditions.
//!
//! Clients of nopayloaddb work unchanged. Its words mean here:
//!
//! | nopayloaddb | federation |
//! |---|---|
//! | global tag, `unlocked`, `locked`, `frozen` | global tag, `open`, `locked`, `frozen` |
//! | payload type `T`, `det.gain` | series `nopayloaddb/T`, `det/gain` |
//! | payload list | the version of a series that a global tag names |
//! | payload IOV | condition of channel 0; major and minor number are the run and the luminosity block |
//!
//! `names` and `moments` translate; `overview` has all global tags with their lists; `resolved_tags` keeps the lists of
//! the tags that jobs ask for, `payload_lists` looks up in them, `references` has the addresses of payloads. `listings`
//! and `paging` answer reads, `tag_changes`, `list_changes` and `iov_changes` write; `service` has their shared state.
//!
//! 1. An answer is as of the newest commit, or as of the commit of the global tag.
//! 2. The end of a validity is enforced: a payload is not returned after it.
//! 3. Inserting into the list of one global tag changes no other tag. A list that a tag reads as of a commit is copied before
//!    its first change.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, delete, get, post, put};

mod answers;
mod iov_changes;
mod list_changes;
mod listings;
mod moments;
mod names;
mod overview;
mod paging;
mod payload_lists;
mod pending_iovs;
mod queries;
mod references;
mod resolved_tags;
mod service;
mod stored_payloads;
mod tag_changes;

use service::PayloadService;

use crate::series_tables::SeriesTables;

/// Bytes of a request to insert many IOVs, at most.
const BULK_BYTES_MAX: usize = 64 << 20;

/// The routes, below `/api/cdb_rest`. They do not check the rights of clients.
pub(super) fn routes(tables: Arc<SeriesTables>) -> Router {
    let short = Router::new()
        .route("/gt", get(listings::tags_with_lists).post(tag_changes::create))
        .route("/globalTags", get(listings::tags))
        .route("/globalTag/{tag}", get(listings::tag))
        .route("/deleteGlobalTag/{tag}", delete(tag_changes::remove))
        .route("/cloneGlobalTag/{tag}/{clone}", post(tag_changes::clone))
        .route("/gt_change_status/{tag}/{status}", put(tag_changes::change_status))
        .route("/gtstatus", get(listings::statuses).post(tag_changes::create_status))
        .route("/gtPayloadLists/{tag}", get(listings::lists_of_tag))
        .route("/pt", get(listings::types).post(list_changes::create_type))
        .route("/deletePayloadType/{name}", delete(list_changes::delete_type))
        .route("/pl", get(listings::lists).post(list_changes::create_list))
        .route("/pl_attach", put(list_changes::attach_list))
        .route("/deletePayloadList/{name}", delete(list_changes::delete_list))
        .route("/piov", get(listings::iovs).post(iov_changes::create))
        .route("/piov/{iov}", get(iov_changes::pending))
        .route("/piov_attach", put(iov_changes::attach))
        .route("/bulk_piov", post(iov_changes::insert_many))
        .route("/deletePayloadIOV/{*iov}", delete(iov_changes::delete))
        .route("/payloadiovs/", get(queries::valid))
        .route("/user_settings/{name}/", get(listings::setting));
    let readable = Router::new()
        .route("/global-tags", get(listings::tags))
        .route("/global-tags/statuses", get(listings::statuses).post(tag_changes::create_status))
        .route("/global-tags/{tag}", get(listings::tag))
        .route("/global-tags/{tag}/delete", delete(tag_changes::remove))
        .route("/global-tags/{tag}/clone/{clone}", post(tag_changes::clone))
        .route("/global-tags/{tag}/change-status/{status}", put(tag_changes::change_status))
        .route("/global-tags/{tag}/payload-lists", get(listings::lists_of_tag))
        .route("/payload-types", get(listings::types).post(list_changes::create_type))
        .route("/payload-types/{name}/delete", delete(list_changes::delete_type))
        .route("/payload-lists", get(listings::lists).post(list_changes::create_list))
        .route("/payload-lists/attach", put(list_changes::attach_list))
        .route("/payload-lists/by-name/{name}", get(listings::list))
        .route("/payload-lists/{name}/delete", delete(list_changes::delete_list))
        .route("/payload-iovs", get(listings::iovs).post(iov_changes::create))
        .route("/payload-iovs/bulk", post(iov_changes::insert_many))
        .route("/payload-iovs/attach", put(iov_changes::attach))
        .route("/payload-iovs/query/", get(queries::valid))
        .route("/payload-iovs/{*iov}", get(iov_changes::pending).delete(iov_changes::delete))
        .route("/settings/{name}/", get(listings::setting));
    let all = short.merge(readable).route("/{*path}", any(answers::no_such_route));
    Router::new()
        .nest("/api/cdb_rest", all)
        .layer(DefaultBodyLimit::max(BULK_BYTES_MAX))
        .with_state(Arc::new(PayloadService::new(tables)))
}
