//! What processes of one host share through the kernel: locks of slots of files, numbers in memory, and futexes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::sync::{Condvar, Mutex};

loom::lazy_static! {
    static ref HOST: Host = Host::default();
}

/// The host of one run of a scenario.
#[derive(Default)]
struct Host {
    files: Mutex<BTreeMap<PathBuf, Arc<HostFile>>>,
    futexes: Mutex<()>,
    woken: Condvar,
}

#[derive(Default)]
struct HostFile {
    /// The open file description that has locked each slot, and how many of these there were.
    slots: Mutex<(BTreeMap<u64, u64>, u64)>,
    freed: Condvar,
    halves: OnceLock<Vec<OnceLock<AtomicU32>>>,
    words: OnceLock<Vec<AtomicU64>>,
}

fn file(path: &Path) -> Arc<HostFile> {
    Arc::clone(HOST.files.lock().entry(path.to_owned()).or_default())
}

/// An open file description, with exclusive locks alone.
pub(crate) struct SlotLocks {
    file: Arc<HostFile>,
    description: u64,
}

impl SlotLocks {
    pub(crate) fn open(path: &Path) -> Self {
        let file = file(path);
        let description = {
            let mut slots = file.slots.lock();
            slots.1 += 1;
            slots.1
        };
        SlotLocks { file, description }
    }

    pub(crate) fn try_lock(&self, slot: u64) -> bool {
        let mut slots = self.file.slots.lock();
        *slots.0.entry(slot).or_insert(self.description) == self.description
    }

    pub(crate) fn lock(&self, slot: u64) {
        let mut slots = self.file.slots.lock();
        while *slots.0.entry(slot).or_insert(self.description) != self.description {
            self.file.freed.wait(&mut slots);
        }
    }

    pub(crate) fn unlock(&self, slot: u64) {
        let mut slots = self.file.slots.lock();
        if slots.0.get(&slot) == Some(&self.description) {
            slots.0.remove(&slot);
        }
        drop(slots);
        self.file.freed.notify_all();
    }
}

/// The numbers in a file. Those of 4 bytes and those of 8 are others, as the pieces use no byte as both.
pub(crate) struct NumbersInMemory {
    file: Arc<HostFile>,
}

impl NumbersInMemory {
    pub(crate) fn open(path: &Path, size: usize) -> Self {
        let file = file(path);
        // The first that opens the file is as long as any. A thread must not find a number that another one has just made.
        let number = |at| {
            if at < HALVES_AT_ONCE { OnceLock::from(AtomicU32::new(0)) } else { OnceLock::new() }
        };
        file.halves.get_or_init(|| (0..size / 4).map(number).collect());
        file.words
            .get_or_init(|| (0..size.min(WORDS_MAX) / 8).map(|_| AtomicU64::new(0)).collect());
        NumbersInMemory { file }
    }

    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.file.halves.wait()[offset / 4].get_or_init(|| AtomicU32::new(0))
    }

    pub(crate) fn u64s(&self) -> &[AtomicU64] {
        self.file.words.wait()
    }
}

/// Numbers of 4 bytes that are made when a file is opened. The others are made by the first thread that looks at them.
const HALVES_AT_ONCE: usize = 16;
/// Bytes of a file that are numbers of 8 bytes, at most.
const WORDS_MAX: usize = 512;

/// Sleeps until the number is not `value`, and it was woken.
pub(crate) fn sleep_while(number: &AtomicU32, value: u32) {
    let mut futexes = HOST.futexes.lock();
    while number.load(loom::sync::atomic::Ordering::SeqCst) == value {
        HOST.woken.wait(&mut futexes);
    }
}

/// Wakes all sleepers: those whose numbers have not changed sleep again.
pub(crate) fn wake_all() {
    let _futexes = HOST.futexes.lock();
    HOST.woken.notify_all();
}
