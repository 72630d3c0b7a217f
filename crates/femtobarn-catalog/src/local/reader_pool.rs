//! Connections for look-ups, which threads take and return.
//!
//! 1. At most [`READERS_MAX`] connections to a server are in use or idle. Threads that find none free wait, and get one
//!    in the order in which they asked.
//! 2. A thread that has a connection never asks for another.

use std::collections::VecDeque;
use std::path::Path;

use parking_lot::{Condvar, Mutex};

use super::connection::CatalogueConnection;
use crate::clock;
use crate::error::{Error, Result};
use crate::sql::BUSY_WAIT;

/// Idle connections that the pool keeps, and connections to a server that are in use.
const READERS_MAX: usize = 8;

/// The connections.
#[derive(Default)]
pub(super) struct ReaderPool {
    idle: Mutex<Vec<CatalogueConnection>>,
    turns: Mutex<ReaderTurns>,
    ended: Condvar,
}

/// Counts the connections to a server in use, and queues the threads that wait for one.
#[derive(Default)]
struct ReaderTurns {
    in_use: usize,
    next_ticket: u64,
    waiting: VecDeque<u64>,
}

/// Leave to use one connection, until this is dropped.
pub(super) struct ReaderTurn<'a> {
    pool: &'a ReaderPool,
}

impl ReaderPool {
    /// Waits for permission to use a connection to the server; `named` is the file that names the server.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if that takes too long.
    pub(super) fn wait(&self, named: &Path) -> Result<ReaderTurn<'_>> {
        let deadline = clock::now() + BUSY_WAIT;
        let mut turns = self.turns.lock();
        let ticket = turns.next_ticket;
        turns.next_ticket += 1;
        turns.waiting.push_back(ticket);
        while turns.waiting.front() != Some(&ticket) || turns.in_use >= READERS_MAX {
            if self.ended.wait_until(&mut turns, deadline).timed_out() {
                turns.waiting.retain(|other| *other != ticket);
                self.ended.notify_all();
                let what = format!(
                    "all {READERS_MAX} connections of this process to the catalogue that {} names were in use for \
                     {} s: PostgreSQL is slow; try again",
                    named.display(),
                    BUSY_WAIT.as_secs()
                );
                return Err(Error::Unavailable { what });
            }
        }
        turns.waiting.pop_front();
        turns.in_use += 1;
        if !turns.waiting.is_empty() {
            self.ended.notify_all();
        }
        Ok(ReaderTurn { pool: self })
    }

    /// Takes an idle connection.
    pub(super) fn take(&self) -> Option<CatalogueConnection> {
        self.idle.lock().pop()
    }

    /// Returns a connection to the pool, or closes it if the pool has enough idle ones.
    pub(super) fn keep(&self, reader: CatalogueConnection) {
        let mut idle = self.idle.lock();
        if idle.len() < READERS_MAX {
            idle.push(reader);
        }
    }

    /// Runs `look` on all idle connections.
    pub(super) fn each_idle(&self, look: impl FnMut(&CatalogueConnection)) {
        self.idle.lock().iter().for_each(look);
    }

    /// Closes the idle connections.
    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }

    /// Clears the pool in a forked child, where a thread of the parent may have been using it at the fork.
    pub(super) fn clear_inherited(&self) {
        if let Some(mut idle) = self.idle.try_lock() {
            idle.clear();
        }
    }
}

impl Drop for ReaderTurn<'_> {
    fn drop(&mut self) {
        let mut turns = self.pool.turns.lock();
        turns.in_use -= 1;
        if !turns.waiting.is_empty() {
            self.pool.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_that_wait_for_a_connection_get_it_in_the_order_in_which_they_asked() {
        let (pool, order) = (ReaderPool::default(), Mutex::new(vec![]));
        let mut taken: Vec<_> =
            (0..READERS_MAX).map(|_| pool.wait(Path::new("")).unwrap()).collect();
        std::thread::scope(|scope| {
            for number in 0..20 {
                let (pool, order) = (&pool, &order);
                scope.spawn(move || {
                    let turn = pool.wait(Path::new("")).unwrap();
                    order.lock().push(number);
                    drop(turn);
                });
                while pool.turns.lock().waiting.len() <= number {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            // One connection is passed from thread to thread.
            taken.pop();
        });
        assert_eq!(order.into_inner(), (0..20).collect::<Vec<_>>());
        assert_eq!(pool.turns.lock().in_use, READERS_MAX - 1);
    }
}
