//! One line of the log for each commit: what it changed, by how much, and whose it was.

use femtobarn_catalog::{Catalog, Commit, Csn, DatabaseId, LockTarget, NewVersion};

/// Things that a line names at most.
const NAMES_MAX: usize = 8;
/// Containers whose growth is looked for at most.
const GROWN_MAX: usize = 64;

/// Tells the log of a commit that was published.
pub(super) fn published(federation: &str, catalog: &Catalog, csn: Csn, commit: &Commit) {
    let by = commit.author.as_ref();
    let (objects, bytes) = grown(catalog, &commit.versions).unzip();
    tracing::info!(
        federation,
        csn = csn.0,
        // What is called `message` is the line itself.
        commit_message = commit.message,
        changed = changed(catalog, commit),
        objects,
        bytes,
        by = by.map(|by| format!("{}@{}, process {}", by.user, by.host, by.pid)),
        "committed"
    );
}

/// The names of what a commit made, filled and took away.
fn changed(catalog: &Catalog, commit: &Commit) -> String {
    let database = |id: DatabaseId| catalog.label(&LockTarget::Database(id));
    let container = |database, id| catalog.label(&LockTarget::Container(database, id));
    let made = commit.new_databases.iter().map(|new| format!("new database {}", new.name));
    let filled = commit.versions.iter().map(|it| container(it.database, it.container));
    let sealed = commit.sealed.iter().map(|(id, _)| format!("sealed {}", database(*id)));
    let renamed = commit.renamed_databases.iter();
    let renamed = renamed.map(|(id, _, name)| format!("database {id} renamed to {name}"));
    let inner = commit.renamed_containers.iter();
    let inner = inner.map(|(of, id, ..)| format!("renamed {}", container(*of, *id)));
    let dropped = commit.dropped_databases.iter().map(|it| format!("dropped database {}", it.id));
    let gone = commit.dropped_containers.iter();
    let gone = gone.map(|(of, id, _)| format!("dropped {}", container(*of, *id)));
    let mut all =
        made.chain(filled).chain(sealed).chain(renamed).chain(inner).chain(dropped).chain(gone);
    let mut shown: Vec<_> = all.by_ref().take(NAMES_MAX).collect();
    let more = all.size_hint().0;
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

/// By how many objects and bytes the containers of a commit have grown; none of those that are too many to
/// look for.
fn grown(catalog: &Catalog, versions: &[NewVersion]) -> Option<(u64, u64)> {
    if versions.len() > GROWN_MAX {
        return None;
    }
    let growth = versions.iter().map(|new| {
        let found = new.base.map(|base| catalog.version(new.database, new.container, base));
        let (entries, bytes) =
            found.and_then(|row| row.ok().flatten()).map_or((0, 0), |row| (row.entries, row.bytes));
        (new.entries.saturating_sub(entries), new.bytes.saturating_sub(bytes))
    });
    Some(growth.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1)))
}
