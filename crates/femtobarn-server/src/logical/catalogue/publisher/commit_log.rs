//! One line of the log for each commit: its changes, their size, and its author.
//!
//! One task writes the lines in the order of the commits, and looks up names for them; publishing does not wait for it.
//! Commits that it cannot keep up with are counted instead.

use std::collections::VecDeque;
use std::sync::Arc;

use femtobarn_catalog::{Commit, Csn, DatabaseId, LocalCatalogue, LockTarget, NewVersion};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// Changes that a line names at most.
const NAMES_MAX: usize = 8;
/// Containers whose growth is computed at most.
const GROWN_MAX: usize = 64;
/// Commits that wait for the task at most.
const WAITING_MAX: usize = 1024;

/// The commits of a federation that are to be logged.
#[derive(Debug)]
pub(super) struct CommitLog {
    federation: String,
    catalog: Arc<LocalCatalogue>,
    queue: Mutex<LogQueue>,
}

#[derive(Debug, Default)]
struct LogQueue {
    commits: VecDeque<(Csn, Commit)>,
    dropped: u64,
    is_writing: bool,
}

impl CommitLog {
    pub(super) fn new(federation: &str, catalog: Arc<LocalCatalogue>) -> Self {
        CommitLog { federation: federation.to_owned(), catalog, queue: Mutex::default() }
    }

    /// Queues a published commit.
    pub(super) fn add(self: &Arc<Self>, csn: Csn, commit: Commit) {
        let mut queue = self.queue.lock();
        if queue.commits.len() >= WAITING_MAX {
            queue.dropped += 1;
            return;
        }
        queue.commits.push_back((csn, commit));
        if !std::mem::replace(&mut queue.is_writing, true) {
            let log = Arc::clone(self);
            spawn_blocking(move || log.write_all());
        }
    }

    fn write_all(&self) {
        loop {
            let mut queue = self.queue.lock();
            let dropped = std::mem::take(&mut queue.dropped);
            let Some((csn, commit)) = queue.commits.pop_front() else {
                queue.is_writing = false;
                return;
            };
            drop(queue);
            if dropped > 0 {
                tracing::warn!(
                    self.federation,
                    dropped,
                    "commits were not logged, because they came too fast"
                );
            }
            log_commit(&self.federation, &self.catalog, csn, &commit);
        }
    }
}

fn log_commit(federation: &str, catalog: &LocalCatalogue, csn: Csn, commit: &Commit) {
    let by = commit.author.as_ref();
    let (objects, bytes) = grown(catalog, &commit.versions).unzip();
    tracing::info!(
        federation,
        csn = csn.0,
        // The field `message` is the line's own text.
        commit_message = commit.message,
        changed = changed(catalog, commit),
        objects,
        bytes,
        by = by.map(|by| format!("{}@{}, process {}", by.user, by.host, by.pid)),
        "committed"
    );
}

/// The databases and containers that a commit created, wrote, renamed and dropped.
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

/// The objects and bytes by which the containers of a commit have grown; `None` if there are more than
/// [`GROWN_MAX`] containers.
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
