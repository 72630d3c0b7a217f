//! One line of the log for each commit: its changes, their size, and its author.
//!
//! One task writes the lines in the order of the commits, and looks up names for them; publishing does not wait for it.
//! If the task cannot keep up, it counts commits instead of writing them. After another process has changed a name,
//! lines may have the old name for some seconds; sizes are always exact.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use femtobarn_catalog::{
    Commit, ContainerId, Csn, DatabaseId, ErrorKind, LocalCatalogue, LockTarget, NewVersion, clock,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// Changes that a line names at most.
const NAMES_MAX: usize = 8;
/// Containers whose growth is computed at most.
const GROWN_MAX: usize = 64;
/// Commits that wait for the task at most.
const WAITING_MAX: usize = 1024;

/// Containers of which something is known at most.
const KNOWN_MAX: usize = 1024;
/// How long that is kept.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The commits of a federation that are to be logged.
#[derive(Debug)]
pub(super) struct CommitLog {
    federation: String,
    catalog: Arc<LocalCatalogue>,
    queue: Mutex<LogQueue>,
    known: Mutex<KnownContainers>,
    /// Whether it was logged that no more commits are taken.
    has_failed: AtomicBool,
}

/// What the log knows of containers.
#[derive(Debug)]
struct KnownContainers {
    since: Instant,
    containers: HashMap<(DatabaseId, ContainerId), KnownContainer>,
}

#[derive(Debug)]
struct KnownContainer {
    name: String,
    /// The commit of its newest version.
    csn: Csn,
    entries: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct LogQueue {
    commits: VecDeque<(Csn, Commit)>,
    dropped: u64,
    is_writing: bool,
}

impl CommitLog {
    pub(super) fn new(federation: &str, catalog: Arc<LocalCatalogue>) -> Self {
        CommitLog {
            federation: federation.to_owned(),
            catalog,
            queue: Mutex::default(),
            known: Mutex::new(KnownContainers { since: clock::now(), containers: HashMap::new() }),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Logs once that no more commits are taken, if an earlier one failed in the operating system. Called after a commit
    /// that failed.
    pub(super) fn note_failure(&self) {
        let failed = self.catalog.check_not_failed().err();
        let Some(error) = failed.filter(|error| error.kind() == ErrorKind::Closed) else { return };
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            let federation = &self.federation;
            tracing::error!(%federation, %error, "no commits are taken any more; restart the server");
        }
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
            self.known.lock().log_commit(&self.federation, &self.catalog, csn, &commit);
        }
    }
}

impl KnownContainers {
    fn log_commit(
        &mut self,
        federation: &str,
        catalog: &LocalCatalogue,
        csn: Csn,
        commit: &Commit,
    ) {
        let is_old = self.since.elapsed() > KNOWN_FOR;
        if is_old || self.containers.len() >= KNOWN_MAX || changes_names(commit) {
            self.containers.clear();
            self.since = clock::now();
        }
        let by = commit.author.as_ref();
        let (objects, bytes) = self.grown(catalog, &commit.versions).unzip();
        let changed = changed(catalog, commit, |key| self.name(catalog, key));
        tracing::info!(
            federation,
            csn = csn.0,
            // The field `message` is the line's own text.
            commit_message = commit.message,
            changed,
            objects,
            bytes,
            by = by.map(|by| format!("{}@{}, process {}", by.user, by.host, by.pid)),
            "committed"
        );
        for new in commit.versions.iter().take(NAMES_MAX) {
            let key = (new.database, new.container);
            let name = self.name(catalog, key);
            let (entries, bytes) = (new.entries, new.bytes);
            self.containers.insert(key, KnownContainer { name, csn, entries, bytes });
        }
    }

    fn name(&self, catalog: &LocalCatalogue, key: (DatabaseId, ContainerId)) -> String {
        match self.containers.get(&key) {
            Some(known) => known.name.clone(),
            None => catalog.describe(&LockTarget::Container(key.0, key.1)),
        }
    }

    /// The objects and bytes by which the containers of a commit have grown; `None` if there are more than
    /// [`GROWN_MAX`] containers.
    fn grown(&self, catalog: &LocalCatalogue, versions: &[NewVersion]) -> Option<(u64, u64)> {
        if versions.len() > GROWN_MAX {
            return None;
        }
        let before = |new: &NewVersion| {
            let base = new.base?;
            match self.containers.get(&(new.database, new.container)) {
                Some(known) if known.csn == base => Some((known.entries, known.bytes)),
                _ => {
                    let row = catalog.version(new.database, new.container, base).ok()??;
                    Some((row.entries, row.bytes))
                }
            }
        };
        let growth = versions.iter().map(|new| {
            let (entries, bytes) = before(new).unwrap_or((0, 0));
            (new.entries.saturating_sub(entries), new.bytes.saturating_sub(bytes))
        });
        Some(growth.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1)))
    }
}

/// Whether containers have other names after a commit.
fn changes_names(commit: &Commit) -> bool {
    !(commit.renamed_databases.is_empty()
        && commit.renamed_containers.is_empty()
        && commit.dropped_databases.is_empty()
        && commit.dropped_containers.is_empty())
}

/// The databases and containers that a commit created, wrote, renamed and dropped.
fn changed(
    catalog: &LocalCatalogue,
    commit: &Commit,
    container: impl Fn((DatabaseId, ContainerId)) -> String,
) -> String {
    let database = |id: DatabaseId| catalog.describe(&LockTarget::Database(id));
    let made = commit.new_databases.iter().map(|new| format!("new database {}", new.name));
    let filled = commit.versions.iter().map(|it| container((it.database, it.container)));
    let sealed = commit.sealed.iter().map(|(id, _)| format!("sealed {}", database(*id)));
    let renamed = commit.renamed_databases.iter();
    let renamed = renamed.map(|(id, _, name)| format!("database {id} renamed to {name}"));
    let inner = commit.renamed_containers.iter();
    let inner = inner.map(|(of, id, ..)| format!("renamed {}", container((*of, *id))));
    let dropped = commit.dropped_databases.iter().map(|it| format!("dropped database {}", it.id));
    let gone = commit.dropped_containers.iter();
    let gone = gone.map(|(of, id, _)| format!("dropped {}", container((*of, *id))));
    let mut all =
        made.chain(filled).chain(sealed).chain(renamed).chain(inner).chain(dropped).chain(gone);
    let mut shown: Vec<_> = all.by_ref().take(NAMES_MAX).collect();
    let more = all.size_hint().0;
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}
