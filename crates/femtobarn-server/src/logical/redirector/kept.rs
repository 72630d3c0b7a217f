//! The answers of servers about a path, kept for a few seconds.
//!
//! 1. All clients that ask for a path at the same time share one question. It belongs to none of them, so a client that
//!    disconnects delays no other.
//! 2. The table is bounded: when it is full of valid answers, all are dropped, which costs only new questions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::clock;
use parking_lot::Mutex;
use tokio::sync::watch;
use xrd::Location;

use super::data_server::Presence;

/// How long the answer is kept that a server has a path.
const KEPT_HERE: Duration = Duration::from_secs(5);
/// How long the answer is kept that none has it: it may be made at any moment.
const KEPT_ABSENT: Duration = Duration::from_secs(1);
/// Questions that are kept.
const QUESTIONS_MAX: usize = 16_384;
/// Bytes of a question that is kept.
const QUESTION_BYTES_MAX: usize = 4096;

/// The answers of servers.
#[derive(Debug)]
pub(super) struct ServerAnswers {
    /// The time of the last answer.
    pub at: Instant,
    /// The answers in the order of the servers.
    pub presences: Vec<Presence>,
}

/// A path with the opaque information that selects its content, and whether the question waits for all servers;
/// otherwise slow ones may be left out.
pub(super) type PathQuestion = (Location, bool);

/// The answers of servers, once they arrive.
type Awaited = watch::Receiver<Option<Arc<ServerAnswers>>>;

/// The kept answers of servers.
#[derive(Default)]
pub(super) struct KeptPresences {
    by_question: Mutex<HashMap<PathQuestion, Awaited>>,
}

impl KeptPresences {
    /// The answers of servers, kept or new ones. With `anew`, kept answers do not count.
    pub(super) async fn get<Asking>(
        &self,
        question: PathQuestion,
        anew: bool,
        ask: impl FnOnce() -> Asking,
    ) -> Arc<ServerAnswers>
    where
        Asking: Future<Output = Vec<Presence>> + Send + 'static,
    {
        let mut awaited = self.awaited(question, anew, ask);
        match awaited.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(said)) => Arc::clone(said),
            // The threads of this server end.
            _ => Arc::new(ServerAnswers { at: clock::now(), presences: Vec::new() }),
        }
    }

    fn awaited<Asking>(
        &self,
        question: PathQuestion,
        anew: bool,
        ask: impl FnOnce() -> Asking,
    ) -> Awaited
    where
        Asking: Future<Output = Vec<Presence>> + Send + 'static,
    {
        let mut kept = self.by_question.lock();
        if let Some(known) = kept.get(&question)
            && (is_awaited(known) || !anew && is_valid(known))
        {
            return known.clone();
        }
        let (sender, awaited) = watch::channel(None);
        let asking = ask();
        tokio::spawn(async move {
            let presences = asking.await;
            sender.send_replace(Some(Arc::new(ServerAnswers { at: clock::now(), presences })));
        });
        if question.0.as_bytes().len() <= QUESTION_BYTES_MAX {
            if kept.len() >= QUESTIONS_MAX {
                kept.retain(|_, known| is_awaited(known) || is_valid(known));
            }
            if kept.len() >= QUESTIONS_MAX {
                kept.clear();
            }
            kept.insert(question, awaited.clone());
        }
        awaited
    }

    /// Drops the answers about a path.
    pub(super) fn forget(&self, path: &Location) {
        let mut kept = self.by_question.lock();
        for patiently in [false, true] {
            kept.remove(&(path.clone(), patiently));
        }
    }
}

/// Whether servers are still being asked.
fn is_awaited(known: &Awaited) -> bool {
    known.borrow().is_none() && known.has_changed().is_ok()
}

fn is_valid(known: &Awaited) -> bool {
    known.borrow().as_ref().is_some_and(|said| {
        let is_here = said.presences.iter().any(Presence::is_here);
        clock::now().duration_since(said.at) < if is_here { KEPT_HERE } else { KEPT_ABSENT }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn question(text: &str) -> PathQuestion {
        (Location::new(text.to_owned()).expect("a path"), false)
    }

    fn here() -> Vec<Presence> {
        vec![Presence::Here { is_online: true, is_writable: false }]
    }

    #[tokio::test]
    async fn concurrent_clients_share_a_question() {
        let (kept, asked) = (KeptPresences::default(), Arc::new(AtomicUsize::new(0)));
        let ask = |anew| {
            let asked = Arc::clone(&asked);
            kept.get(question("/f"), anew, move || async move {
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
        kept.forget(&question("/f").0);
        ask(false).await;
        assert_eq!(asked.load(Ordering::Relaxed), 3, "it was forgotten");
    }

    #[tokio::test]
    async fn a_question_outlives_its_clients() {
        let (kept, asked) = (KeptPresences::default(), Arc::new(AtomicUsize::new(0)));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut receiver = Some(receiver);
        let mut ask = || {
            let (asked, receiver) = (Arc::clone(&asked), receiver.take());
            kept.get(question("/f"), false, move || async move {
                asked.fetch_add(1, Ordering::Relaxed);
                if let Some(receiver) = receiver {
                    receiver.await.expect("the sender waits");
                }
                here()
            })
        };
        // The first one leaves, and so does the second.
        for _ in 0..2 {
            let left = tokio::time::timeout(Duration::from_millis(10), ask()).await;
            assert!(left.is_err(), "nothing was said yet");
        }
        sender.send(()).expect("it is still asked");
        assert_eq!(ask().await.presences, here());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn the_table_is_bounded() {
        let kept = KeptPresences::default();
        for number in 0..QUESTIONS_MAX + 10 {
            kept.get(question(&format!("/{number}")), false, || async { here() }).await;
        }
        let long = question(&"/long".repeat(1000));
        kept.get(long.clone(), false, || async { here() }).await;
        let table = kept.by_question.lock();
        assert!(table.len() <= QUESTIONS_MAX && !table.contains_key(&long));
    }

    #[test]
    fn absent_paths_are_kept_for_a_shorter_time() {
        let now = clock::now();
        let is_kept = |at, presences| {
            let (_sender, known) = watch::channel(Some(Arc::new(ServerAnswers { at, presences })));
            is_valid(&known)
        };
        let absent = vec![Presence::Absent(String::new())];
        let ago = now.checked_sub(Duration::from_secs(2)).expect("the clock runs");
        assert!(is_kept(ago, here()) && !is_kept(ago, absent.clone()));
        assert!(is_kept(now, absent));
    }
}
