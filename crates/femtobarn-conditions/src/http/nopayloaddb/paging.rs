//! Pages of long lists, which clients ask for with `?page=`: searched, sorted and cut on the server.

use std::cmp::Ordering;

use femtobarn::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answers::JsonText;

const PAGE_SIZE: usize = 25;
const PAGE_SIZE_MAX: usize = 1000;

/// The part of a list that a client asks for. Invalid numbers are ignored.
#[derive(Default, Deserialize)]
pub(super) struct PageQuery {
    page: Option<String>,
    page_size: Option<String>,
    #[serde(default)]
    search: String,
    #[serde(default)]
    sort: String,
    #[serde(default)]
    order: String,
    pub status: Option<String>,
    pub global_tag: Option<String>,
    pub payload_type: Option<String>,
    pub payload_list: Option<String>,
    /// For a single global tag: leaves out its lists.
    pub light: Option<String>,
}

impl PageQuery {
    /// Whether a filter admits a value.
    pub(super) fn admits(filter: Option<&String>, value: &str) -> bool {
        filter.is_none_or(|wanted| wanted.is_empty() || wanted == value)
    }

    /// All rows, or the requested page of them. Rows are objects; a search looks at the members `searched`; a page is
    /// sorted by `sorted` unless the client asks for another member.
    pub(super) fn answer(
        &self,
        mut rows: Vec<Value>,
        searched: &[&str],
        sorted: &str,
    ) -> Result<JsonText> {
        if self.page.is_none() {
            return JsonText::of(&rows);
        }
        let wanted = self.search.trim().to_lowercase();
        let text = |row: &Value, member: &str| row[member].as_str().unwrap_or("").to_lowercase();
        rows.retain(|row| searched.iter().any(|member| text(row, member).contains(&wanted)));
        let by = match rows.first() {
            Some(first) if first.get(&self.sort).is_some() => &self.sort,
            _ => sorted,
        };
        rows.sort_by(|one, other| compared(&one[by], &other[by]));
        if self.order == "desc" {
            rows.reverse();
        }
        let number = |text: &Option<String>| text.as_ref().and_then(|it| it.parse::<usize>().ok());
        let page = number(&self.page).unwrap_or(1).max(1);
        let size = number(&self.page_size).unwrap_or(PAGE_SIZE).clamp(1, PAGE_SIZE_MAX);
        let count = rows.len();
        let results: Vec<Value> =
            rows.into_iter().skip((page - 1).saturating_mul(size)).take(size).collect();
        JsonText::of(&json!({
            "count": count,
            "page": page,
            "page_size": size,
            "total_pages": count.div_ceil(size).max(1),
            "results": results,
        }))
    }
}

/// Orders numbers by value, texts by their characters, missing values first.
fn compared(one: &Value, other: &Value) -> Ordering {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one.cmp(&other),
        (one_number, other_number) => {
            let key =
                |number: Option<i64>, value: &Value| (number, value.as_str().map(str::to_owned));
            key(one_number, one).cmp(&key(other_number, other))
        }
    }
}
