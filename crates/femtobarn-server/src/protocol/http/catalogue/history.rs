//! The commits of a federation, the changes of one commit, and the growth of the federation.

use femtobarn_catalog::{CommitChange, Csn, GrowthPoint, LocalCatalogue, Result};
use serde::{Deserialize, Serialize};

use super::overview::CommitSummary;
use super::{Catalogues, Question};

/// Commits of a page, unless the client requests fewer.
const COMMITS_MAX: usize = 200;
/// Points of the curve of growth.
const GROWTH_POINTS: usize = 300;

#[derive(Deserialize)]
pub(super) struct CommitsQuery {
    /// The commit whose changes are requested.
    of: Option<u64>,
    /// The newest commit of the page.
    until: Option<u64>,
    /// A text in the message or the author.
    #[serde(default)]
    search: String,
    limit: Option<usize>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Commits {
    Page(Vec<CommitSummary>),
    Changes(Vec<CommitChange>),
}

impl Question for CommitsQuery {
    type Shown = Commits;

    fn look(&self, _: &Catalogues, _: &str, catalog: &LocalCatalogue) -> Result<Commits> {
        if let Some(csn) = self.of {
            return catalog.changes_of_commit(Csn(csn)).map(Commits::Changes);
        }
        let limit = self.limit.unwrap_or(COMMITS_MAX).min(COMMITS_MAX);
        let until = self.until.map_or(Csn::MAX, Csn);
        let commits = catalog.commits_until(until, &self.search, limit)?;
        Ok(Commits::Page(commits.into_iter().map(CommitSummary::from).collect()))
    }
}

#[derive(Deserialize)]
pub(super) struct GrowthQuery {}

impl Question for GrowthQuery {
    type Shown = Vec<GrowthPoint>;

    fn look(&self, _: &Catalogues, _: &str, catalog: &LocalCatalogue) -> Result<Vec<GrowthPoint>> {
        catalog.growth(GROWTH_POINTS)
    }
}
