//! Power is lost in the middle of writing. Of the bytes written since the last sync some sectors are on the
//! disk, some are not, and some are garbage; the file has its old or its new length.
//!
//! The catalogue is taken as it was after a commit, since SQLite handles its own syncs. The database files
//! are mixed from their states then and when the power failed.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use femtobarn::{Csn, Federation};
use rntuple::tfile::{FIRST_KEY, KeyChain, RBLOB_KEY_LENGTH, rblob_key_header};
use tempfile::TempDir;

use crate::conflicts::numbers_at_once;
use crate::processes::{Random, amount};
use crate::support::{assert_chain, begin, event_class, events, federation, with_ten_events};

/// Bytes that a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// Copies a folder, but for locks and shared memory, which do not survive.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        match entry.file_type().unwrap().is_dir() {
            true if name != "locks" => copy(&entry.path(), &to.join(name)),
            false if !name.to_string_lossy().ends_with("-shm") => {
                fs::copy(entry.path(), to.join(name)).unwrap();
            }
            _ => {}
        }
    }
}

/// The file after a loss of power: any part of the bytes changed since the sync is on the disk.
fn torn(synced: &[u8], last: &[u8], random: &mut Random) -> Vec<u8> {
    let length = match random.below(3) {
        0 => synced.len(),
        1 => last.len(),
        _ => {
            synced.len()
                + random.below((last.len().max(synced.len()) - synced.len() + 1) as u64) as usize
        }
    };
    let mut file = vec![0; length];
    let manner = random.below(4);
    for (at, sector) in file.chunks_mut(SECTOR).enumerate() {
        let part = |of: &[u8]| {
            let start = (at * SECTOR).min(of.len());
            of[start..(start + sector.len()).min(of.len())].to_vec()
        };
        let (old, new) = (part(synced), part(last));
        let chosen = match (old == new, manner, random.below(4)) {
            (true, ..) | (_, 0, _) | (_, 3, 0) => old,
            (_, 1, _) | (_, 3, 1) => new,
            // A sector that was never synced may hold anything.
            (_, _, 2) if old.iter().all(|&byte| byte == 0) => vec![0xA5; new.len()],
            (_, _, way) => {
                if way % 2 == 0 {
                    old
                } else {
                    new
                }
            }
        };
        sector[..chosen.len()].copy_from_slice(&chosen);
    }
    file
}

/// Commits some events, and adds their number to `count`; sometimes creates a container as well.
fn work(federation: &Federation, count: &mut u64, random: &mut Random) {
    let mut transaction = begin(federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    let size = 1 + random.below(4000);
    transaction.extend(key, events(7, *count, size)).unwrap();
    if random.below(3) == 0 {
        let name = format!("c{count}");
        let class = event_class();
        let new = transaction.create_container(database, &name, &class, Default::default());
        transaction.extend(new.unwrap(), events(8, 0, 3)).unwrap();
    }
    transaction.commit().unwrap();
    *count += size;
}

#[test]
fn committed_data_survive_a_loss_of_power() {
    let mut random = Random(23);
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed");
    let mut count = 10;
    for round in 0..amount(12, 200) {
        work(&federation, &mut count, &mut random);
        let committed = federation.head().unwrap();
        let crashed = TempDir::new().unwrap();
        let crashed = crashed.path().join("test.fed");
        copy(&path, &crashed);
        let file = "databases/run7.root";
        let synced = fs::read(path.join(file)).unwrap();
        // A large transaction is under way, and its pages are being written.
        let mut transaction = begin(&federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.extend(key, events(99, 0, random.below(200_000))).unwrap();
        let last = fs::read(path.join(file)).unwrap();
        drop(transaction);

        for _ in 0..4 {
            fs::write(crashed.join(file), torn(&synced, &last, &mut random)).unwrap();
            check(&crashed, committed, count, round);
        }
    }
}

/// Small commits sync the catalogue's log alone, which has their bytes, too.
#[test]
fn bytes_of_small_commits_survive_a_loss_of_power() {
    let mut random = Random(29);
    for round in 0..amount(12, 200) {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        let mut count = 10;
        // The second commit takes an extent, which is synced, and the first one with it.
        work(&federation, &mut count, &mut random);
        let (path, file) = (folder.path().join("test.fed"), "databases/run7.root");
        let synced = fs::read(path.join(file)).unwrap();
        for _ in 0..1 + random.below(6) {
            let mut transaction = begin(&federation);
            let database = transaction.database("run7").unwrap();
            let key = transaction.container(database, "events").unwrap();
            let size = 1 + random.below(20);
            transaction.extend(key, events(7, count, size)).unwrap();
            transaction.commit().unwrap();
            count += size;
        }
        let last = fs::read(path.join(file)).unwrap();
        let crashed = folder.path().join("crashed.fed");
        copy(&path, &crashed);
        fs::write(crashed.join(file), torn(&synced, &last, &mut random)).unwrap();
        let again = Federation::open(&crashed).unwrap();
        assert!(numbers_at_once(&again) == (0..count).collect::<Vec<_>>(), "round {round}");
        again.seal("run7", std::time::Duration::ZERO).unwrap();
        assert!(numbers_at_once(&again) == (0..count).collect::<Vec<_>>(), "round {round}");
        assert_chain(&crashed.join(file));
    }
}

#[test]
fn a_small_database_survives_a_loss_of_power_that_takes_its_file() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = folder.path().join("test.fed");
    // A crash loses the name of the first database's file, too, whose first bytes were not written back yet.
    let crashed = folder.path().join("crashed.fed");
    let mut random = Random(31);
    copy(&path, &crashed);
    let file = crashed.join("databases/run7.root");
    fs::remove_file(&file).unwrap();
    let again = Federation::open(&crashed).unwrap();
    assert!(numbers_at_once(&again) == (0..10).collect::<Vec<_>>());
    let mut count = 10;
    (0..3).for_each(|_| work(&again, &mut count, &mut random));
    again.seal("run7", std::time::Duration::ZERO).unwrap();
    assert!(numbers_at_once(&again) == (0..count).collect::<Vec<_>>());
    assert_chain(&file);
}

fn check(crashed: &Path, committed: Csn, count: u64, round: u64) {
    let federation = Federation::open(crashed).unwrap();
    assert_eq!(federation.head().unwrap(), committed);
    assert!(numbers_at_once(&federation) == (0..count).collect::<Vec<_>>(), "round {round}");
    // The federation takes commits again; afterwards the catalogue is reset for the next round.
    let catalogue = crashed.join("catalogue.sqlite");
    let log = crashed.join("catalogue.sqlite-wal");
    let before = [&catalogue, &log].map(|path| fs::read(path).unwrap_or_default());
    let mut random = Random(round);
    let mut more = count;
    work(&federation, &mut more, &mut random);
    assert!(numbers_at_once(&federation) == (0..more).collect::<Vec<_>>(), "round {round}");
    if round.is_multiple_of(5) {
        federation.seal("run7", std::time::Duration::ZERO).unwrap();
        assert_chain(&crashed.join("databases/run7.root"));
        assert!(numbers_at_once(&federation) == (0..more).collect::<Vec<_>>(), "round {round}");
    }
    drop(federation);
    let _ = fs::remove_file(crashed.join("catalogue.sqlite-shm"));
    for (path, bytes) in [&catalogue, &log].into_iter().zip(before) {
        fs::write(path, bytes).unwrap();
    }
}

/// A key is written when its extent has been lengthened; after a loss of power the key may be there
/// and the length not. The next writer appends where the file ends, which is within the claim of
/// that key. Sealing once followed the claim to the middle of the next writer's committed pages,
/// took them for the remains of a killed writer, and cut them off.
#[test]
fn a_key_longer_than_its_extent_is_shortened() {
    for claim in [8, 1000, 50_000, 1 << 20] {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        drop(federation);
        let path = folder.path().join("test.fed/databases/run7.root");
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        let chain = KeyChain::new(&file, FIRST_KEY, size);
        let (position, key) = chain.map(Result::unwrap).last().unwrap();
        let payload = key.size - RBLOB_KEY_LENGTH as u64 + claim;
        let header = rblob_key_header(position, payload, key.written).unwrap();
        file.write_all_at(&header, position).unwrap();

        let federation = crate::support::reopened(&folder);
        let mut count = 10;
        let mut random = Random(claim);
        (0..3).for_each(|_| work(&federation, &mut count, &mut random));
        federation.seal("run7", std::time::Duration::ZERO).unwrap();
        assert!(numbers_at_once(&federation) == (0..count).collect::<Vec<_>>(), "{claim}");
        assert_chain(&path);
    }
}
