//! Flips every bit of a small database in turn. Reads return the original contents or an error, and never panic. A
//! flip that a full check does not find is in a byte that no version refers to.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn::{CheckLevel, Csn, Federation, Profile, Severity, Snapshot};
use femtobarn_faults::crash::in_memory;
use femtobarn_faults::random::SplitMix;
use femtobarn_faults::script::{ExpectedContents, Runner, ScriptChange, ScriptStep};
use femtobarn_faults::verify::contents;
use rntuple::{EnvelopeKind, EnvelopeLink, Footer, Locator, PageList, Value, read_envelope};
use tempfile::TempDir;

const SEED: u64 = 5;
/// The short test flips a bit in one of this many bytes. It has no common factor with the sizes of fields, so
/// that all of them are hit.
const BYTES_BETWEEN: u64 = 5;
const PATHS: [&str; 2] = ["run7/events", "run7/packed"];

/// A federation with one small database, in which objects were updated and deleted, of two classes, with
/// an index.
fn small() -> TempDir {
    let place = in_memory().unwrap();
    let mut runner = Runner::create(&place.path().join("fed")).unwrap();
    let [path, packed] = PATHS.map(str::to_owned);
    let append =
        |path: &str, first| ScriptChange::Append { path: path.to_owned(), first, count: 6 };
    let steps = [
        vec![
            ScriptChange::Database("run7".to_owned()),
            ScriptChange::Container(path.clone(), Profile::Plain),
            append(&path, 0),
            ScriptChange::Index(path.clone()),
        ],
        vec![
            ScriptChange::Update { path: path.clone(), entries: vec![1, 4] },
            ScriptChange::Delete { path: path.clone(), entries: vec![2] },
        ],
        vec![
            ScriptChange::Container(packed.clone(), Profile::Archive),
            append(&packed, 0),
            append(&path, 6),
            ScriptChange::Delete { path: path.clone(), entries: vec![9] },
        ],
    ];
    for changes in steps {
        runner.run(&ScriptStep::Commit(changes)).unwrap();
    }
    place
}

/// The results of reading: all contents as of each commit, and the entries found by some keys.
#[derive(Debug, PartialEq)]
struct Read {
    contents: Vec<ExpectedContents>,
    found: Vec<Vec<u64>>,
}

fn snapshots(federation: &Federation) -> Vec<Snapshot> {
    let head = federation.head().unwrap();
    (1..=head.0).map(|csn| federation.snapshot(Some(Csn(csn))).unwrap()).collect()
}

/// Compares everything that can be read with the truth; returns how many reads failed.
fn compare(federation: &Federation, truth: &Read) -> Result<usize, String> {
    let mut unread = 0;
    for (snapshot, truth) in snapshots(federation).iter().zip(&truth.contents) {
        match contents(snapshot) {
            Ok(contents) if contents != *truth => return Err("a wrong value was read".to_owned()),
            found => unread += usize::from(found.is_err()),
        }
    }
    for (number, truth) in truth.found.iter().enumerate() {
        match find(federation, number as u64) {
            Ok(entries) if entries != *truth => return Err("a look-up was wrong".to_owned()),
            found => unread += usize::from(found.is_err()),
        }
    }
    Ok(unread)
}

fn find(federation: &Federation, number: u64) -> femtobarn::Result<Vec<u64>> {
    let view = federation.snapshot(None)?.view(PATHS[0])?;
    view.find_all(&[("number", Value::UInt(number))])
}

fn truth(federation: &Federation) -> Read {
    let contents = snapshots(federation).iter().map(|each| contents(each).unwrap()).collect();
    let all: Vec<_> = (0..12).map(|number| find(federation, number).unwrap()).collect();
    assert_eq!(all[2], Vec::<u64>::new(), "the object was deleted");
    assert_eq!(all[11], vec![11]);
    Read { contents, found: all }
}

/// The bytes of the file that some version refers to, found by walking from the catalogue's rows as
/// `docs/format.md` describes it.
fn referenced(federation: &Federation, file: &[u8]) -> BTreeSet<u64> {
    let mut bytes = BTreeSet::new();
    let source = file.to_vec();
    for snapshot in snapshots(federation) {
        for path in PATHS {
            let Ok(view) = snapshot.view(path) else { continue };
            let version = view.version();
            let mut add = |offset: u64, size: u64| bytes.extend(offset..offset + size);
            let (header, footer) = (version.header, version.footer);
            add(header.offset, header.size);
            add(footer.offset, footer.size);
            add(version.record.offset, version.record.size);
            add(version.annex.offset, version.annex.size);
            let annex = &file[version.annex.offset as usize..][..version.annex.size as usize];
            blobs(annex).into_iter().for_each(|(offset, size)| add(offset, size));
            let locator = Locator { offset: footer.offset, size: footer.size };
            let link = EnvelopeLink { length: footer.length, locator };
            let envelope = read_envelope(&source, &link, EnvelopeKind::Footer, u64::MAX).unwrap();
            for group in Footer::decode(&envelope).unwrap().cluster_groups {
                let list = group.page_list;
                add(list.locator.offset, list.locator.size);
                let envelope =
                    read_envelope(&source, &list, EnvelopeKind::PageList, u64::MAX).unwrap();
                for cluster in PageList::decode(&envelope).unwrap().clusters {
                    for page in cluster.columns.iter().flat_map(|run| &run.pages) {
                        let checksum = if page.checksum { 8 } else { 0 };
                        add(page.locator.offset, page.locator.size + checksum);
                    }
                }
            }
        }
    }
    bytes
}

/// Offset and size of everything that an annex names: its text has them as numbers after their names.
fn blobs(annex: &[u8]) -> Vec<(u64, u64)> {
    let text = String::from_utf8_lossy(annex).into_owned();
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<u64>().unwrap()
    };
    let parts = text.split("\"offset\":").skip(1);
    parts.map(|part| (number(part), number(part.split("\"size\":").nth(1).unwrap()))).collect()
}

/// One copy of the federation, of which bits are flipped.
struct Victim {
    place: TempDir,
    whole: Vec<u8>,
}

impl Victim {
    fn copy(of: &Path, whole: &[u8]) -> Self {
        let place = in_memory().unwrap();
        let folder = place.path().join("fed");
        for sub in ["databases", "locks"] {
            fs::create_dir_all(folder.join(sub)).unwrap();
        }
        fs::copy(of.join("catalogue.sqlite"), folder.join("catalogue.sqlite")).unwrap();
        Victim { place, whole: whole.to_vec() }
    }

    /// Flips a bit; returns whether reading and a full check have detected it.
    fn flip(&self, bit: u64, truth: &Read, checks: bool) -> Result<(bool, bool), String> {
        let mut flipped = self.whole.clone();
        flipped[bit as usize / 8] ^= 1 << (bit % 8);
        let folder = self.place.path().join("fed");
        fs::write(folder.join("databases/run7.root"), flipped).unwrap();
        let federation = Federation::open(&folder).unwrap();
        let unread = compare(&federation, truth)?;
        let is_found = checks && {
            let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
            // Statistics and indexes can be rebuilt, so that damage to them is only a warning.
            report.worst() > Some(Severity::Notice)
        };
        Ok((unread > 0, is_found))
    }
}

/// Flips all bits, or one of every few bytes; a full check looks at one bit of each byte.
fn flip(all: bool) {
    let step = if all { 1 } else { BYTES_BETWEEN };
    let place = small();
    let folder = place.path().join("fed");
    let federation = Federation::open(&folder).unwrap();
    let truth = truth(&federation);
    let whole = fs::read(folder.join("databases/run7.root")).unwrap();
    let referenced = referenced(&federation, &whole);
    drop(federation);
    let (next, wrong) = (AtomicU64::new(0), Mutex::new(vec![]));
    let (noticed, harmless) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let victim = Victim::copy(&folder, &whole);
        loop {
            let byte = next.fetch_add(step, Ordering::Relaxed);
            if byte >= whole.len() as u64 {
                return;
            }
            let chosen = SplitMix(SEED + byte).below(8);
            for bit in (0..8).filter(|bit| all || *bit == chosen) {
                let flip = || victim.flip(byte * 8 + bit, &truth, bit == chosen);
                let flipped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(flip));
                let is_referenced = referenced.contains(&byte);
                let outcome = match flipped.unwrap_or_else(|_| Err("panic".to_owned())) {
                    Ok((true, _)) if !is_referenced => Err("an unread byte mattered".to_owned()),
                    Ok((_, false)) if is_referenced && bit == chosen => {
                        Err("a full check did not find it".to_owned())
                    }
                    Ok((is_noticed, _)) => Ok(is_noticed),
                    Err(error) => Err(error),
                };
                match outcome {
                    Ok(true) => drop(noticed.fetch_add(1, Ordering::Relaxed)),
                    Ok(false) => drop(harmless.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => wrong.lock().unwrap().push(format!("{byte}.{bit}: {error}")),
                }
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let (noticed, harmless) = (noticed.into_inner(), harmless.into_inner());
    crate::print_progress(&format!(
        "{} bytes, {} of them referred to: {noticed} flips were noticed by readers, {harmless} were \
         not; seed {SEED}",
        whole.len(),
        referenced.len()
    ));
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} flips go wrong: {}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("; ")
    );
    assert!(noticed > 500, "only {noticed} flips were detected");
}

#[test]
fn a_sample_of_flipped_bits_is_detected_or_unreferenced() {
    flip(false);
}

#[test]
#[ignore = "minutes: every bit"]
fn every_flipped_bit_is_detected_or_unreferenced() {
    flip(true);
}
