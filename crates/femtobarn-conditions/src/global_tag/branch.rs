//! Branches: a global tag's own containers of series, in front of the containers that the tag is based on.

use std::collections::HashSet;

use femtobarn::{ContainerOptions, Error, Federation, Result, SeriesOptions, Transaction, View};

use super::change::{found, keep_commits, signed};
use super::record::{ChangeRecord, NEWEST, open_container, path};
use super::{BranchVersion, GlobalTag, GlobalTagState, SeriesVersion, newest};
use crate::class::{branch_class, payload_class};

/// A series of a branch, open for writing.
pub struct BranchSeries {
    /// The path of the branch's own container.
    pub container: String,
    /// The containers behind it in the order of [`Series::open`](crate::Series::open): first that of the series.
    pub behind: Vec<View>,
}

impl GlobalTag {
    /// Opens a series of a branch within a transaction. At the first time the container is created, and listed in a
    /// change of the tag.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if the tag does not exist or does not have the series;
    /// `Invalid` if it is not a branch; `Denied` if it is locked or frozen; `Conflict` if another process changed a tag
    /// at the same time.
    pub fn open_branch(
        transaction: &mut Transaction,
        name: &str,
        series: &str,
    ) -> Result<BranchSeries> {
        let snapshot = transaction.snapshot()?;
        let tag = match transaction.view(&path()) {
            Ok(view) => newest(&view, name)?,
            Err(error) if error.kind() == femtobarn::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let tag = found(tag, name)?;
        check_writable(&tag)?;
        let container = container_path(name, series)?;
        let mut version = match tag.series.get(series) {
            Some(version) => version.clone(),
            None if !tag.only_listed => SeriesVersion::default(),
            None => {
                return Err(Error::NotFound {
                    what: format!("global tag {name:?} has no series {series:?}"),
                });
            }
        };
        version.csn = version.csn.or(tag.csn).or(Some(snapshot.csn()));
        let is_known = version.branches.first().is_some_and(|it| it.container == container);
        if is_known {
            version.branches.remove(0);
        }
        let behind = views_of(&version, series, name, snapshot.federation())?;
        if !is_known {
            create(transaction, &container, &behind)?;
            let own = BranchVersion { container: container.clone(), csn: None };
            version.branches.insert(0, own);
            list(transaction, snapshot.federation(), &tag, series, version)?;
        }
        Ok(BranchSeries { container, behind })
    }
}

/// Drops the containers of a branch that is deleted. A container that another tag reads as of the newest commit stays;
/// tags that read it as of an earlier commit still find it there.
pub(super) fn drop_containers(
    transaction: &mut Transaction,
    deleted: &GlobalTag,
    all: &[GlobalTag],
) -> Result<()> {
    let others = all.iter().filter(|tag| tag.name != deleted.name);
    let branches = others.flat_map(|tag| tag.series.values()).flat_map(|it| &it.branches);
    let used: HashSet<&str> =
        branches.filter(|it| it.csn.is_none()).map(|it| &*it.container).collect();
    for series in deleted.changed_series() {
        let path = container_path(&deleted.name, series)?;
        let Some((database, name)) = path.split_once('/') else { continue };
        if used.contains(&*path) {
            continue;
        }
        let Some(database) = transaction.find_database(database)? else { continue };
        if transaction.find_container(database, name)?.is_some() {
            transaction.drop_container(database, name)?;
        }
    }
    Ok(())
}

fn check_writable(tag: &GlobalTag) -> Result<()> {
    let name = &tag.name;
    if !tag.is_branch {
        return Err(Error::Invalid {
            what: format!(
                "global tag {name:?} is not a branch, so nothing can be put into it; make a branch of it"
            ),
        });
    }
    match tag.state {
        GlobalTagState::Open => Ok(()),
        GlobalTagState::Locked => {
            Err(Error::Denied { what: format!("branch {name:?} is locked; open it first") })
        }
        GlobalTagState::Frozen | GlobalTagState::Deleted => Err(Error::Denied {
            what: format!("branch {name:?} is frozen for ever; make a branch of it"),
        }),
    }
}

/// The path of a branch's container, such as `tpc/gain@mc-2026`.
pub(super) fn container_path(name: &str, series: &str) -> Result<String> {
    // The name of an RNTuple has no dot.
    let name = name.replace('.', "_");
    match series.split_once('/') {
        Some((database, container)) => Ok(format!("{database}/{container}@{name}")),
        None => Err(Error::Invalid {
            what: format!("{series:?} is not the path of a series, which is like tpc/gain"),
        }),
    }
}

fn views_of(
    version: &SeriesVersion,
    series: &str,
    name: &str,
    federation: &Federation,
) -> Result<Vec<View>> {
    let containers = version.containers(series);
    containers
        .map(|(path, csn)| {
            let snapshot = federation.snapshot(csn)?;
            if csn == version.csn && !snapshot.has(path)? {
                return Err(Error::NotFound {
                    what: format!(
                        "series {path:?} does not exist as of commit {}, on which branch {name:?} is based; list it with \
                         a later commit",
                        snapshot.csn()
                    ),
                });
            }
            snapshot.view(path)
        })
        .collect()
}

/// Creates the container of a branch, with the class and the options of the containers behind it.
fn create(transaction: &mut Transaction, path: &str, behind: &[View]) -> Result<()> {
    let Some((base, (database, name))) = behind.first().zip(path.split_once('/')) else {
        return Ok(());
    };
    let class = branch_class(&payload_class(base.class())?)?;
    let options = ContainerOptions::from_json(&base.container().options)?;
    let series = options.series.map(|series| SeriesOptions { is_branch: true, ..series });
    let database = transaction.database(database)?;
    let options = ContainerOptions { series, ..options };
    transaction.create_container(database, name, &class, options).map(drop)
}

/// Adds the version of a series to the tag.
fn list(
    transaction: &mut Transaction,
    federation: &Federation,
    tag: &GlobalTag,
    series: &str,
    version: SeriesVersion,
) -> Result<()> {
    let key = open_container(transaction)?;
    let view = transaction.view_by_key(key)?;
    let record = ChangeRecord {
        name: tag.name.clone(),
        state: tag.state.name().to_owned(),
        csn: tag.csn.map_or(NEWEST, |csn| csn.0),
        only_listed: tag.only_listed,
        is_branch: true,
        message: format!("first conditions of {series}"),
        ..Default::default()
    };
    let set = [(series.to_owned(), version)].into();
    let record = signed(record, Some(tag), set, &[], &view)?;
    keep_commits(federation, &tag.name, &record)?;
    transaction.rows(key)?.append(&record).map(drop)
}
