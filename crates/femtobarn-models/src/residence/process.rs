//! Steps of the processes that move the file.

use super::{
    Bytes, KEYS, OnDisk, Phase, ResidenceGuard, ResidenceStep, RowState, STORES, SealedFile,
    SealedFileState,
};

impl SealedFile {
    fn begin_steps(
        &self,
        state: &SealedFileState,
        who: usize,
        add: &mut dyn FnMut(ResidenceStep, SealedFileState),
    ) {
        if state.lock.is_some() && self.has(ResidenceGuard::TakesLock) {
            return;
        }
        let is_there = state.file != Bytes::Absent;
        let begin = |phase: Phase| {
            let mut after = state.clone();
            (after.lock, after.processes[who]) = (Some(who), phase);
            after
        };
        for store in 0..STORES {
            let is_complete = matches!(state.rows[store], Some((_, RowState::Complete)));
            let key = state.keys[store];
            if state.disk == OnDisk::Online && is_there && !is_complete && key < KEYS {
                let mut after = begin(Phase::Copying(store));
                if let Some((old, _)) = after.rows[store].replace((key, RowState::Migrating)) {
                    after.discarded[store][old] |= old != key;
                }
                after.keys[store] += usize::from(self.has(ResidenceGuard::NewKeys));
                add(ResidenceStep::BeginCopy(who, store), after);
            }
            if state.rows[store].is_some() {
                add(ResidenceStep::Discard(who, store), self.discard(state, store));
            }
        }
        if is_there {
            add(ResidenceStep::BeginEviction(who), begin(Phase::Evicting));
        }
        if state.disk != OnDisk::Online && is_there {
            // The process compares the file with its checksum.
            let mut after = state.clone();
            after.disk = OnDisk::Online;
            add(ResidenceStep::EndStaging(who), after);
        } else if !is_there {
            let mut after = begin(Phase::Staging([false; STORES]));
            after.disk = OnDisk::Staging;
            add(ResidenceStep::BeginStaging(who), after);
        }
    }

    /// The state after a copy was discarded, or the discard was refused.
    fn discard(&self, state: &SealedFileState, store: usize) -> SealedFileState {
        let mut after = state.clone();
        let is_here = state.file != Bytes::Absent && state.disk == OnDisk::Online;
        let is_complete =
            |row: &Option<(usize, RowState)>| matches!(row, Some((_, RowState::Complete)));
        let has_other = is_complete(&state.rows[1 - store]);
        let may_go = is_here || has_other || !self.has(ResidenceGuard::KeepsLastCopy);
        if let Some((key, _)) = after.rows[store].take_if(|_| may_go) {
            after.discarded[store][key] = true;
        }
        after
    }

    pub(super) fn process_steps(
        &self,
        state: &SealedFileState,
        who: usize,
        add: &mut dyn FnMut(ResidenceStep, SealedFileState),
    ) {
        let mut after = state.clone();
        let end = |after: &mut SealedFileState| {
            after.processes[who] = Phase::Idle;
            after.lock = after.lock.filter(|holder| *holder != who);
        };
        match state.processes[who] {
            Phase::Idle => self.begin_steps(state, who, add),
            Phase::Copying(store) => {
                if let Some((key, RowState::Migrating)) = state.rows[store] {
                    after.objects[store][key] = state.file;
                }
                after.processes[who] = Phase::HasPut(store);
                add(ResidenceStep::Put(who), after);
            }
            Phase::HasPut(store) => {
                if let Some((_, state)) = &mut after.rows[store] {
                    *state = RowState::Complete;
                }
                end(&mut after);
                add(ResidenceStep::EndCopy(who), after);
            }
            Phase::Evicting | Phase::HasAsked | Phase::HasLease => {
                self.eviction_steps(state, who, add);
            }
            Phase::HasRecorded | Phase::HasRemoved => self.eviction_steps(state, who, add),
            Phase::Staging(tried) => self.staging_steps(state, (who, tried), add),
            Phase::HasFetched(bytes) => {
                (after.file, after.is_durable) = (bytes, self.has(ResidenceGuard::SyncsFirst));
                after.processes[who] = Phase::HasNamed;
                add(ResidenceStep::Name(who), after);
            }
            Phase::HasNamed => {
                after.disk = OnDisk::Online;
                end(&mut after);
                add(ResidenceStep::EndStaging(who), after);
            }
        }
    }

    fn eviction_steps(
        &self,
        state: &SealedFileState,
        who: usize,
        add: &mut dyn FnMut(ResidenceStep, SealedFileState),
    ) {
        let mut after = state.clone();
        let end = |after: &mut SealedFileState| {
            after.processes[who] = Phase::Idle;
            after.lock = after.lock.filter(|holder| *holder != who);
        };
        match state.processes[who] {
            Phase::Evicting => {
                for store in 0..STORES {
                    if let Some((key, row @ RowState::Complete)) = &mut after.rows[store]
                        && self.has(ResidenceGuard::AsksStores)
                        && state.objects[store][*key] != Bytes::Whole
                    {
                        *row = RowState::Lost;
                    }
                }
                after.processes[who] = Phase::HasAsked;
                add(ResidenceStep::AskStores(who), after);
            }
            Phase::HasAsked => {
                if state.is_open && self.has(ResidenceGuard::TakesLease) {
                    end(&mut after);
                } else if self.has(ResidenceGuard::RecordsFirst) {
                    after.processes[who] = Phase::HasLease;
                } else {
                    after.processes[who] = Phase::HasRecorded;
                }
                add(ResidenceStep::Lease(who), after);
            }
            Phase::HasLease | Phase::HasRemoved => {
                let complete = state.rows.iter().flatten();
                let mut complete = complete.filter(|row| row.1 == RowState::Complete);
                let has_copy = complete.next().is_some();
                if has_copy || !self.has(ResidenceGuard::CopyIsComplete) {
                    after.disk = OnDisk::Evicted;
                    after.processes[who] = Phase::HasRecorded;
                } else {
                    end(&mut after);
                }
                if state.processes[who] == Phase::HasRemoved {
                    end(&mut after);
                }
                add(ResidenceStep::RecordEviction(who), after);
            }
            Phase::HasRecorded => {
                after.was_open = state.is_open;
                (after.file, after.is_durable) = (Bytes::Absent, true);
                end(&mut after);
                if !self.has(ResidenceGuard::RecordsFirst) {
                    after.processes[who] = Phase::HasRemoved;
                }
                add(ResidenceStep::Remove(who), after);
            }
            _ => {}
        }
    }

    fn staging_steps(
        &self,
        state: &SealedFileState,
        (who, mut tried): (usize, [bool; STORES]),
        add: &mut dyn FnMut(ResidenceStep, SealedFileState),
    ) {
        let mut after = state.clone();
        let untried = |store: &usize| {
            let row = state.rows[*store];
            !tried[*store] && row.is_some_and(|row| row.1 != RowState::Migrating)
        };
        let Some(store) = (0..STORES).find(untried) else {
            (after.disk, after.processes[who]) = (OnDisk::Evicted, Phase::Idle);
            after.lock = after.lock.filter(|holder| *holder != who);
            add(ResidenceStep::GiveUp(who), after);
            return;
        };
        let Some((key, row)) = &mut after.rows[store] else { return };
        let bytes = state.objects[store][*key];
        let is_taken = match bytes {
            Bytes::Absent => false,
            Bytes::Whole => true,
            Bytes::Bad => !self.has(ResidenceGuard::Compares),
        };
        *row = if is_taken { RowState::Complete } else { RowState::Lost };
        tried[store] = true;
        after.processes[who] =
            if is_taken { Phase::HasFetched(bytes) } else { Phase::Staging(tried) };
        add(ResidenceStep::Fetch(who, store), after);
    }
}
