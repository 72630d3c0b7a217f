//! The tags in the file beside the catalogue, and their commits.

use std::collections::{BTreeMap, HashMap};

use femtobarn_catalog::{CommitRow, Contents, Csn, TagRow, VersionRow};
use uuid::Uuid;

use super::RebuildReport;

/// The numbers of tagged commits, by their transactions.
pub(super) fn commits(tagged: &[(TagRow, CommitRow)]) -> HashMap<Uuid, Csn> {
    tagged.iter().map(|(_, commit)| (commit.transaction, commit.csn)).collect()
}

/// Adds the tags to the rows of a history. A tagged commit without a record, such as that of a seal, is added as well.
pub(super) fn restore(contents: &mut Contents, tagged: &[(TagRow, CommitRow)]) {
    for (tag, commit) in tagged {
        let commits = &mut contents.commits;
        let csn = match commits.iter().find(|row| row.transaction == commit.transaction) {
            Some(row) => row.csn,
            None => {
                let behind = commits.partition_point(|row| row.csn < commit.csn);
                commits.insert(behind, commit.clone());
                commit.csn
            }
        };
        contents.tags.push(TagRow { csn, ..tag.clone() });
    }
}

/// Leaves out tags whose snapshots show lost versions: the file is that of an earlier state of the federation.
pub(super) fn leave_out_incomplete(
    contents: &mut Contents,
    lost: &[VersionRow],
    report: &mut RebuildReport,
) {
    let all = contents.versions.iter().chain(lost);
    let mut commits: BTreeMap<_, Vec<Csn>> = BTreeMap::new();
    for version in all {
        commits.entry((version.database, version.container)).or_default().push(version.csn);
    }
    contents.tags.retain(|tag| {
        let shows = |version: &&VersionRow| {
            let of_container = &commits[&(version.database, version.container)];
            let newer = of_container.iter().filter(|csn| **csn <= tag.csn).max();
            newer == Some(&version.csn)
        };
        let is_lost = lost.iter().find(shows);
        if let Some(version) = is_lost {
            let (name, container, database) = (&tag.name, version.container, version.database);
            report.left_out.push(format!(
                "tag {name:?}: a version of container {container} of database {database} does not exist any more"
            ));
        }
        is_lost.is_none()
    });
}
