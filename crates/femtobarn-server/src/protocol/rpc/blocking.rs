//! Threads on which calls wait for a disk, or for PostgreSQL.
//!
//! 1. No more than [`PLACES_MAX`] of them wait at a time, besides those that publish and pin.
//! 2. The questions that come with operations take no more than [`QUESTIONS_MAX`] of these: nobody waits long for their answers,
//!    but their threads do while PostgreSQL hangs, and all other calls would have none.

use std::sync::Arc;
use std::time::Instant;

use femtobarn_catalog::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout_at;

/// Calls that wait at a time.
const PLACES_MAX: usize = 8;
/// Questions that come with operations among them.
const QUESTIONS_MAX: usize = PLACES_MAX / 2;

/// The places of the threads.
pub(super) struct BlockingPlaces {
    all: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

impl BlockingPlaces {
    pub(super) fn new() -> Self {
        let of = |places| Arc::new(Semaphore::new(places));
        BlockingPlaces { all: of(PLACES_MAX), questions: of(QUESTIONS_MAX) }
    }

    /// Runs work that may wait. If there is no place, a task of its own waits for one: calls of a client that does not read its
    /// replies are not polled, and must keep no thread from others.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = |permit: OwnedSemaphorePermit| {
            spawn_blocking(move || {
                let done = work();
                drop(permit);
                done
            })
        };
        if let Ok(permit) = Arc::clone(&self.all).try_acquire_owned() {
            return run(permit).await.unwrap_or_else(|error| Err(stopped(&error)));
        }
        // It is aborted if the call is dropped.
        let (mut task, places) = (JoinSet::new(), Arc::clone(&self.all));
        task.spawn(async move {
            let permit = places.acquire_owned().await.map_err(|error| stopped(&error))?;
            run(permit).await.unwrap_or_else(|error| Err(stopped(&error)))
        });
        let done = task.join_next().await.unwrap_or_else(|| Ok(Err(stopped(&"no task"))));
        done.unwrap_or_else(|error| Err(stopped(&error)))
    }

    /// The answers to questions that came with operations; none if there are none by the deadline.
    pub(super) async fn answer<T: Send + 'static>(
        &self,
        deadline: Instant,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let answered = async {
            let place = Arc::clone(&self.questions).acquire_owned().await.ok()?;
            let work = move || {
                let answer = answer();
                drop(place);
                Ok(answer)
            };
            self.run(work).await.ok()
        };
        timeout_at(deadline.into(), answered).await.ok()?
    }
}

fn stopped(why: &dyn std::fmt::Display) -> Error {
    Error::Internal { what: why.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use femtobarn_catalog::clock;

    use super::*;

    /// While PostgreSQL hung, a few locks with questions kept all look-ups of other clients from a thread.
    #[tokio::test]
    async fn questions_that_hang_leave_places_for_other_calls() {
        let places = BlockingPlaces::new();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let soon = clock::now() + Duration::from_millis(50);
        let hang = || {
            let ended = Arc::clone(&ended);
            places.answer(soon, move || drop(ended.lock().map(|ended| ended.recv())))
        };
        let asked = futures_util::future::join_all((0..2 * PLACES_MAX).map(|_| hang())).await;
        assert!(asked.iter().all(Option::is_none));
        let deadline = clock::now() + Duration::from_secs(60);
        let other = timeout_at(deadline.into(), places.run(|| Ok(7))).await;
        assert_eq!(other.expect("there is a place").unwrap(), 7);
        assert_eq!(places.all.available_permits(), PLACES_MAX - QUESTIONS_MAX);
        drop(end);
        let later = places.answer(deadline, || 8).await;
        assert_eq!(later, Some(8), "places are given back");
    }
}
