//! A store that is a folder: another disk, or a file system that several machines mount.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{copy_file, or_remove, remove_if_there};
use super::store::{
    ByteWatch, LOST_AND_FOUND, MARK, ObjectRange, PART, Store, StoredState, check_key, no_object,
    not_mounted, too_short,
};
use crate::error::{Error, Result};

/// A hint for the error if the folder is no store.
const HINT: &str = "is its disk mounted?";

/// Objects as files below a folder.
#[derive(Debug)]
pub struct FolderStore {
    folder: PathBuf,
}

impl FolderStore {
    /// A store in a folder, which must exist: the folder of an unmounted disk must not count as an empty store.
    ///
    /// # Errors
    /// `Invalid` if the path is not absolute.
    pub fn new(folder: PathBuf) -> Result<Self> {
        if folder.is_absolute() {
            return Ok(FolderStore { folder });
        }
        Err(Error::Invalid {
            what: format!("the folder {} of a store is not absolute", folder.display()),
        })
    }

    fn path_of(&self, key: &str) -> Result<PathBuf> {
        check_key(key)?;
        Ok(self.folder.join(key))
    }

    /// Fails if the folder does not exist, or is not the store.
    fn check_mounted(&self) -> Result<()> {
        if self.folder.join(MARK).is_file() { Ok(()) } else { Err(not_mounted(self, HINT)) }
    }

    /// The folder of an object, which is created.
    fn folder_of(&self, path: &Path) -> Result<PathBuf> {
        self.check_mounted()?;
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
        Ok(folder.to_owned())
    }

    fn failed(&self, what: &str, key: &str, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => match self.check_mounted() {
                Ok(()) => no_object(self, key),
                Err(error) => error,
            },
            _ => Error::io(what, &self.folder.join(key), error),
        }
    }

    fn list_below(&self, folder: &Path, found: &mut Vec<(String, u64)>) -> Result<()> {
        let cannot = |error| Error::io("list", folder, error);
        for entry in fs::read_dir(folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            // A file may be removed meanwhile.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                self.list_below(&path, found)?;
                continue;
            }
            let below = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
            if let Some(key) = below.filter(|key| check_key(key).is_ok() && metadata.is_file()) {
                found.push((key.to_owned(), metadata.len()));
            }
        }
        Ok(())
    }
}

impl Store for FolderStore {
    fn place(&self) -> String {
        format!("folder {}", self.folder.display())
    }

    /// Makes an empty folder a store.
    fn begin(&self, _watch: &mut ByteWatch<'_>) -> Result<()> {
        if self.check_mounted().is_ok() {
            return Ok(());
        }
        let cannot = |error| Error::io("list", &self.folder, error);
        for entry in fs::read_dir(&self.folder).map_err(cannot)? {
            if entry.map_err(cannot)?.file_name() != LOST_AND_FOUND {
                return Err(not_mounted(self, HINT));
            }
        }
        let mark = self.folder.join(MARK);
        let made = File::create(&mark).and_then(|file| file.sync_all());
        made.map_err(|error| Error::io("create", &mark, error))?;
        sync_folder(&self.folder)
    }

    fn put(&self, key: &str, from: &Path, watch: &mut ByteWatch<'_>) -> Result<Option<String>> {
        let path = self.path_of(key)?;
        let folder = self.folder_of(&path)?;
        let part = part_of(&path);
        let mut write = || {
            remove_if_there(&part)?;
            let (file, sum) = copy_file(from, &part, watch)?;
            file.sync_all().map_err(|error| Error::io("sync", &part, error))?;
            fs::rename(&part, &path).map_err(|error| Error::io("rename", &part, error))?;
            // Folders above it may be new, too.
            let above = folder.ancestors().take_while(|above| above.starts_with(&self.folder));
            above.into_iter().try_for_each(sync_folder)?;
            Ok(Some(sum))
        };
        or_remove(&part, write())
    }

    fn get(&self, key: &str, to: &Path, watch: &mut ByteWatch<'_>) -> Result<()> {
        let path = self.path_of(key)?;
        fs::metadata(&path).map_err(|error| self.failed("read", key, error))?;
        or_remove(to, copy_file(&path, to, watch).map(drop))
    }

    fn read(&self, key: &str, ranges: &mut [ObjectRange<'_>]) -> Result<()> {
        let file = File::open(self.path_of(key)?);
        let file = file.map_err(|error| self.failed("open", key, error))?;
        for ObjectRange { offset, buffer } in ranges {
            file.read_exact_at(buffer, *offset).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => too_short(self, key, *offset + buffer.len() as u64),
                _ => self.failed("read", key, error),
            })?;
        }
        Ok(())
    }

    fn stat(&self, key: &str) -> Result<StoredState> {
        let metadata = fs::metadata(self.path_of(key)?);
        let metadata = metadata.map_err(|error| self.failed("look at", key, error))?;
        Ok(StoredState { size: metadata.len(), ..StoredState::default() })
    }

    fn remove(&self, key: &str, _watch: &mut ByteWatch<'_>) -> Result<()> {
        let path = self.path_of(key)?;
        // The remains of a killed writer.
        remove_if_there(&part_of(&path))?;
        match fs::remove_file(&path).map_err(|error| self.failed("remove", key, error)) {
            Err(Error::NoObject { .. }) => Ok(()),
            other => other,
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.check_mounted()?;
        let mut found = vec![];
        self.list_below(&self.folder, &mut found)?;
        found.retain(|(key, _)| key.starts_with(prefix));
        found.sort_unstable();
        Ok(found)
    }
}

/// The path where an object is written before it gets its name.
fn part_of(object: &Path) -> PathBuf {
    let name = object.file_name().unwrap_or_default();
    object.with_file_name([OsStr::new(PART), name].into_iter().collect::<OsString>())
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::io("sync", folder, error))
}
