//! The files below one folder of a POSIX file system.
//!
//! 1. The kernel resolves every path beneath the folder, which is held open. Symbolic links work as long as they stay
//!    inside; absolute ones and those that lead out are refused with `EACCES`, even if the tree changes meanwhile.
//! 2. Only plain files are opened. Pipes and devices are listed, but cannot be read or written.
//! 3. The first sync of a new file makes its name durable as well.
//! 4. Large writes that fill whole windows bypass the page cache if the file system supports it. Readers see the
//!    written bytes in either case.
//! 5. After a failed sync the state on disk is unknown: the open file refuses further writes.
//! 6. If a client announces the size of a new file, space is reserved ahead of the writes; a file that does not fit is
//!    refused before it is made.
//!
//! `root_folder` resolves paths and `accounts` knows users and groups; `tree` holds both, for the storage and its open
//! files (`file`). `attributes` has extended attributes and permissions, `reserved_space` the space of new files.

mod accounts;
mod attributes;
mod file;
mod reserved_space;
mod root_folder;
mod tree;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, renameat2};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, ftruncate, unlinkat};

use super::{
    Creation, FileKind, FolderEntry, Hints, Metadata, Opaque, OpenMode, Space, Storage,
    StorageError, StoragePath, StorageResult, StoredFile,
};
use file::PosixFile;
use tree::PosixTree;

/// Entries of a folder that are listed at most.
const ENTRIES_MAX: usize = 1 << 20;
/// Permission bits of folders that are created above a new file.
const FOLDER_MODE: u32 = 0o775;

/// The files below a folder; see the module's documentation.
#[derive(Debug)]
pub struct PosixStorage {
    tree: Arc<PosixTree>,
}

impl PosixStorage {
    /// The files below a folder.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with `ENOTDIR` if it is not a folder, or with the error of opening it.
    pub fn new(folder: &Path) -> StorageResult<Self> {
        let tree = PosixTree::open(folder).map_err(|errno| {
            let what = format!("cannot open the folder {}: {}", folder.display(), errno.desc());
            StorageError::refused(errno, what)
        })?;
        Ok(PosixStorage { tree: Arc::new(tree) })
    }

    /// Opens any file of the machine for reading. The path must not come from a client. Errors name it as `shown`.
    pub(super) fn open_outside(
        file: &Path,
        shown: &StoragePath,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(StorageError::cannot("open", shown, Errno::EISDIR));
        };
        let folder = PosixStorage::new(folder);
        let name = StoragePath::top().join(name.as_encoded_bytes())?;
        match folder.and_then(|folder| folder.open(&name, OpenMode::default(), opaque)) {
            Err(StorageError::Refused(errno, _)) => Err(StorageError::cannot("open", shown, errno)),
            other => other,
        }
    }

    /// Refuses a file without space for the bytes that a client announces, as XRootD's clients do. This is only an
    /// early warning, so an unknown amount of space refuses nothing.
    fn check_space(&self, path: &StoragePath, announced: u64) -> StorageResult<()> {
        // An overwritten file frees its own space.
        let before = self.metadata(path, Opaque::default()).map_or(0, |found| found.size);
        // Missing folders will be made in the nearest existing one, whose disk counts.
        let mut above: Vec<_> = path.folders_above().collect();
        above.insert(0, StoragePath::top());
        let spaces = above.iter().rev().map(|folder| self.space(folder));
        let Some(space) = spaces.flatten().next() else { return Ok(()) };
        let free = space.free.saturating_add(before);
        if announced <= free {
            return Ok(());
        }
        let what =
            format!("cannot make {path}: it will have {announced} bytes, and {free} are free");
        Err(StorageError::refused(Errno::ENOSPC, what))
    }

    fn open_plain(&self, path: &StoragePath, how: OpenMode) -> StorageResult<OwnedFd> {
        let makes = how.creation != Creation::Existing;
        // Opening a pipe without a reader must not block.
        let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        flags |= if how.write || makes { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        flags |= match how.creation {
            Creation::Existing => OFlag::empty(),
            Creation::New => OFlag::O_CREAT | OFlag::O_EXCL,
            Creation::Empty => OFlag::O_CREAT | OFlag::O_TRUNC,
            Creation::IfAbsent => OFlag::O_CREAT,
        };
        let mode = if makes { mode_of(how.mode) } else { Mode::empty() };
        let mut opened = self.tree.root.open_below(path, flags, mode);
        if matches!(opened, Err(Errno::ENOENT)) && makes && how.make_folders {
            if let Some((folder, _)) = path.parent() {
                self.make_folder(&folder, FOLDER_MODE, true)?;
            }
            opened = self.tree.root.open_below(path, flags, mode);
        }
        opened.map_err(|errno| StorageError::cannot("open", path, errno))
    }

    /// A descriptor that names a path, for metadata and changes; its bytes cannot be read.
    fn locate(&self, path: &StoragePath, what: &str) -> StorageResult<OwnedFd> {
        let located = self.tree.root.open_below(path, OFlag::O_PATH, Mode::empty());
        located.map_err(|errno| StorageError::cannot(what, path, errno))
    }

    /// Calls `act` with the parent folder and the name in it. So a symbolic link at the end of the path is not
    /// followed.
    fn in_folder<'a>(
        &self,
        path: &'a StoragePath,
        what: &str,
        act: impl FnOnce(BorrowedFd<'_>, &'a [u8]) -> nix::Result<()>,
    ) -> StorageResult<()> {
        let (folder, name) = self.folder_of(path, what)?;
        act(folder.as_fd(), name).map_err(|errno| StorageError::cannot(what, path, errno))
    }

    fn renamed(
        &self,
        from: &StoragePath,
        to: &StoragePath,
        flags: RenameFlags,
    ) -> StorageResult<()> {
        let (folder, name) = self.folder_of(from, "rename")?;
        self.in_folder(to, &format!("rename {from} to"), |open, new| {
            renameat2(&folder, name, open, new, flags)
        })?;
        let mut synced = self.tree.sync_names(to);
        if from.parent().map(|(folder, _)| folder) != to.parent().map(|(folder, _)| folder) {
            synced = synced.and_then(|()| self.tree.sync_names(from));
        }
        synced.map_err(|errno| StorageError::cannot("make durable", to, errno))
    }

    fn folder_of<'a>(
        &self,
        path: &'a StoragePath,
        what: &str,
    ) -> StorageResult<(OwnedFd, &'a [u8])> {
        let Some((folder, name)) = path.parent() else {
            let what = format!("cannot {what} {path}: it is the storage's top");
            return Err(StorageError::refused(Errno::EBUSY, what));
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let folder = self.tree.root.open_below(&folder, flags, Mode::empty());
        Ok((folder.map_err(|errno| StorageError::cannot(what, path, errno))?, name))
    }

    /// The metadata of a name in a folder; `None` if it has vanished. A link without a target is listed as
    /// [`FileKind::Other`].
    fn metadata_in(
        &self,
        folder: &StoragePath,
        open: BorrowedFd<'_>,
        name: &[u8],
    ) -> StorageResult<Option<Metadata>> {
        let metadata = match fstatat(open, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(metadata) => self.tree.metadata(&metadata),
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(StorageError::cannot("stat", &folder.join(name)?, errno)),
        };
        if metadata.kind != FileKind::Other {
            return Ok(Some(metadata));
        }
        Ok(Some(self.metadata(&folder.join(name)?, Opaque(b"")).unwrap_or(metadata)))
    }
}

impl Storage for PosixStorage {
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let hints = Hints::of(opaque);
        let announced = hints.size.filter(|_| how.creation != Creation::Existing);
        if let Some(announced) = announced {
            self.check_space(path, announced)?;
        }
        let file = self.open_plain(path, how)?;
        let metadata = fstat(&file).map_err(|errno| StorageError::cannot("stat", path, errno))?;
        match accounts::kind_of(&metadata) {
            FileKind::File => {}
            FileKind::Folder => return Err(StorageError::cannot("open", path, Errno::EISDIR)),
            FileKind::Other => {
                let what = format!("cannot open {path}: neither a file nor a folder");
                return Err(StorageError::refused(Errno::EACCES, what));
            }
        }
        let is_new = how.creation != Creation::Existing;
        let file = PosixFile::new(file, path.clone(), Arc::clone(&self.tree), is_new);
        Ok(Arc::new(file.told(hints.order, announced)))
    }

    fn metadata(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<Metadata> {
        let metadata = fstat(self.locate(path, "stat")?);
        Ok(self
            .tree
            .metadata(&metadata.map_err(|errno| StorageError::cannot("stat", path, errno))?))
    }

    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        _opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let cannot = |errno| StorageError::cannot("list", path, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let folder = self.tree.root.open_below(path, flags, Mode::empty()).map_err(cannot)?;
        let mut folder = Dir::from_fd(folder).map_err(cannot)?;
        let mut entries = vec![];
        for entry in folder.iter() {
            let name = entry.map_err(cannot)?.file_name().to_bytes().to_vec();
            if !matches!(&name[..], b"." | b"..") {
                entries.push(FolderEntry { name, metadata: None });
            }
            if entries.len() > ENTRIES_MAX {
                let what = format!("cannot list {path}: more than {ENTRIES_MAX} entries");
                return Err(StorageError::refused(Errno::E2BIG, what));
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        if !with_metadata {
            return Ok(entries);
        }
        let mut known = Vec::with_capacity(entries.len());
        for FolderEntry { name, .. } in entries {
            if let Some(metadata) = self.metadata_in(path, folder.as_fd(), &name)? {
                known.push(FolderEntry { name, metadata: Some(metadata) });
            }
        }
        Ok(known)
    }

    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        let make = |path: &StoragePath, mode| {
            self.in_folder(path, "make the folder", |open, name| mkdirat(open, name, mode_of(mode)))
        };
        if !parents {
            return make(path, mode);
        }
        let above = path.folders_above().map(|folder| (folder, mode | FOLDER_MODE));
        for (folder, mode) in above.chain([(path.clone(), mode)]) {
            let is_folder = |metadata: StorageResult<Metadata>| {
                metadata.is_ok_and(|metadata| metadata.kind == FileKind::Folder)
            };
            match make(&folder, mode) {
                Err(_) if is_folder(self.metadata(&folder, Opaque(b""))) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn remove_file(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<()> {
        let remove =
            |open: BorrowedFd<'_>, name: &[u8]| unlinkat(open, name, UnlinkatFlags::NoRemoveDir);
        self.in_folder(path, "remove", remove)
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        let remove =
            |open: BorrowedFd<'_>, name: &[u8]| unlinkat(open, name, UnlinkatFlags::RemoveDir);
        self.in_folder(path, "remove the folder", remove)
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        self.renamed(from, to, RenameFlags::empty())
    }

    fn rename_new(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        self.renamed(from, to, RenameFlags::RENAME_NOREPLACE)
    }

    fn set_mode(&self, path: &StoragePath, mode: u32) -> StorageResult<()> {
        let file = self.locate(path, "set the permissions of")?;
        attributes::set_mode(file.as_fd(), mode_of(mode))
            .map_err(|errno| StorageError::cannot("set the permissions of", path, errno))
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        let cannot = |errno| StorageError::cannot("truncate", path, errno);
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = self.tree.root.open_below(path, flags, Mode::empty()).map_err(cannot)?;
        let size = i64::try_from(size).map_err(|_| cannot(Errno::EFBIG))?;
        ftruncate(file, size).map_err(cannot)
    }

    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        let cannot = |errno| StorageError::cannot("find the space at", path, errno);
        let located = self.locate(path, "find the space at")?;
        let found = fstatvfs(&located).map_err(cannot)?;
        // `fstatvfs` returns 0 for it on NFS and FUSE.
        let file_system = fstat(&located).map_err(cannot)?.st_dev;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        let free = bytes(found.blocks_available());
        let total = bytes(found.blocks());
        Ok(Space { total, free, largest: free, file_system })
    }

    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        let file = self.locate(path, "list attributes of")?;
        attributes::list(file.as_fd())
            .map_err(|errno| StorageError::cannot("list attributes of", path, errno))
    }

    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>> {
        let file = self.locate(path, "read an attribute of")?;
        attributes::get(file.as_fd(), name)
            .map_err(|errno| StorageError::cannot("read an attribute of", path, errno))
    }

    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StorageResult<()> {
        let file = self.locate(path, "set an attribute of")?;
        attributes::set(file.as_fd(), name, value, must_be_new)
            .map_err(|errno| StorageError::cannot("set an attribute of", path, errno))
    }

    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        let file = self.locate(path, "remove an attribute of")?;
        attributes::remove(file.as_fd(), name)
            .map_err(|errno| StorageError::cannot("remove an attribute of", path, errno))
    }
}

/// Permission bits, without set-user-id, set-group-id and sticky.
fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o777)
}
