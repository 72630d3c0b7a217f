//! One line of the log for each commit: what it changed, by how much, and whose it was.
//!
//! One task writes the lines, in the order of the commits, and looks names up for them; publishing does not wait for
//! it. Commits that it cannot keep up with are counted, not told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use femtobarn_catalog::{Commit, Csn, DatabaseId, LocalCatalogue, LockTarget, NewVersion};
use tokio::task::spawn_blocking;

/// Things that a line names at most.
const NAMES_MAX: usize = 8;
/// Containers whose growth is looked for at most.
const GROWN_MAX: usize = 64;

/// Commits that wait to be told.
const WAITING_MAX: usize = 1024;

/// The commits of a federation that the log is to be told of.
#[derive(Debug)]
pub(super) struct CommitLog {
    federation: String,
    catalog: Arc<LocalCatalogue>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    commits: VecDeque<(Csn, Commit)>,
    dropped: u64,
    is_telling: bool,
}

impl CommitLog {
    pub fn new(federation: &str, catalog: Arc<LocalCatalogue>) -> Self {
        CommitLog { federation: federation.to_owned(), catalog, waiting: Mutex::default() }
    }

    /// Has a commit told that was published.
    pub fn add(self: &Arc<Self>, csn: Csn, commit: Commit) {
        let mut waiting = self.waiting();
        if waiting.commits.len() >= WAITING_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.commits.push_back((csn, commit));
        if !std::mem::replace(&mut waiting.is_telling, true) {
            let log = Arc::clone(self);
            spawn_blocking(move || log.tell_all());
        }
    }

    fn tell_all(&self) {
        loop {
            let mut waiting = self.waiting();
            let dropped = std::mem::take(&mut waiting.dropped);
            let Some((csn, commit)) = waiting.commits.pop_front() else {
                waiting.is_telling = false;
                return;
            };
            drop(waiting);
            if dropped > 0 {
                tracing::warn!(self.federation, dropped, "commits were too many to be told");
            }
            published(&self.federation, &self.catalog, csn, &commit);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn published(federation: &str, catalog: &LocalCatalogue, csn: Csn, commit: &Commit) {
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
fn changed(catalog: &LocalCatalogue, commit: &Commit) -> String {
    let database = |id: DatabaseId| catalog.describe(&LockTarget::Database(id));
    let container = |database, id| catalog.describe(&LockTarget::Container(database, id));
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
fn grown(catalog: &LocalCatalogue, versions: &[NewVersion]) -> Option<(u64, u64)> {
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
