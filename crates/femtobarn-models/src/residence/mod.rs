//! The file of a sealed database leaves the disk only when it can be staged again, and is staged unchanged or not at
//! all.
//!
//! Two processes copy the file to two stores, evict it, stage it, discard copies, and sweep stores; a reader opens it.
//! The faults: processes, and the machine, end between any two steps; and a store loses an object, or changes its
//! bytes, before the file leaves the disk. No protocol with one copy can survive a store that does so afterwards.
//!
//! The code: `femtobarn-archive/src/keeping`, and `femtobarn-catalog/src/local/replicas.rs`.

mod process;

use crate::explorer::Model;

/// Numbers of stores, and of keys of objects in each store.
const STORES: usize = 2;
const KEYS: usize = 2;

/// A measure of the code against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidenceGuard {
    /// A process that moves the bytes of a database holds its lock.
    TakesLock,
    /// The stores are asked for the copies before the file is removed.
    AsksStores,
    /// A file is evicted only if a copy is complete.
    CopyIsComplete,
    /// The kernel has granted a lease, so no process has the file open.
    TakesLease,
    /// The catalogue records that the file is offline before it is removed.
    RecordsFirst,
    /// The last copy of a file that is not on the disk is not discarded.
    KeepsLastCopy,
    /// A copy gets a key that no earlier copy had.
    NewKeys,
    /// A staged file is compared with its checksum.
    Compares,
    /// A staged file is durable before it gets its name.
    SyncsFirst,
}

impl ResidenceGuard {
    /// All guards.
    pub const ALL: [Self; 9] = [
        Self::TakesLock,
        Self::AsksStores,
        Self::CopyIsComplete,
        Self::TakesLease,
        Self::RecordsFirst,
        Self::KeepsLastCopy,
        Self::NewKeys,
        Self::Compares,
        Self::SyncsFirst,
    ];
}

/// The model, of the code as it is or without one of its guards.
#[derive(Debug, Default)]
pub struct SealedFile {
    /// The guard that is switched off.
    pub without: Option<ResidenceGuard>,
}

/// A step of a process or of a reader, or a fault.
#[derive(Clone, Copy, Debug)]
pub enum ResidenceStep {
    /// A process records that it copies the file to a store.
    BeginCopy(usize, usize),
    /// The process has put the copy there.
    Put(usize),
    /// The process records that the copy is complete.
    EndCopy(usize),
    /// A process is about to evict the file.
    BeginEviction(usize),
    /// The process asks the stores for the copies.
    AskStores(usize),
    /// The process takes a lease of the kernel, or finds the file open.
    Lease(usize),
    /// The process records that the file is offline, or the catalogue refuses that.
    RecordEviction(usize),
    /// The process removes the file.
    Remove(usize),
    /// A process is about to stage the file.
    BeginStaging(usize),
    /// The process fetches the copy in a store.
    Fetch(usize, usize),
    /// The process gives the file its name.
    Name(usize),
    /// The process records that the file is on the disk.
    EndStaging(usize),
    /// The process gives up, since no copy is good.
    GiveUp(usize),
    /// A process discards the copy in a store, or the catalogue refuses that.
    Discard(usize, usize),
    /// A discarded object is removed from a store.
    Sweep(usize, usize),
    /// A reader opens the file, and closes it.
    Read(bool),
    /// A process ends.
    End(usize),
    /// The machine ends.
    EndMachine,
    /// A store loses an object, or changes its bytes.
    Spoil(usize, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bytes {
    Absent,
    Whole,
    Bad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowState {
    Migrating,
    Complete,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OnDisk {
    Online,
    Staging,
    Evicted,
}

/// The activity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Copying(usize),
    HasPut(usize),
    Evicting,
    HasAsked,
    HasLease,
    HasRecorded,
    HasRemoved,
    /// Staging, with the stores that were tried.
    Staging([bool; STORES]),
    HasFetched(Bytes),
    HasNamed,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SealedFileState {
    file: Bytes,
    /// Whether the machine may end without harm to the file.
    is_durable: bool,
    disk: OnDisk,
    rows: [Option<(usize, RowState)>; STORES],
    discarded: [[bool; KEYS]; STORES],
    objects: [[Bytes; KEYS]; STORES],
    /// The next key in each store.
    keys: [usize; STORES],
    lock: Option<usize>,
    processes: [Phase; 2],
    is_open: bool,
    was_open: bool,
    faults_left: u8,
}

impl SealedFile {
    fn has(&self, guard: ResidenceGuard) -> bool {
        self.without != Some(guard)
    }

    fn fault_steps(
        &self,
        state: &SealedFileState,
        add: &mut dyn FnMut(ResidenceStep, SealedFileState),
    ) {
        if state.faults_left == 0 {
            return;
        }
        let with = |change: &dyn Fn(&mut SealedFileState)| {
            let mut after = state.clone();
            after.faults_left -= 1;
            change(&mut after);
            after
        };
        for who in 0..2 {
            if state.processes[who] != Phase::Idle {
                let ended = with(&|after| {
                    after.processes[who] = Phase::Idle;
                    after.lock = after.lock.filter(|holder| *holder != who);
                });
                add(ResidenceStep::End(who), ended);
            }
        }
        let ended = with(&|after| {
            (after.processes, after.lock, after.is_open) = ([Phase::Idle; 2], None, false);
            if !after.is_durable {
                after.file = Bytes::Bad;
            }
        });
        add(ResidenceStep::EndMachine, ended);
        let is_quiet = state.processes.iter().all(|phase| *phase == Phase::Idle);
        if is_quiet && state.disk == OnDisk::Online && state.file == Bytes::Whole {
            for (store, row) in state.rows.iter().enumerate() {
                let Some((key, RowState::Complete)) = *row else { continue };
                for is_gone in [true, false] {
                    let bytes = if is_gone { Bytes::Absent } else { Bytes::Bad };
                    let spoiled = with(&|after| after.objects[store][key] = bytes);
                    add(ResidenceStep::Spoil(store, is_gone), spoiled);
                }
            }
        }
    }
}

impl Model for SealedFile {
    type State = SealedFileState;
    type Transition = ResidenceStep;

    fn beginning(&self) -> SealedFileState {
        SealedFileState {
            file: Bytes::Whole,
            is_durable: true,
            disk: OnDisk::Online,
            rows: [None; STORES],
            discarded: [[false; KEYS]; STORES],
            objects: [[Bytes::Absent; KEYS]; STORES],
            keys: [0; STORES],
            lock: None,
            processes: [Phase::Idle; 2],
            is_open: false,
            was_open: false,
            faults_left: 2,
        }
    }

    fn steps(&self, state: &SealedFileState, add: &mut dyn FnMut(ResidenceStep, SealedFileState)) {
        for who in 0..2 {
            self.process_steps(state, who, add);
        }
        // A reader that opens the file during a lease waits until the lease ends, and then gets the file if it still
        // exists.
        let is_leased = state
            .processes
            .iter()
            .any(|phase| matches!(phase, Phase::HasLease | Phase::HasRecorded))
            && self.has(ResidenceGuard::TakesLease);
        if state.is_open || state.file != Bytes::Absent && !is_leased {
            let mut after = state.clone();
            after.is_open = !state.is_open;
            add(ResidenceStep::Read(after.is_open), after);
        }
        for store in 0..STORES {
            for key in 0..KEYS {
                if state.discarded[store][key] {
                    let mut after = state.clone();
                    after.discarded[store][key] = false;
                    after.objects[store][key] = Bytes::Absent;
                    add(ResidenceStep::Sweep(store, key), after);
                }
            }
        }
        self.fault_steps(state, add);
    }

    fn violated(&self, state: &SealedFileState) -> Option<&'static str> {
        let rows = state.rows.iter().enumerate();
        let mut copies = rows.filter_map(|(store, row)| Some(state.objects[store][(*row)?.0]));
        match state.file {
            Bytes::Bad => Some("6: a file comes back as a whole or not at all"),
            Bytes::Absent if state.disk == OnDisk::Online => {
                Some("6: the catalogue says that a file is away before it leaves the disk")
            }
            Bytes::Absent if !copies.any(|copy| copy == Bytes::Whole) => {
                Some("6: a file leaves the disk when there is a copy")
            }
            Bytes::Absent if state.was_open => {
                Some("6: no process has a file open that leaves the disk")
            }
            _ => None,
        }
    }

    fn reached(&self, state: &SealedFileState, note: &mut dyn FnMut(&'static str)) {
        if state.file == Bytes::Absent && state.disk == OnDisk::Evicted {
            note("evicted");
        }
        if state.processes.contains(&Phase::HasNamed) {
            note("staged");
        }
        if state.rows.iter().flatten().any(|row| row.1 == RowState::Lost) {
            note("a copy was found to be lost");
        }
        if state.rows.iter().flatten().any(|row| *row == (1, RowState::Complete)) {
            note("copied again");
        }
    }
}
