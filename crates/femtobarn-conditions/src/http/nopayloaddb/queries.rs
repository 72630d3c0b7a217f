//! The query of jobs: the payload of every payload type of a global tag that is valid at a moment.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::answers::{JsonText, QueryOf, checked, failed};
use super::moments::IovMoment;
use super::payload_lists::{PayloadList, ValidPayload};
use super::resolved_tags::ResolvedTag;
use super::service::{PayloadService, SharedService};

/// Lists of a tag that are answered on the connection's thread, at most; each takes 1.2 microseconds.
const AT_ONCE_MAX: usize = 128;
/// Bytes of a row of an answer, about.
const ROW_BYTES: usize = 256;

#[derive(Deserialize)]
pub(super) struct ValidQuery {
    #[serde(rename = "gtName")]
    tag: String,
    #[serde(rename = "majorIOV")]
    major: i64,
    #[serde(rename = "minorIOV")]
    minor: i64,
    /// `dict` for objects; otherwise arrays.
    #[serde(default)]
    shape: String,
}

/// Answers on the same thread if everything is in memory: handing a request to another thread costs more than a short
/// answer.
pub(super) async fn valid(State(service): SharedService, query: QueryOf<ValidQuery>) -> Response {
    let query = match checked(query) {
        Ok(query) => query,
        Err(error) => return failed(&error),
    };
    if let Some(tag) = service.known(&query.tag).filter(|tag| tag.lists.len() <= AT_ONCE_MAX) {
        let known = query.answer(&tag, |list, moment| list.known_at(moment).ok_or(NotInMemory));
        if let Ok(answer) = known {
            return answer.into_response();
        }
    }
    let make = move |service: &PayloadService| {
        let tag = service.resolved(&query.tag)?;
        query.answer(&tag, |list, moment| list.at(moment))
    };
    service.read(make).await
}

/// The answer is not in memory and must be read.
struct NotInMemory;

impl ValidQuery {
    /// The payloads that `find` finds in the lists of a tag.
    fn answer<'a, E>(
        &self,
        tag: &'a ResolvedTag,
        find: impl Fn(&'a PayloadList, IovMoment) -> std::result::Result<Option<ValidPayload<'a>>, E>,
    ) -> std::result::Result<JsonText, E> {
        let moment = IovMoment { major: self.major, minor: self.minor };
        let mut out = String::with_capacity(ROW_BYTES * tag.lists.len());
        for (_, list) in &tag.lists {
            let Some(found) = find(list, moment)? else { continue };
            out.push(if out.is_empty() { '[' } else { ',' });
            if self.shape == "dict" {
                found.write_object(&mut out);
            } else {
                found.write_array(&mut out);
            }
        }
        out.push_str(if out.is_empty() { "[]" } else { "]" });
        Ok(JsonText::from(out))
    }
}
