//! The folders of a cache, each on a disk of its own.
//!
//! 1. A file is kept in the folder in use that a hash of the folder's path and the file's name ranks first (rendezvous
//!    hashing). So when a folder is added, or given up, only the files that it gets, or had, move.
//! 2. A folder whose disk fails is given up until the server is restarted, and its files are fetched again into the
//!    other folders. The last folder is never given up: bytes that its disk does not keep are passed through.
//! 3. Each folder has a limit of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use md5::{Digest, Md5};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;

use super::room::{CacheCounts, CacheUse, LEAVING_MAX, LeavingFiles, Room, make_folder};

/// The folders of a cache; `F` is an open file.
#[derive(Debug)]
pub(super) struct Rooms<F> {
    /// The folders that could be opened.
    rooms: Vec<Arc<Room<F>>>,
    /// The other folders, and why they could not be opened.
    missing: Vec<(PathBuf, io::Error)>,
    /// Held while a folder is given up.
    giving_up: Mutex<()>,
    /// Set after the first warning that a folder in use refuses pages.
    warned: Once,
    pub counts: Arc<CacheCounts>,
}

/// A folder of a cache, which is on a disk of its own if there are several.
#[derive(Clone, Debug)]
pub struct CacheDisk {
    /// The path on the server.
    pub folder: PathBuf,
    /// The usage and the limit; both 0 if the folder is not used.
    pub usage: CacheUse,
    /// Why the folder is not used any more; `None` while it is used.
    pub failure: Option<String>,
}

impl<F> Rooms<F> {
    /// Opens folders, each with this limit in bytes, by default four fifths of its file system.
    ///
    /// # Errors
    /// If a folder cannot be used for another reason than its disk, or none can be used; with its path.
    pub(super) fn open<'a>(
        folders: impl IntoIterator<Item = &'a Path>,
        bytes_max: Option<u64>,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let counts = Arc::<CacheCounts>::default();
        let (mut rooms, mut missing) = (vec![], vec![]);
        for folder in folders {
            match open_room(folder, bytes_max, &counts) {
                Ok(room) => rooms.push(Arc::new(room)),
                Err(error) if is_of_disk(&error) => missing.push((folder.to_owned(), error)),
                Err(error) => return Err((folder.to_owned(), error)),
            }
        }
        if rooms.is_empty() {
            let none_given = || (PathBuf::new(), io::ErrorKind::InvalidInput.into());
            return Err(missing.pop().unwrap_or_else(none_given));
        }
        for (folder, error) in &missing {
            tracing::error!(folder = %folder.display(), %error, "a folder of the cache cannot be used");
        }
        Ok(Rooms { rooms, missing, giving_up: Mutex::default(), warned: Once::new(), counts })
    }

    /// The folders in use.
    pub(super) fn used(&self) -> impl Iterator<Item = &Arc<Room<F>>> {
        self.rooms.iter().filter(|room| room.failure().is_none())
    }

    /// The folder in which a file is kept.
    pub(super) fn of(&self, name: &[u8]) -> &Arc<Room<F>> {
        let rank = |room: &&Arc<Room<F>>| -> [u8; 16] {
            let folder = room.folder().as_os_str().as_encoded_bytes();
            Md5::new().chain_update(folder).chain_update(name).finalize().into()
        };
        self.used().max_by_key(rank).expect("the last folder is not given up")
    }

    /// Records a refusal of a disk, frees space if the disk is full, and gives its folder up if the disk fails. Returns
    /// whether the folder is not used any more.
    pub(super) fn note_failure(&self, room: &Room<F>, error: &io::Error) -> bool {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let is_full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let is_mended = is_full && room.shrink();
        if !is_mended && is_of_disk(error) && self.give_up(room, error) {
            return true;
        }
        self.warned.call_once(|| {
            tracing::warn!(%error, "the cache's disk refuses pages; readers get them from the origin");
        });
        false
    }

    /// Gives a folder up, unless it is the last one; returns whether it is given up.
    fn give_up(&self, room: &Room<F>, error: &io::Error) -> bool {
        let _turn = self.giving_up.lock();
        if room.failure().is_some() {
            return true;
        }
        if self.used().count() == 1 {
            return false;
        }
        let folder = room.folder().display();
        tracing::error!(%folder, %error, "a disk of the cache failed; its files are fetched into the other folders");
        room.give_up(error.to_string());
        true
    }

    /// The usage and the limit of all folders in use.
    pub(super) fn usage(&self) -> CacheUse {
        self.used().map(|room| room.usage()).fold(CacheUse::default(), |sum, it| CacheUse {
            used: sum.used + it.used,
            limit: sum.limit + it.limit,
        })
    }

    /// All folders: first those that could be opened, in their order.
    pub(super) fn disks(&self) -> Vec<CacheDisk> {
        let open = self.rooms.iter().map(|room| {
            let failure = room.failure().map(str::to_owned);
            let usage = if failure.is_none() { room.usage() } else { CacheUse::default() };
            CacheDisk { folder: room.folder().to_owned(), usage, failure }
        });
        let missing = self.missing.iter().map(|(folder, error)| CacheDisk {
            folder: folder.clone(),
            usage: CacheUse::default(),
            failure: Some(error.to_string()),
        });
        open.chain(missing).collect()
    }

    /// The next files to be evicted, of all folders. Within a folder they are evicted in this order.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub(super) fn leaving(&self) -> io::Result<LeavingFiles> {
        let mut all = LeavingFiles::default();
        for room in self.used() {
            let LeavingFiles { kept, first } = room.leaving()?;
            all.kept += kept;
            all.first.extend(first);
        }
        all.first.sort_by_key(|file| (file.is_open, file.used));
        all.first.truncate(LEAVING_MAX);
        Ok(all)
    }

    /// Removes the files that were unused for this time.
    pub(super) fn clear_idle(&self, idle: Duration) {
        self.used().for_each(|room| room.clear_idle(idle));
    }

    /// Removes the kept pages of a file, also from folders that had it before others were added or given up.
    pub(super) fn remove(&self, name: &[u8]) {
        self.used().for_each(|room| room.remove(&room.stem(name)));
    }
}

fn open_room<F>(
    folder: &Path,
    bytes_max: Option<u64>,
    counts: &Arc<CacheCounts>,
) -> io::Result<Room<F>> {
    make_folder(folder)?;
    let space = statvfs(folder)?;
    let four_fifths = space.blocks() * space.fragment_size() / 5 * 4;
    Room::open(folder, bytes_max.unwrap_or(four_fifths), Arc::clone(counts))
}

/// Whether an error means that a disk, or the path to it, fails, rather than that one file cannot be kept.
fn is_of_disk(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| {
        matches!(
            errno,
            Errno::EIO
                | Errno::EROFS
                | Errno::ENOSPC
                | Errno::EDQUOT
                | Errno::ENOENT
                | Errno::ENOTDIR
                | Errno::EACCES
                | Errno::EPERM
                | Errno::ENODEV
                | Errno::ENXIO
                | Errno::ESTALE
                | Errno::EUCLEAN
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn rooms(folders: &[PathBuf]) -> Rooms<()> {
        Rooms::open(folders.iter().map(PathBuf::as_path), Some(1 << 20)).unwrap()
    }

    fn names() -> impl Iterator<Item = String> {
        (0..1000).map(|number| format!("host:1094/store/run{number}.root"))
    }

    /// The folder of each file.
    fn places(rooms: &Rooms<()>) -> Vec<PathBuf> {
        names().map(|name| rooms.of(name.as_bytes()).folder().to_owned()).collect()
    }

    #[test]
    fn a_folder_that_is_given_up_moves_its_own_files_alone() {
        let top = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| top.path().join(name));
        let rooms = rooms(&folders);
        let before = places(&rooms);
        for folder in &folders {
            let count = before.iter().filter(|place| *place == folder).count();
            assert!((250..420).contains(&count), "{count} of 1000 in {}", folder.display());
        }
        assert!(rooms.note_failure(&rooms.rooms[1], &Errno::EIO.into()));
        let after = places(&rooms);
        for (old, new) in before.iter().zip(&after) {
            assert!(if *old == folders[1] { new != old } else { new == old });
        }
        let why: Vec<_> = rooms.disks().into_iter().map(|disk| disk.failure.is_some()).collect();
        assert_eq!(why, [false, true, false]);
        assert_eq!(rooms.usage().limit, 2 << 20);
    }

    #[test]
    fn the_last_folder_is_not_given_up_and_a_file_that_is_too_large_is_no_failure_of_its_disk() {
        let top = tempfile::tempdir().unwrap();
        let rooms = rooms(&["a", "b"].map(|name| top.path().join(name)));
        assert!(!rooms.note_failure(&rooms.rooms[0], &Errno::EFBIG.into()));
        assert!(rooms.note_failure(&rooms.rooms[0], &Errno::ENOSPC.into()), "nothing can leave");
        assert!(rooms.note_failure(&rooms.rooms[0], &Errno::EIO.into()), "it is still given up");
        assert!(!rooms.note_failure(&rooms.rooms[1], &Errno::EIO.into()));
        assert!(places(&rooms).iter().all(|place| place.ends_with("b")));
        assert_eq!(rooms.counts.failures.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_missing_and_one_that_is_used_is_an_error() {
        let top = tempfile::tempdir().unwrap();
        let [good, bad] = ["good", "bad"].map(|name| top.path().join(name));
        fs::write(&bad, "not a folder").unwrap();
        let below = bad.join("cache");
        let rooms = Rooms::<()>::open([&*good, &*below], None).unwrap();
        let disks = rooms.disks();
        assert_eq!(disks[1].folder, below);
        assert!(disks[0].failure.is_none() && disks[1].failure.is_some());
        assert!(Rooms::<()>::open([&*below], None).is_err(), "no folder is left");
        let (folder, _) =
            Rooms::<()>::open([&*top.path().join("other"), &*good], None).unwrap_err();
        assert_eq!(folder, good, "another server keeps files in it");
    }
}
