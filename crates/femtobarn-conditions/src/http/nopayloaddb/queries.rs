//! The query of jobs: what is valid at a moment, of every payload type of a global tag.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::answers::{JsonText, QueryOf, checked};
use super::moments::IovMoment;
use super::service::SharedService;

/// About what a row of an answer takes.
const ROW_BYTES: usize = 256;

#[derive(Deserialize)]
pub(super) struct ValidQuery {
    #[serde(rename = "gtName")]
    tag: String,
    #[serde(rename = "majorIOV")]
    major: i64,
    #[serde(rename = "minorIOV")]
    minor: i64,
    /// `dict` for objects; else arrays.
    #[serde(default)]
    shape: String,
}

pub(super) async fn valid(State(service): SharedService, query: QueryOf<ValidQuery>) -> Response {
    service
        .read(move |service| {
            let query = checked(query)?;
            let tag = service.resolved(&query.tag)?;
            let moment = IovMoment { major: query.major, minor: query.minor };
            let mut out = String::with_capacity(ROW_BYTES * tag.lists.len());
            for (_, list) in &tag.lists {
                let Some(found) = list.at(moment)? else { continue };
                out.push(if out.is_empty() { '[' } else { ',' });
                if query.shape == "dict" {
                    found.write_object(&mut out);
                } else {
                    found.write_array(&mut out);
                }
            }
            out.push_str(if out.is_empty() { "[]" } else { "]" });
            Ok(JsonText::from(out))
        })
        .await
}
