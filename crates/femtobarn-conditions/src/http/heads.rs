//! Heads: the newest version of each series, or the version that a global tag names.

use femtobarn::{Csn, Federation, Overlap, Result, SeriesClock, View};
use serde::Serialize;

use super::answers::Page;
use super::versions::PATH_SEPARATOR;
use crate::global_tag::GlobalTag;
use crate::job::{Job, JobOptions};
use crate::listed_series::{ListedContainer, ListedSeries};
use crate::series::Series;
use crate::series_tables::SeriesTables;

#[derive(Serialize)]
struct Head {
    federation: String,
    uuid: String,
    global_tag: Option<String>,
    state: Option<&'static str>,
    /// The commit as of which series without a commit of their own are read.
    csn: u64,
    /// The commit as of which the global tag was read: with it as `?csn=`, this answer never changes.
    resolved_at: u64,
    series: Vec<SeriesHead>,
}

#[derive(Serialize)]
struct SeriesHead {
    series: String,
    /// The path of its pages.
    path: String,
    version: String,
    clock: SeriesClock,
    overlap: Overlap,
    conditions: u64,
}

/// The head of a global tag as of a commit; of all series if there is no tag. Only series of branches are opened.
pub(super) fn head(
    tables: &SeriesTables,
    global_tag: Option<String>,
    csn: Csn,
    series: Option<&str>,
) -> Result<Page> {
    let federation = tables.federation();
    let job = Job::open(federation, &JobOptions { global_tag, csn: Some(csn) })?;
    let chosen: Option<Vec<&str>> = series.map(|series| series.split(',').collect());
    let is_chosen = |name: &str| {
        chosen.as_ref().is_none_or(|chosen| {
            chosen.iter().any(|it| *it == name || (it.ends_with('/') && name.starts_with(it)))
        })
    };
    let listed = job.listed(tables, is_chosen)?.into_iter();
    let heads = listed.map(|ListedSeries { series, containers }| match containers.as_deref() {
        Some([only]) => head_of_row(series, only, tables),
        // Replacements by a branch are not in the catalogue, and neither is the fault of a series that cannot be read.
        _ => opened_head(&job, series),
    });
    let tag = job.global_tag();
    Page::json(&Head {
        federation: federation.name().to_owned(),
        uuid: federation.uuid().to_string(),
        global_tag: tag.map(|tag| tag.name.clone()),
        state: tag.map(|tag| tag.state.name()),
        csn: job.snapshot().csn().0,
        resolved_at: job.resolved_at().0,
        series: heads.collect::<Result<_>>()?,
    })
}

fn head_of_row(
    series: String,
    from: &ListedContainer,
    tables: &SeriesTables,
) -> Result<SeriesHead> {
    let ListedContainer { path, row, .. } = from;
    Ok(SeriesHead {
        series,
        path: path.clone(),
        version: tables.version_name(row.version)?.to_string(),
        clock: row.options.clock,
        overlap: row.options.overlap,
        conditions: row.live,
    })
}

fn opened_head(job: &Job, name: String) -> Result<SeriesHead> {
    let series: &Series = &*job.series(&name)?;
    let options = series.options();
    let paths: Vec<String> = series.views().map(View::path).collect();
    Ok(SeriesHead {
        series: name,
        path: paths.join(PATH_SEPARATOR),
        version: series.version_name()?,
        clock: options.clock,
        overlap: options.overlap,
        conditions: series.conditions(),
    })
}

#[derive(Serialize)]
struct TagHead {
    name: String,
    state: &'static str,
    csn: Option<u64>,
    only_listed: bool,
    series: usize,
    time: i64,
    user: String,
    message: String,
}

/// All global tags.
pub(super) fn tags(federation: &Federation) -> Result<Page> {
    let tags = GlobalTag::all(&federation.snapshot(None)?)?;
    let head = |tag: GlobalTag| TagHead {
        name: tag.name,
        state: tag.state.name(),
        csn: tag.csn.map(|csn| csn.0),
        only_listed: tag.only_listed,
        series: tag.series.len(),
        time: tag.time,
        user: tag.user,
        message: tag.message,
    };
    Page::json(&tags.into_iter().map(head).collect::<Vec<_>>())
}
