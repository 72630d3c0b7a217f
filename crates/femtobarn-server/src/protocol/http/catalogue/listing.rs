//! A page of the containers of a snapshot, searched, filtered and sorted.

use std::cmp::Ordering;

use femtobarn_catalog::{ContainerSummary, DatabaseState, Error, LocalCatalogue, Result};
use serde::{Deserialize, Serialize};

use super::{Catalogues, Question};

/// Containers of a page, unless the client requests fewer.
const PAGE_MAX: usize = 1000;
/// Bytes of a search. Each word is looked for in each name.
const SEARCH_MAX: usize = 256;

#[derive(Deserialize)]
pub(super) struct ListingQuery {
    csn: Option<u64>,
    /// Words that must all be in `DATABASE/CONTAINER`, whatever their case; `*` matches any text.
    #[serde(default)]
    search: String,
    #[serde(default)]
    class: String,
    state: Option<DatabaseState>,
    #[serde(default)]
    sort: SortKey,
    #[serde(default)]
    descending: bool,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SortKey {
    /// In the order of their creation.
    #[default]
    Created,
    Name,
    Class,
    Objects,
    Bytes,
    Csn,
}

#[derive(Serialize)]
pub(super) struct Listing {
    csn: u64,
    /// The rows that the search and the filters leave, on all pages.
    matches: usize,
    objects: u64,
    bytes: u64,
    rows: Vec<ContainerSummary>,
}

impl Question for ListingQuery {
    type Shown = Listing;

    fn look(
        &self,
        catalogues: &Catalogues,
        name: &str,
        catalog: &LocalCatalogue,
    ) -> Result<Listing> {
        if self.search.len() > SEARCH_MAX {
            let what = format!("a search has at most {SEARCH_MAX} bytes");
            return Err(Error::Invalid { what });
        }
        let looked = catalogues.at(name, catalog, self.csn)?;
        let words: Vec<String> = self.search.split_whitespace().map(str::to_lowercase).collect();
        let mut rows: Vec<&ContainerSummary> =
            looked.containers.iter().filter(|row| self.matches(row, &words)).collect();
        self.sort(&mut rows);
        let limit = self.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
        Ok(Listing {
            csn: looked.at.0,
            matches: rows.len(),
            objects: rows.iter().map(|row| row.objects).sum(),
            bytes: rows.iter().map(|row| row.bytes).sum(),
            rows: rows.into_iter().skip(self.offset).take(limit).cloned().collect(),
        })
    }
}

impl ListingQuery {
    fn matches(&self, row: &ContainerSummary, words: &[String]) -> bool {
        let is_of_class = self.class.is_empty() || self.class == row.class;
        let is_in_state = self.state.is_none_or(|state| state == row.state);
        is_of_class && is_in_state && (words.is_empty() || has_all(row, words))
    }

    fn sort(&self, rows: &mut [&ContainerSummary]) {
        let order = |a: &&ContainerSummary, b: &&ContainerSummary| -> Ordering {
            match self.sort {
                SortKey::Created => Ordering::Equal,
                SortKey::Name => (&a.database, &a.container).cmp(&(&b.database, &b.container)),
                SortKey::Class => a.class.cmp(&b.class),
                SortKey::Objects => a.objects.cmp(&b.objects),
                SortKey::Bytes => a.bytes.cmp(&b.bytes),
                SortKey::Csn => a.csn.cmp(&b.csn),
            }
        };
        // A stable sort, in either direction.
        if self.descending {
            rows.sort_by(|a, b| order(b, a));
        } else {
            rows.sort_by(order);
        }
    }
}

fn has_all(row: &ContainerSummary, words: &[String]) -> bool {
    let name = format!("{}/{}", row.database, row.container).to_lowercase();
    words.iter().all(|word| {
        let mut rest = name.as_str();
        word.split('*').all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use femtobarn_catalog::Csn;

    use super::*;

    #[test]
    fn a_row_matches_if_all_words_are_in_its_name_in_their_order() {
        let row = ContainerSummary {
            database: "Run7".to_owned(),
            state: DatabaseState::Open,
            container: "events".to_owned(),
            class: "Event".to_owned(),
            class_version: 1,
            objects: 0,
            bytes: 0,
            csn: Csn(1),
        };
        let finds = |search: &str| {
            let words: Vec<_> = search.split_whitespace().map(str::to_owned).collect();
            has_all(&row, &words)
        };
        for search in ["run7", "vents run", "run*events", "run*/e*s", "*"] {
            assert!(finds(search), "{search}");
        }
        for search in ["run8", "events*run", "run hits", "run7events"] {
            assert!(!finds(search), "{search}");
        }
    }
}
