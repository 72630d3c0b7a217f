//! All the states in which a crash may leave a disk, and a check of each.
//!
//! A trace is replayed; after every operation the power goes. Of what is not durable then, on the disk
//! may be: nothing; everything; everything but one change, or but the last; a part of the last write, cut
//! at a multiple of 512 or of 4096 bytes; or any subset, with torn and garbled writes. Everything but one
//! change is tried where most is pending: before each sync and each acknowledgement. States that are the
//! same to the byte, with the same acknowledgements, are tried once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use crate::disk::{Crash, Disk, Fate, Found, SECTOR};
use crate::random::Random;
use crate::script::Script;
use crate::trace::Operation;
use crate::verify::{Claim, verify};

/// Random subsets at each operation.
const SUBSETS: usize = 2;
/// Cuts of one write at each size of a block.
const CUTS: u64 = 2;
/// The block of a file system, at which it tears writes, too.
const BLOCK: u64 = 4096;
/// Every so many states are verified thoroughly.
const THOROUGH_EVERY: usize = 10;
/// States that wait to be checked.
const WAITING_MAX: usize = 8;

/// What an exploration has done.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Operations of the trace.
    pub operations: usize,
    /// Crash states that there are by the rules above, before equal ones are left out.
    pub possible: usize,
    /// Different states that were opened and checked.
    pub tried: usize,
    /// What was wrong, if something was.
    pub failures: Vec<String>,
}

/// A crash after an operation.
struct Point {
    operation: usize,
    crash: Crash,
}

/// A state to be checked.
struct Case {
    name: String,
    found: Found,
    claim: Claim,
    thorough: bool,
}

/// Tries crashes of a recorded workload: all there are, or about `limit` of them.
///
/// # Errors
/// If the trace makes no sense.
pub fn explore(
    script: &Script,
    trace: &[Operation],
    limit: usize,
    seed: u64,
) -> Result<Explored, String> {
    let mut random = Random(seed);
    let mut points = enumerate(trace, &mut random)?;
    let possible = points.len();
    // An even, seeded share of all, in their order.
    points.retain(|_| random.below(possible as u64) < limit as u64);
    let (tried, failures) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let (sender, receiver) = sync_channel::<Case>(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let replayed = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            scope.spawn(|| check_all(script, &receiver, &tried, &failures));
        }
        let send = |case| drop(sender.send(case));
        let replayed = replay(trace, &points, send);
        drop(sender);
        replayed
    });
    replayed?;
    let failures = failures.into_inner().unwrap_or_default();
    let (operations, tried) = (trace.len(), tried.into_inner());
    Ok(Explored { operations, possible, tried, failures })
}

fn check_all(
    script: &Script,
    receiver: &Mutex<Receiver<Case>>,
    tried: &AtomicUsize,
    failures: &Mutex<Vec<String>>,
) {
    loop {
        let next = receiver.lock().expect("no thread panics while it receives").recv();
        let Ok(case) = next else { return };
        tried.fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = check(script, &case) {
            let mut failures = failures.lock().expect("no thread panics while it tells");
            failures.push(format!("{}: {failure}", case.name));
        }
    }
}

fn check(script: &Script, case: &Case) -> Result<(), String> {
    let folder = in_memory()?;
    write(&case.found, folder.path()).map_err(|error| format!("cannot write a state: {error}"))?;
    let verified = || verify(&folder.path().join("fed"), script, &case.claim, case.thorough);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(verified)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// A folder that is in memory where the machine has such a place.
///
/// # Errors
/// As the system.
pub fn in_memory() -> Result<tempfile::TempDir, String> {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.map_err(|error| format!("cannot make a folder: {error}"))
}

/// Writes what was found into a folder.
///
/// # Errors
/// As the system.
pub fn write(found: &Found, folder: &Path) -> std::io::Result<()> {
    for path in &found.folders {
        std::fs::create_dir_all(folder.join(path))?;
    }
    for (path, bytes) in &found.files {
        std::fs::write(folder.join(path), bytes)?;
    }
    Ok(())
}

/// Replays the trace and sends every state that is new.
fn replay(trace: &[Operation], points: &[Point], mut send: impl FnMut(Case)) -> Result<(), String> {
    let mut disk = Disk::default();
    let mut claim = Claim::default();
    let mut seen = HashSet::new();
    let mut next = points.iter().peekable();
    for (number, operation) in trace.iter().enumerate() {
        disk.apply(operation)?;
        if let Operation::Acknowledge { text } = operation {
            claim.hear(text);
        }
        while let Some(point) = next.next_if(|point| point.operation == number) {
            let found = disk.after(&point.crash);
            if seen.insert(fingerprint(&found, &claim)) {
                send(Case {
                    name: format!("crash after operation {number} with {:?}", point.crash),
                    found,
                    claim: claim.clone(),
                    thorough: seen.len() % THOROUGH_EVERY == 0,
                });
            }
        }
    }
    Ok(())
}

fn fingerprint(found: &Found, claim: &Claim) -> u64 {
    let mut hasher = DefaultHasher::new();
    found.folders.hash(&mut hasher);
    found.files.hash(&mut hasher);
    claim.hash(&mut hasher);
    hasher.finish()
}

/// Every crash that is tried, in the order of operations.
fn enumerate(trace: &[Operation], random: &mut Random) -> Result<Vec<Point>, String> {
    let mut disk = Disk::default();
    let mut points = vec![];
    for (operation, done) in trace.iter().enumerate() {
        disk.apply(done)?;
        let next = trace.get(operation + 1);
        let is_fullest = matches!(
            next,
            None | Some(Operation::Sync { .. } | Operation::SyncFolder { .. })
                | Some(Operation::Acknowledge { .. } | Operation::FailedSync { .. })
        );
        let crashes = crashes(&disk, is_fullest, random);
        points.extend(crashes.into_iter().map(|crash| Point { operation, crash }));
    }
    Ok(points)
}

fn crashes(disk: &Disk, is_fullest: bool, random: &mut Random) -> Vec<Crash> {
    let pending = disk.pending();
    let (count, names) = (pending.len(), disk.pending_names());
    let all = |fate: Fate, names| Crash { fates: vec![fate; count], names: Some(names) };
    let mut crashes = vec![all(Fate::Lost, 0), all(Fate::Kept, names)];
    if names > 0 {
        crashes.extend([all(Fate::Lost, names), all(Fate::Kept, 0)]);
        crashes.push(all(Fate::Kept, random.below(names)));
    }
    let but = |base: Fate, at: usize, fate: Fate| {
        let mut crash = all(base, names);
        crash.fates[at] = fate;
        crash
    };
    if is_fullest {
        crashes.extend((0..count).map(|at| but(Fate::Kept, at, Fate::Lost)));
    }
    if let Some(range) = pending.last().and_then(|(_, pending)| pending.written()) {
        for cut in cuts(range, random) {
            crashes.push(but(Fate::Kept, count - 1, Fate::CutAt(cut)));
            crashes.push(but(Fate::Lost, count - 1, Fate::CutAt(cut)));
        }
        crashes.push(but(Fate::Kept, count - 1, Fate::Garbage));
    }
    let subsets = if count > 1 { SUBSETS } else { 0 };
    crashes.extend((0..subsets).map(|_| Crash {
        fates: (0..count).map(|_| fate(random)).collect(),
        names: Some(random.below(names + 1)),
    }));
    crashes
}

fn fate(random: &mut Random) -> Fate {
    match random.below(8) {
        0..3 => Fate::Kept,
        3..6 => Fate::Lost,
        6 => Fate::Sectors(random.draw()),
        _ => Fate::Garbage,
    }
}

/// Offsets at which a write may be torn: some multiples of a sector and of a block within it.
fn cuts(range: std::ops::Range<u64>, random: &mut Random) -> Vec<u64> {
    let mut cuts = vec![];
    for unit in [SECTOR, BLOCK] {
        let (first, last) = (range.start / unit + 1, range.end.saturating_sub(1) / unit);
        if first > last {
            continue;
        }
        let count = last - first + 1;
        match count <= CUTS {
            true => cuts.extend((first..=last).map(|at| at * unit)),
            false => cuts.extend((0..CUTS).map(|_| (first + random.below(count)) * unit)),
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
