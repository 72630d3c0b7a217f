//! Scenarios of group commit within a process.

#[path = "../../../femtobarn-catalog/src/local/commit_queue.rs"]
mod commit_queue;

use std::sync::Arc;

use commit_queue::CommitQueue;
use femtobarn_catalog::{Commit, Csn};
use loom::thread;

use crate::sync::Mutex;

/// Threads submit a commit each: one leads at a time, and each commit is published once and has its own result.
pub fn every_commit_has_one_result(threads: usize, preemptions: usize) {
    crate::explore("every commit of a group has one result", preemptions, move || {
        let queue = Arc::new(CommitQueue::default());
        // The authors of the published commits, and whether one is being published.
        let published = Arc::new(Mutex::new((Vec::new(), false)));
        let submit = |author: usize| {
            let (queue, published) = (Arc::clone(&queue), Arc::clone(&published));
            move || {
                let commit = Commit { message: author.to_string(), ..Commit::default() };
                let publish = |group: &[Commit]| {
                    let is_led = std::mem::replace(&mut published.lock().1, true);
                    assert!(!is_led, "two threads lead");
                    let mut published = published.lock();
                    published.1 = false;
                    let results = group.iter().map(|commit| {
                        published.0.push(commit.message.clone());
                        Ok(Csn(published.0.len() as u64))
                    });
                    results.collect()
                };
                let csn = queue.submit(commit, publish).expect("it is published");
                let published = &published.lock().0;
                assert_eq!(published[csn.0 as usize - 1], author.to_string());
            }
        };
        let others: Vec<_> = (1..threads).map(|author| thread::spawn(submit(author))).collect();
        submit(0)();
        others.into_iter().for_each(|other| other.join().expect("it has its result"));
        assert_eq!(published.lock().0.len(), threads, "a commit is published twice");
    });
}
