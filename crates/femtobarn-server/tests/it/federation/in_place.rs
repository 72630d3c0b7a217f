//! Databases that are read in the stores that have them, without coming back to the disk.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use femtobarn_archive::{Archive, Recaller};
use femtobarn_catalog::{Csn, DatabaseId, LocalCatalogue, ResidenceState};
use femtobarn_server::physical::{
    FederationStorage, InPlaceCounts, Opaque, OpenMode, PosixStorage, Storage, StorageError,
    StorageResult, StoredFile,
};
use nix::errno::Errno;

use super::{Stage, all_of, at, errno_of};

const WAIT: Duration = Duration::from_secs(10);
/// Threads that read the same bytes.
const READERS: usize = 4;

/// A federation with a sealed database that is in two stores alone, the first named `one`.
struct Stored {
    stage: Stage,
    catalogue: Arc<LocalCatalogue>,
    archive: Arc<Archive>,
    shown: FederationStorage,
    database: DatabaseId,
    /// The database's file, as it was on the disk.
    bytes: Vec<u8>,
    /// The last snapshot before the database was sealed, and the file that it showed.
    before: (Csn, Vec<u8>),
}

impl Stored {
    fn new() -> Self {
        let stage = Stage::new().with_ten_events();
        stage.append(10..50_000);
        let before = stage.federation.head().unwrap();
        let before = (before, stage.bytes("/run7.root", &format!("fb.csn={before}")));
        stage.federation.seal("run7", WAIT).unwrap();
        let place = stage.folder.path().join("test.fed");
        let mut settings = String::new();
        for name in ["one", "two"] {
            let store = stage.folder.path().join(name);
            fs::create_dir(&store).unwrap();
            let path = store.display();
            settings += &format!(
                "[stores.{name}]\nkind = \"folder\"\npath = \"{path}\"\nin_place = true\n"
            );
        }
        fs::write(place.join("storage.toml"), settings).unwrap();
        let catalogue = Arc::new(LocalCatalogue::open(&place).unwrap());
        let archive = Arc::new(Archive::open(catalogue.clone()).unwrap());
        let database = catalogue.database("run7", Csn::MAX).unwrap().id;
        let bytes = fs::read(stage.file("run7.root")).unwrap();
        for name in ["one", "two"] {
            archive.migrate(database, name, &mut |_| true).unwrap();
        }
        archive.evict(database, &mut |_| true).unwrap();
        let recaller = Some(Arc::new(Recaller::new(archive.clone())));
        let files = Arc::new(PosixStorage::new(&place).unwrap());
        let shown = FederationStorage::new(catalogue.clone(), files).recalling(recaller);
        Stored { stage, catalogue, archive, shown, database, bytes, before }
    }

    fn open(&self, path: &str, opaque: &str) -> StorageResult<Arc<dyn StoredFile>> {
        self.shown.open(&at(path), OpenMode::default(), Opaque(opaque.as_bytes()))
    }

    fn state(&self) -> ResidenceState {
        self.catalogue.residence(self.database).unwrap().state()
    }

    fn counts(&self) -> Arc<InPlaceCounts> {
        self.shown.in_place_counts().unwrap()
    }

    /// The copy in a store.
    fn object(&self, store: &str) -> PathBuf {
        let replicas = self.catalogue.residence(self.database).unwrap().replicas;
        let key = replicas.into_iter().find(|replica| replica.store == store).unwrap().key;
        self.stage.folder.path().join(store).join(key)
    }

    /// Reads the first bytes until the client is not asked to retry any more.
    fn read_at_last(&self, file: &dyn StoredFile) -> StorageResult<usize> {
        loop {
            match file.read_at(0, &mut [0; 100]) {
                Err(StorageError::NotBefore(..)) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                read => return read,
            }
        }
    }
}

#[test]
fn a_database_that_a_store_has_is_opened_at_once_and_read_there() {
    let of = Stored::new();
    for (path, opaque) in
        [("/run7.root", ""), ("/run7.root", "fb.raw=1"), ("/databases/run7.root", "fb.raw=1")]
    {
        let file = of.open(path, opaque).unwrap();
        assert!(all_of(&*file) == of.bytes, "{path}?{opaque}");
        let metadata = of.shown.metadata(&at(path), Opaque(opaque.as_bytes())).unwrap();
        assert_eq!(file.metadata().unwrap(), metadata);
        assert_eq!((metadata.size, metadata.is_online), (of.bytes.len() as u64, false));
        assert_eq!((metadata.is_backed_up, metadata.is_writable), (true, false));
        assert_eq!(file.read_at(metadata.size, &mut [0; 9]).unwrap(), 0);
        assert_eq!(file.read_at(u64::MAX, &mut [0; 9]).unwrap(), 0);
    }
    assert_eq!(of.state(), ResidenceState::Nearline);
    assert!(!of.stage.file("run7.root").exists());
}

#[test]
fn only_requested_and_announced_ranges_are_fetched() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    let size = of.bytes.len() as u64;
    let ranges: Vec<u64> = (0..size - 100).step_by(5000).collect();
    ranges.iter().for_each(|first| file.will_need(*first, 100));
    for first in &ranges {
        let mut buffer = [0; 100];
        assert_eq!(file.read_at(*first, &mut buffer).unwrap(), 100);
        assert_eq!(buffer, of.bytes[*first as usize..][..100]);
    }
    let counts = of.counts();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let wanted = ranges.len() as u64 * 100;
    assert_eq!((count(&counts.read), count(&counts.fetched)), (wanted, wanted));
    // Announced bytes are in memory a moment later, without a wait for them.
    file.will_need(0, 1000);
    file.read_at(1000, &mut [0; 1]).unwrap();
    while file.try_read_at(0, &mut [0; 1000]).unwrap().is_none() {}
    assert_eq!(file.try_read_at(0, &mut [0; 1000]).unwrap(), None, "it was read, and given up");
}

#[test]
fn readers_of_the_same_bytes_at_once_all_get_them() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    let size = of.bytes.len() as u64;
    let (turns, wrong) = (Barrier::new(READERS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for number in 0..500 {
                    let first = number * 7919 % (size - 100);
                    turns.wait();
                    let mut buffer = [0; 100];
                    let is_read = file.read_at(first, &mut buffer).is_ok_and(|read| read == 100);
                    if !is_read || buffer != of.bytes[first as usize..][..100] {
                        // No thread stays behind at the barrier.
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn the_checksum_comes_from_the_catalogue() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    let copies = of.catalogue.residence(of.database).unwrap().replicas;
    let digest = file.checksum("adler32").unwrap();
    assert_eq!(copies[0].checksum, format!("adler32:{digest}"));
    assert_eq!(file.checksum("md5"), None);
    assert_eq!(of.counts().fetched.load(Ordering::Relaxed), 0);
}

#[test]
fn a_snapshot_from_before_the_seal_is_read_in_place_too() {
    let of = Stored::new();
    let (csn, before) = &of.before;
    let opaque = format!("fb.csn={csn}");
    let file = of.open("/run7.root", &opaque).unwrap();
    assert!(all_of(&*file) == *before);
    assert_eq!(file.checksum("adler32"), None, "that is the sealed file's");
    let metadata = of.shown.metadata(&at("/run7.root"), Opaque(opaque.as_bytes())).unwrap();
    assert_eq!(metadata, file.metadata().unwrap());
    assert_eq!(of.state(), ResidenceState::Nearline);
}

#[test]
fn a_copy_that_is_lost_while_it_is_read_is_left_for_the_next_one() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    assert_eq!(file.read_at(0, &mut [0; 100]).unwrap(), 100);
    fs::remove_file(of.object("one")).unwrap();
    assert!(all_of(&*file) == of.bytes);
    assert_eq!(of.counts().left.load(Ordering::Relaxed), 1);
    let whole = of.object("two");
    fs::rename(&whole, whole.with_extension("away")).unwrap();
    // The file is to be brought back, and that fails, too: the client gets the reason.
    let read = of.read_at_last(&*file);
    assert_eq!(errno_of(read), Some(Errno::EIO));
    assert_eq!(of.state(), ResidenceState::Lost);
    fs::rename(whole.with_extension("away"), &whole).unwrap();
    of.archive.stage(of.database, WAIT, &mut |_| true).unwrap();
    assert!(all_of(&*file) == of.bytes, "an operator has brought it back");
}

#[test]
fn a_file_whose_stores_are_away_comes_back_for_its_readers() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    let [one, two] = ["one", "two"].map(|name| of.stage.folder.path().join(name));
    let hidden = [&one, &two].map(|store| store.with_extension("away"));
    fs::rename(&one, &hidden[0]).unwrap();
    fs::rename(&two, &hidden[1]).unwrap();
    let refused = file.read_at(0, &mut [0; 100]).unwrap_err();
    assert!(matches!(refused, StorageError::NotBefore(..)), "{refused:?}");
    let again = of.open("/run7.root", "").err().unwrap();
    assert!(matches!(again, StorageError::NotBefore(..) | StorageError::Refused(Errno::EIO, _)));
    fs::rename(&hidden[0], &one).unwrap();
    fs::rename(&hidden[1], &two).unwrap();
    of.archive.stage(of.database, WAIT, &mut |_| true).unwrap();
    assert!(all_of(&*file) == of.bytes);
}

#[test]
fn readers_in_place_continue_while_the_file_is_staged_and_its_copies_are_given_up() {
    let of = Stored::new();
    let file = of.open("/run7.root", "").unwrap();
    assert_eq!(file.read_at(0, &mut [0; 100]).unwrap(), 100);
    let shown = file.metadata().unwrap();
    of.archive.stage(of.database, WAIT, &mut |_| true).unwrap();
    let fetched = of.counts().fetched.load(Ordering::Relaxed);
    assert!(all_of(&*of.open("/run7.root", "").unwrap()) == of.bytes);
    assert_eq!(of.counts().fetched.load(Ordering::Relaxed), fetched, "new readers have the disk");
    for name in ["one", "two"] {
        of.archive.discard(of.database, name, &mut |_| true).unwrap();
    }
    assert!(all_of(&*file) == of.bytes);
    assert_eq!(file.metadata().unwrap(), shown);
}

#[test]
fn looking_at_a_database_whose_stores_are_unreachable_does_not_recall_it() {
    let of = Stored::new();
    for name in ["one", "two"] {
        let store = of.stage.folder.path().join(name);
        fs::rename(&store, store.with_extension("away")).unwrap();
    }
    let (csn, _) = of.before;
    let csn = format!("fb.csn={csn}");
    for (path, opaque) in
        [("/run7.root", ""), ("/run7.root", &csn), ("/databases/run7.root", "fb.raw=1")]
    {
        let metadata = of.shown.metadata(&at(path), Opaque(opaque.as_bytes())).unwrap();
        assert_eq!((metadata.is_online, metadata.is_backed_up), (false, true));
    }
    assert_eq!(of.state(), ResidenceState::Nearline);
}
