//! A database that moves to the disk of another server keeps all its commits.
//!
//! A move copies the file, locks the database at its home, completes the copy, and asks the home to hand the database
//! over; the home compares the two files, changes the home in the catalogue, and removes its own file. Meanwhile
//! clients commit at the home whenever the database is not locked. The faults: the session of the move falls silent, or
//! its client frees the lock, during the hand-over; the server that copies ends before its copy is durable; the home
//! counts as lost, and another process takes over its name while the first process, which is suspended, is about to
//! change the home.
//!
//! The code: `femtobarn-server/src/logical/catalogue/{arrivals,site,write_permit}.rs` and
//! `femtobarn-catalog/src/local/servers.rs`.

use crate::explorer::Model;

/// The home before the move, and the destination.
const OLD: usize = 0;
const NEW: usize = 1;
/// Limits: commits, attempts to move the database, and epochs of the home.
const COMMITS_MAX: u8 = 3;
const ATTEMPTS_MAX: u8 = 2;
const EPOCHS_MAX: u8 = 3;

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovesGuard {
    /// The copy is durable before the database is handed over.
    SyncsFirst,
    /// The home compares the two files.
    Compares,
    /// The hand-over is a write of the session: the lock is not freed before it has ended.
    HoldsUntilEnd,
    /// The home changes only if its server still has the epoch in which the database was locked.
    EpochOfServer,
}

impl MovesGuard {
    /// All guards.
    pub const ALL: [Self; 4] =
        [Self::SyncsFirst, Self::Compares, Self::HoldsUntilEnd, Self::EpochOfServer];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct Moves {
    /// The guard that is switched off.
    pub without: Option<MovesGuard>,
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum MovesStep {
    /// A client locks the database at its home, commits, and frees the lock.
    Commit,
    /// The moving server copies the file.
    Copy,
    /// The moving server locks the database at its home.
    Lock,
    /// The moving server completes the copy.
    Complete,
    /// The moving server makes the copy durable.
    Sync,
    /// The moving server asks the home to hand the database over.
    Ask,
    /// A client without a complete copy asks the home to hand the database over.
    AskWithoutCopy,
    /// The home compares the two files.
    Compare,
    /// The home changes the home in the catalogue.
    SetHome,
    /// The home removes its own file.
    Remove,
    /// The client of the move frees its lock.
    Unlock,
    /// The session of the move falls silent, and ends.
    EndSession,
    /// The server that copies ends, and starts again.
    EndNew,
    /// Another process takes over the name of the home, whose process is suspended.
    ReplaceHome,
}

/// A hand-over in progress at the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HandingOver {
    /// The server's epoch in which the database was locked, and the home's epoch as its process knows it.
    locked: u8,
    home_epoch: u8,
    has_compared: bool,
    has_moved: bool,
    /// Whether its process is suspended and another one has taken over the name.
    is_suspended: bool,
    /// Whether the lock is freed when the hand-over ends.
    frees: bool,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MovesState {
    // The catalogue.
    epoch: u8,
    home: usize,
    home_epoch: u8,
    commits: u8,
    /// The commits in the files of both servers; `None` if there is no file.
    files: [Option<u8>; 2],
    is_durable: bool,
    /// Whether the lock table of the home's process has the move's lock, and whether the move believes that it holds
    /// it.
    is_locked: bool,
    has_lock: bool,
    is_complete: bool,
    handing_over: Option<HandingOver>,
    attempts: u8,
    has_replaced: bool,
}

impl Moves {
    fn has(&self, guard: MovesGuard) -> bool {
        self.without != Some(guard)
    }

    /// Frees the lock of the move, at once or when the hand-over ends.
    fn free(&self, state: &mut MovesState) {
        state.has_lock = false;
        state.is_complete = false;
        match &mut state.handing_over {
            Some(it) if self.has(MovesGuard::HoldsUntilEnd) && !it.is_suspended => it.frees = true,
            _ => state.is_locked = false,
        }
    }

    fn move_steps(&self, state: &MovesState, add: &mut dyn FnMut(MovesStep, MovesState)) {
        let with = |change: &dyn Fn(&mut MovesState)| {
            let mut after = state.clone();
            change(&mut after);
            after
        };
        if state.home == NEW {
            return;
        }
        if !state.has_lock && !state.is_locked {
            if state.attempts < ATTEMPTS_MAX {
                let copied = with(&|after| {
                    (after.files[NEW], after.is_durable) = (after.files[OLD], false);
                    after.attempts += 1;
                });
                add(MovesStep::Copy, copied);
            }
            if state.files[NEW].is_some() {
                let locked = with(&|after| (after.has_lock, after.is_locked) = (true, true));
                add(MovesStep::Lock, locked);
            }
        }
        if !state.has_lock {
            return;
        }
        let ask = |after: &mut MovesState| {
            after.handing_over = Some(HandingOver {
                locked: after.epoch,
                home_epoch: after.home_epoch,
                has_compared: false,
                has_moved: false,
                is_suspended: false,
                frees: false,
            });
        };
        if !state.is_complete && state.handing_over.is_none() {
            let is_stable = state.is_durable || state.files[NEW].is_none();
            if state.is_locked && is_stable {
                add(MovesStep::AskWithoutCopy, with(&ask));
            }
            let completed = with(&|after| {
                after.is_complete = true;
                (after.files[NEW], after.is_durable) = (after.files[OLD], false);
            });
            add(MovesStep::Complete, completed);
        } else if state.handing_over.is_none() {
            if !state.is_durable && state.files[NEW].is_some() {
                add(MovesStep::Sync, with(&|after| after.is_durable = true));
            }
            let is_durable = state.is_durable || !self.has(MovesGuard::SyncsFirst);
            if state.is_locked && is_durable {
                add(MovesStep::Ask, with(&ask));
            }
        }
        add(MovesStep::Unlock, with(&|after| self.free(after)));
        let ended = with(&|after| {
            // The home fences the silent session off, if the session was opened at this process.
            if after.is_locked {
                after.home_epoch += 1;
                if let Some(it) = &mut after.handing_over {
                    it.home_epoch = after.home_epoch;
                }
            }
            self.free(after);
        });
        if ended.home_epoch <= EPOCHS_MAX {
            add(MovesStep::EndSession, ended);
        }
    }

    fn home_steps(&self, state: &MovesState, add: &mut dyn FnMut(MovesStep, MovesState)) {
        let Some(it) = state.handing_over else { return };
        let end = |after: &mut MovesState| {
            after.handing_over = None;
            if it.frees {
                after.is_locked = false;
            }
        };
        let mut after = state.clone();
        if !it.has_compared {
            let is_same = state.files[NEW] == state.files[OLD];
            // A process that was suspended checks its lease first.
            if it.is_suspended || !is_same && self.has(MovesGuard::Compares) {
                end(&mut after);
            } else {
                after.handing_over = Some(HandingOver { has_compared: true, ..it });
            }
            add(MovesStep::Compare, after);
        } else if !it.has_moved {
            let has_epoch = it.locked == state.epoch || !self.has(MovesGuard::EpochOfServer);
            if state.home == OLD && state.home_epoch == it.home_epoch && has_epoch {
                (after.home, after.home_epoch) = (NEW, state.home_epoch + 1);
                after.handing_over = Some(HandingOver { has_moved: true, ..it });
            } else {
                end(&mut after);
            }
            add(MovesStep::SetHome, after);
        } else {
            after.files[OLD] = None;
            end(&mut after);
            add(MovesStep::Remove, after);
        }
    }
}

impl Model for Moves {
    type State = MovesState;
    type Transition = MovesStep;

    fn beginning(&self) -> MovesState {
        MovesState {
            epoch: 1,
            home: OLD,
            home_epoch: 1,
            commits: 1,
            files: [Some(1), None],
            is_durable: false,
            is_locked: false,
            has_lock: false,
            is_complete: false,
            handing_over: None,
            attempts: 0,
            has_replaced: false,
        }
    }

    fn steps(&self, state: &MovesState, add: &mut dyn FnMut(MovesStep, MovesState)) {
        let mut after = state.clone();
        let is_free = state.home == NEW || !state.is_locked;
        if is_free && state.commits < COMMITS_MAX && state.files[state.home].is_some() {
            after.commits += 1;
            after.files[state.home] = after.files[state.home].map(|commits| commits + 1);
            if state.home == NEW {
                after.is_durable = true;
            }
            add(MovesStep::Commit, after);
        }
        self.move_steps(state, add);
        self.home_steps(state, add);
        if state.files[NEW].is_some() && !state.is_durable {
            let mut after = state.clone();
            after.files[NEW] = None;
            // The locks of its sessions at the home stay until the sessions end.
            after.is_complete = false;
            add(MovesStep::EndNew, after);
        }
        if !state.has_replaced && state.home == OLD {
            let mut after = state.clone();
            after.has_replaced = true;
            after.epoch += 1;
            after.is_locked = false;
            if let Some(it) = &mut after.handing_over {
                it.is_suspended = true;
            }
            add(MovesStep::ReplaceHome, after);
        }
    }

    fn violated(&self, state: &MovesState) -> Option<&'static str> {
        let has_all = state.files[state.home] == Some(state.commits);
        (!has_all).then_some("3, 8: the file at the home of a database has all of its commits")
    }

    fn reached(&self, state: &MovesState, note: &mut dyn FnMut(&'static str)) {
        if state.home == NEW && state.handing_over.is_none() {
            note("moved");
        }
        if state.home == NEW && state.commits == COMMITS_MAX {
            note("all commits at the new home");
        }
        if state.home == NEW && state.has_replaced {
            note("moved after another process took the name");
        }
    }
}
