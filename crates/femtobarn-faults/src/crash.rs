//! Enumerates the states in which a crash may leave a disk, and checks each of them.
//!
//! A trace is replayed, and the power fails after every operation. Of the pending changes, the disk then has: none;
//! all; all but one, or only the last one; all or none, with the last write torn at a multiple of 512 or 4096
//! bytes; or a random subset, with torn and garbled writes. All but one is tried only where most changes are
//! pending: before each sync and each acknowledgement. States with equal bytes and acknowledgements are checked
//! once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use twox_hash::XxHash3_64;

use crate::disk::{ChangeOutcome, Crash, CrashDisk, DiskImage, SECTOR};
use crate::random::SplitMix;
use crate::trace::FileOperation;
use crate::verify::Acknowledged;

/// SplitMix subsets at each operation.
const SUBSETS: usize = 2;
/// Cuts of one write at each size of a block.
const CUTS: u64 = 2;
/// The block size of a file system, which also tears writes at block boundaries.
const BLOCK: u64 = 4096;
/// One in this many states is verified thoroughly.
const THOROUGH_EVERY: usize = 10;
/// States queued for checking.
const WAITING_MAX: usize = 8;

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Operations of the trace.
    pub operations: usize,
    /// Crashes by the rules above, equal states included.
    pub possible: usize,
    /// Different states that were checked.
    pub tried: usize,
    /// A description of each state that failed.
    pub failures: Vec<String>,
}

/// Verifies the federation in a folder against the acknowledgements, in every detail if the last argument is set.
pub type Verifier<'a> = &'a (dyn Fn(&Path, &Acknowledged, bool) -> Result<(), String> + Sync);

/// A crash after an operation.
struct CrashPoint {
    operation: usize,
    crash: Crash,
}

/// A state of the disk that is to be checked.
struct CrashState {
    name: String,
    found: DiskImage,
    acknowledged: Acknowledged,
    thorough: bool,
}

/// Tries about `limit` crashes of a recorded workload, or all of them.
///
/// # Errors
/// Names the operation of the trace that cannot be applied.
pub fn explore(
    verifier: Verifier<'_>,
    trace: &[FileOperation],
    limit: usize,
    seed: u64,
) -> Result<Exploration, String> {
    let mut random = SplitMix(seed);
    let mut points = enumerate(trace, &mut random)?;
    let possible = points.len();
    // A random sample in the original order.
    points.retain(|_| random.below(possible as u64) < limit as u64);
    let (tried, failures) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let (sender, receiver) = sync_channel::<CrashState>(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let replayed = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            scope.spawn(|| check_all(verifier, &receiver, &tried, &failures));
        }
        let send = |case| drop(sender.send(case));
        let replayed = replay(trace, &points, send);
        drop(sender);
        replayed
    });
    replayed?;
    let failures = failures.into_inner().unwrap_or_default();
    let (operations, tried) = (trace.len(), tried.into_inner());
    Ok(Exploration { operations, possible, tried, failures })
}

fn check_all(
    verifier: Verifier<'_>,
    receiver: &Mutex<Receiver<CrashState>>,
    tried: &AtomicUsize,
    failures: &Mutex<Vec<String>>,
) {
    loop {
        let next = receiver.lock().expect("no thread panics while it receives").recv();
        let Ok(case) = next else { return };
        tried.fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = check(verifier, &case) {
            let mut failures = failures.lock().expect("no thread panics while it reports");
            failures.push(format!("{}: {failure}", case.name));
        }
    }
}

fn check(verifier: Verifier<'_>, case: &CrashState) -> Result<(), String> {
    let folder = in_memory()?;
    write(&case.found, folder.path()).map_err(|error| format!("cannot write a state: {error}"))?;
    let verified = || verifier(&folder.path().join("fed"), &case.acknowledged, case.thorough);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(verified)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// A temporary folder, in memory if the machine has `/dev/shm`.
///
/// # Errors
/// The operating system's error if the folder cannot be created.
pub fn in_memory() -> Result<tempfile::TempDir, String> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.map_err(|error| format!("cannot make a folder: {error}"))
}

/// Writes a disk's contents into a folder.
///
/// # Errors
/// The operating system's error if a file or folder cannot be created.
pub fn write(found: &DiskImage, folder: &Path) -> std::io::Result<()> {
    for path in &found.folders {
        std::fs::create_dir_all(folder.join(path))?;
    }
    for (path, bytes) in &found.files {
        std::fs::write(folder.join(path), bytes)?;
    }
    Ok(())
}

/// Replays the trace and sends every new state.
fn replay(
    trace: &[FileOperation],
    points: &[CrashPoint],
    mut send: impl FnMut(CrashState),
) -> Result<(), String> {
    let mut disk = CrashDisk::default();
    let mut acknowledged = Acknowledged::default();
    let mut seen = HashSet::new();
    let mut next = points.iter().peekable();
    for (number, operation) in trace.iter().enumerate() {
        disk.apply(operation.clone())?;
        if let FileOperation::Acknowledge { text } = operation {
            acknowledged.record(text);
        }
        while let Some(point) = next.next_if(|point| point.operation == number) {
            let found = disk.after(&point.crash);
            if seen.insert(fingerprint(&found, &acknowledged)) {
                send(CrashState {
                    name: format!("crash after operation {number} with {:?}", point.crash),
                    found,
                    acknowledged: acknowledged.clone(),
                    thorough: seen.len() % THOROUGH_EVERY == 0,
                });
            }
        }
    }
    Ok(())
}

fn fingerprint(found: &DiskImage, acknowledged: &Acknowledged) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.folders.hash(&mut hasher);
    for (path, bytes) in &found.files {
        (path, XxHash3_64::oneshot(bytes)).hash(&mut hasher);
    }
    acknowledged.hash(&mut hasher);
    hasher.finish()
}

/// Enumerates all crashes, in the order of operations.
fn enumerate(trace: &[FileOperation], random: &mut SplitMix) -> Result<Vec<CrashPoint>, String> {
    let mut disk = CrashDisk::default();
    let mut points = vec![];
    for (operation, done) in trace.iter().enumerate() {
        disk.apply(done.clone())?;
        let next = trace.get(operation + 1);
        let is_fullest = matches!(
            next,
            None | Some(FileOperation::Sync { .. } | FileOperation::SyncFolder { .. })
                | Some(FileOperation::Acknowledge { .. } | FileOperation::FailedSync { .. })
        );
        let crashes = crashes(&disk, is_fullest, random);
        points.extend(crashes.into_iter().map(|crash| CrashPoint { operation, crash }));
    }
    Ok(points)
}

/// Crashes of a disk as it is now; more of them where most changes are pending.
pub(crate) fn crashes(disk: &CrashDisk, is_fullest: bool, random: &mut SplitMix) -> Vec<Crash> {
    let pending = disk.pending();
    let (count, names) = (pending.len(), disk.pending_names());
    let all = |outcome: ChangeOutcome, names| Crash {
        outcomes: vec![outcome; count],
        names: Some(names),
    };
    let mut crashes = vec![all(ChangeOutcome::Lost, 0), all(ChangeOutcome::Kept, names)];
    if names > 0 {
        crashes.extend([all(ChangeOutcome::Lost, names), all(ChangeOutcome::Kept, 0)]);
        crashes.push(all(ChangeOutcome::Kept, random.below(names)));
    }
    let but = |base: ChangeOutcome, at: usize, outcome: ChangeOutcome| {
        let mut crash = all(base, names);
        crash.outcomes[at] = outcome;
        crash
    };
    if is_fullest {
        crashes.extend((0..count).map(|at| but(ChangeOutcome::Kept, at, ChangeOutcome::Lost)));
    }
    if let Some(range) = pending.last().and_then(|(_, pending)| pending.written()) {
        for cut in cuts(range, random) {
            crashes.push(but(ChangeOutcome::Kept, count - 1, ChangeOutcome::CutAt(cut)));
            crashes.push(but(ChangeOutcome::Lost, count - 1, ChangeOutcome::CutAt(cut)));
        }
        crashes.push(but(ChangeOutcome::Kept, count - 1, ChangeOutcome::Garbage));
    }
    let subsets = if count > 1 { SUBSETS } else { 0 };
    crashes.extend((0..subsets).map(|_| Crash {
        outcomes: (0..count).map(|_| outcome(random)).collect(),
        names: Some(random.below(names + 1)),
    }));
    crashes
}

fn outcome(random: &mut SplitMix) -> ChangeOutcome {
    match random.below(8) {
        0..3 => ChangeOutcome::Kept,
        3..6 => ChangeOutcome::Lost,
        6 => ChangeOutcome::Sectors(random.draw()),
        _ => ChangeOutcome::Garbage,
    }
}

/// Offsets at which a write may be torn: some multiples of a sector and of a block within it.
fn cuts(range: std::ops::Range<u64>, random: &mut SplitMix) -> Vec<u64> {
    let mut cuts = vec![];
    for unit in [SECTOR, BLOCK] {
        let (first, last) = (range.start / unit + 1, range.end.saturating_sub(1) / unit);
        if first > last {
            continue;
        }
        let count = last - first + 1;
        if count <= CUTS {
            cuts.extend((first..=last).map(|at| at * unit))
        } else {
            cuts.extend((0..CUTS).map(|_| (first + random.below(count)) * unit))
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
