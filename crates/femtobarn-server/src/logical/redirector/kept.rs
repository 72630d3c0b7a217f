//! What servers have said about a path, for a few seconds.
//!
//! All who ask for a path at once share one question. The table is bounded: when it is full of what is still valid, all of
//! it is forgotten, which costs questions and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::data_server::Presence;
use crate::physical::StoragePath;

/// How long it is kept that a server has a path.
const KEPT_HERE: Duration = Duration::from_secs(5);
/// How long it is kept that none has it: it may be made at any moment.
const KEPT_ABSENT: Duration = Duration::from_secs(1);
/// Paths that are kept.
const PATHS_MAX: usize = 16_384;
/// Bytes of a path that is kept.
const PATH_BYTES_MAX: usize = 4096;

/// What servers said, in their order, and when.
type Said = (Instant, Vec<Presence>);

/// Whether a question waits for all servers is part of it: else those that are slow may be left out.
type Question = (StoragePath, bool);

/// What servers have said.
#[derive(Default)]
pub(super) struct KeptPresences {
    by_question: Mutex<HashMap<Question, Arc<OnceCell<Said>>>>,
}

impl KeptPresences {
    /// What servers have said about a path, or else say now. With `anew`, what they have said before does not count.
    pub(super) async fn get<Asking: Future<Output = Vec<Presence>>>(
        &self,
        path: &StoragePath,
        patiently: bool,
        anew: bool,
        ask: impl FnOnce() -> Asking,
    ) -> Vec<Presence> {
        let said = self.question((path.clone(), patiently), anew);
        let (_, said) = said.get_or_init(async || (clock::now(), ask().await)).await;
        said.clone()
    }

    fn question(&self, question: Question, anew: bool) -> Arc<OnceCell<Said>> {
        let mut kept = self.by_question.lock();
        match kept.get(&question) {
            Some(said) if said.get().is_none_or(|said| !anew && is_valid(said)) => Arc::clone(said),
            _ if question.0.as_bytes().len() > PATH_BYTES_MAX => Arc::default(),
            _ => {
                if kept.len() >= PATHS_MAX {
                    kept.retain(|_, said| said.get().is_none_or(is_valid));
                }
                if kept.len() >= PATHS_MAX {
                    kept.clear();
                }
                Arc::clone(kept.entry(question).insert_entry(Arc::default()).get())
            }
        }
    }

    /// Forgets what was said about a path.
    pub(super) fn forget(&self, path: &StoragePath) {
        let mut kept = self.by_question.lock();
        for patiently in [false, true] {
            kept.remove(&(path.clone(), patiently));
        }
    }
}

fn is_valid((at, said): &Said) -> bool {
    let most = if said.iter().any(Presence::is_here) { KEPT_HERE } else { KEPT_ABSENT };
    clock::now().duration_since(*at) < most
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn path(text: &str) -> StoragePath {
        StoragePath::new(text.as_bytes()).expect("a clean path")
    }

    fn here() -> Vec<Presence> {
        vec![Presence::Here { is_online: true, is_writable: false }]
    }

    #[tokio::test]
    async fn those_who_ask_at_once_share_a_question() {
        let (kept, asked, path) = (KeptPresences::default(), AtomicUsize::new(0), path("/f"));
        let ask = |anew| {
            kept.get(&path, false, anew, || async {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                here()
            })
        };
        tokio::join!(ask(false), ask(true), ask(false));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        ask(false).await;
        assert_eq!(asked.load(Ordering::Relaxed), 1, "it is kept");
        ask(true).await;
        assert_eq!(asked.load(Ordering::Relaxed), 2, "it is asked anew");
        kept.forget(&path);
        ask(false).await;
        assert_eq!(asked.load(Ordering::Relaxed), 3, "it was forgotten");
    }

    #[tokio::test]
    async fn the_table_is_bounded() {
        let kept = KeptPresences::default();
        for number in 0..PATHS_MAX + 10 {
            kept.get(&path(&format!("/{number}")), false, false, || async { here() }).await;
        }
        let long = path(&"/long".repeat(1000));
        kept.get(&long, false, false, || async { here() }).await;
        assert!(kept.by_question.lock().len() <= 10);
    }

    #[test]
    fn what_no_server_has_is_kept_for_a_shorter_time() {
        let now = clock::now();
        let absent = vec![Presence::Absent(xrd::ErrorCode::NOT_FOUND, String::new())];
        let ago = now.checked_sub(Duration::from_secs(2)).expect("the clock runs");
        assert!(is_valid(&(ago, here())) && !is_valid(&(ago, absent.clone())));
        assert!(is_valid(&(now, absent)));
    }
}
