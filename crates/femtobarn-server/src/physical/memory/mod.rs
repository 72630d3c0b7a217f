//! Files in memory, for tests and fuzzing (feature `testing`).
//!
//! 1. All names and bytes together stay within a given size; above it, writes fail with `ENOSPC`. Bytes are stored in
//!    chunks, so holes take no memory.
//! 2. A removed file exists, and counts, for as long as it is open.
//! 3. Lock order: the tree, then a file.
//!
//! `content` is the bytes of a file, `room` the memory that all files share.

mod content;
mod room;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::{Mutex, MutexGuard};

use super::{
    Creation, FileKind, FolderEntry, Metadata, Opaque, OpenMode, Space, Storage, StorageError,
    StoragePath, StorageResult, StoredFile,
};
use content::{MemoryFile, OpenMemoryFile};
use room::{Attributes, Room, attribute_bytes, new_metadata, path_bytes};

/// Limits in bytes of an attribute's name and of its value, as in file systems.
const ATTRIBUTE_NAME_MAX: usize = 250;
const ATTRIBUTE_VALUE_MAX: usize = 64 << 10;

/// A tree of files in memory; see the module's documentation.
pub struct MemoryStorage {
    /// All files and folders except the top, by path.
    tree: Mutex<BTreeMap<StoragePath, MemoryNode>>,
    room: Arc<Room>,
    created: SystemTime,
}

#[derive(Clone)]
enum MemoryNode {
    File(Arc<MemoryFile>),
    Folder { id: u64, mode: u32, changed: SystemTime, attributes: Attributes },
}

type NodeMap = BTreeMap<StoragePath, MemoryNode>;

impl MemoryStorage {
    /// An empty tree that takes at most `bytes` of memory.
    pub fn new(bytes: u64) -> Self {
        MemoryStorage { tree: Mutex::default(), room: Room::new(bytes), created: clock::utc() }
    }

    fn tree(&self) -> MutexGuard<'_, NodeMap> {
        self.tree.lock()
    }

    fn add(&self, tree: &mut NodeMap, path: &StoragePath, node: MemoryNode) -> Result<(), Errno> {
        self.room.take(path_bytes(path))?;
        tree.insert(path.clone(), node);
        Ok(())
    }

    fn add_folder(&self, tree: &mut NodeMap, path: &StoragePath, mode: u32) -> Result<(), Errno> {
        let (id, changed) = (self.room.next_id(), clock::utc());
        let attributes = Attributes::new();
        self.add(tree, path, MemoryNode::Folder { id, mode: mode & 0o777, changed, attributes })
    }

    fn remove(&self, tree: &mut NodeMap, path: &StoragePath) {
        if let Some(node) = tree.remove(path) {
            self.room.give_back(path_bytes(path));
            if let MemoryNode::Folder { attributes, .. } = node {
                attributes
                    .iter()
                    .for_each(|(name, value)| self.room.give_back(attribute_bytes(name, value)));
            }
        }
    }

    fn open_file(&self, path: &StoragePath, how: OpenMode) -> Result<Arc<MemoryFile>, Errno> {
        let mut tree = self.tree();
        let makes = how.creation != Creation::Existing;
        if makes && how.make_folders && find(&tree, path).is_err() {
            self.make_folders_above(&mut tree, path)?;
        }
        match find(&tree, path) {
            Ok(_) if how.creation == Creation::New => Err(Errno::EEXIST),
            Ok(Some(MemoryNode::File(file))) => {
                let file = Arc::clone(file);
                if how.creation == Creation::Empty {
                    file.truncate(0)?;
                }
                Ok(file)
            }
            Ok(_) => Err(Errno::EISDIR),
            Err(Errno::ENOENT) if makes => {
                check_folder(&tree, path)?;
                let file = Arc::new(MemoryFile::new(Arc::clone(&self.room), how.mode & 0o777));
                self.add(&mut tree, path, MemoryNode::File(Arc::clone(&file)))?;
                Ok(file)
            }
            Err(errno) => Err(errno),
        }
    }

    fn make_folders_above(&self, tree: &mut NodeMap, path: &StoragePath) -> Result<(), Errno> {
        for folder in path.folders_above() {
            match find(tree, &folder) {
                Ok(Some(MemoryNode::File(_))) => return Err(Errno::ENOTDIR),
                Ok(_) => {}
                Err(_) => self.add_folder(tree, &folder, 0o775)?,
            }
        }
        Ok(())
    }

    fn move_node(&self, from: &StoragePath, to: &StoragePath) -> Result<(), Errno> {
        let mut tree = self.tree();
        let (Some(_), Some(_)) = (from.parent(), to.parent()) else { return Err(Errno::EBUSY) };
        let node = find(&tree, from)?.cloned().ok_or(Errno::EBUSY)?;
        check_folder(&tree, to)?;
        if from == to {
            return Ok(());
        }
        if matches!(node, MemoryNode::Folder { .. }) && is_below(to, from) {
            return Err(Errno::EINVAL);
        }
        match (find(&tree, to), &node) {
            (Ok(Some(MemoryNode::File(_))), MemoryNode::Folder { .. }) => {
                return Err(Errno::ENOTDIR);
            }
            (Ok(Some(MemoryNode::Folder { .. })), MemoryNode::File(_)) => {
                return Err(Errno::EISDIR);
            }
            (Ok(_), _) if has_entries(&tree, to) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.remove(&mut tree, to);
        let moved: Vec<_> = within(&tree, from).map(|(path, _)| path.clone()).collect();
        for old in [from.clone()].into_iter().chain(moved) {
            let rest = &old.as_bytes()[from.as_bytes().len()..];
            let new = StoragePath::from_clean([to.as_bytes(), rest].concat());
            let Some(node) = tree.remove(&old) else { continue };
            // Even if the longer names exceed the limit: refusing here would leave the folder half moved.
            self.room.give_back(path_bytes(&old));
            self.room.take_above_limit(path_bytes(&new));
            tree.insert(new, node);
        }
        Ok(())
    }

    fn metadata_of(&self, node: Option<&MemoryNode>) -> Metadata {
        let (id, mode, changed) = match node {
            Some(MemoryNode::File(file)) => return file.metadata(),
            Some(MemoryNode::Folder { id, mode, changed, .. }) => (*id, *mode, *changed),
            None => (0, 0o755, self.created),
        };
        new_metadata(FileKind::Folder, id, mode, changed)
    }

    /// Calls `act` with the attributes of a file or folder.
    fn with_attributes<T>(
        &self,
        path: &StoragePath,
        what: &str,
        act: impl FnOnce(&mut Attributes) -> Result<T, Errno>,
    ) -> StorageResult<T> {
        let mut tree = self.tree();
        let done = match find(&tree, path) {
            Ok(Some(MemoryNode::File(file))) => act(&mut file.content().attributes),
            Ok(Some(MemoryNode::Folder { .. })) => match tree.get_mut(path) {
                Some(MemoryNode::Folder { attributes, .. }) => act(attributes),
                _ => Err(Errno::ENOENT),
            },
            Ok(None) => Err(Errno::EOPNOTSUPP),
            Err(errno) => Err(errno),
        };
        done.map_err(|errno| StorageError::cannot(what, path, errno))
    }
}

impl Storage for MemoryStorage {
    fn open(
        &self,
        path: &StoragePath,
        how: OpenMode,
        _opaque: Opaque<'_>,
    ) -> StorageResult<Arc<dyn StoredFile>> {
        let file = self.open_file(path, how);
        let file = file.map_err(|errno| StorageError::cannot("open", path, errno))?;
        let is_writable = how.write || how.creation != Creation::Existing;
        Ok(Arc::new(OpenMemoryFile { file, path: path.clone(), is_writable }))
    }

    fn metadata(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<Metadata> {
        let tree = self.tree();
        let node = find(&tree, path).map_err(|errno| StorageError::cannot("stat", path, errno))?;
        Ok(self.metadata_of(node))
    }

    fn list(
        &self,
        path: &StoragePath,
        with_metadata: bool,
        _opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let tree = self.tree();
        match find(&tree, path) {
            Ok(Some(MemoryNode::File(_))) => {
                return Err(StorageError::cannot("list", path, Errno::ENOTDIR));
            }
            Ok(_) => {}
            Err(errno) => return Err(StorageError::cannot("list", path, errno)),
        }
        let entry = |(below, node): (&StoragePath, &MemoryNode)| {
            let (folder, name) = below.parent()?;
            let metadata = with_metadata.then(|| self.metadata_of(Some(node)));
            (folder == *path).then(|| FolderEntry { name: name.to_vec(), metadata })
        };
        let mut entries: Vec<_> = within(&tree, path).filter_map(entry).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn make_folder(&self, path: &StoragePath, mode: u32, parents: bool) -> StorageResult<()> {
        let mut tree = self.tree();
        let mut make = || {
            if parents {
                self.make_folders_above(&mut tree, path)?;
            }
            match find(&tree, path) {
                Ok(None | Some(MemoryNode::Folder { .. })) if parents => Ok(()),
                Ok(_) => Err(Errno::EEXIST),
                Err(Errno::ENOENT) => {
                    check_folder(&tree, path)?;
                    self.add_folder(&mut tree, path, mode)
                }
                Err(errno) => Err(errno),
            }
        };
        make().map_err(|errno| StorageError::cannot("make the folder", path, errno))
    }

    fn remove_file(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<()> {
        let mut tree = self.tree();
        let errno = match find(&tree, path) {
            Ok(Some(MemoryNode::File(_))) => {
                self.remove(&mut tree, path);
                return Ok(());
            }
            Ok(Some(_)) => Errno::EISDIR,
            Ok(None) => Errno::EBUSY,
            Err(errno) => errno,
        };
        Err(StorageError::cannot("remove", path, errno))
    }

    fn remove_folder(&self, path: &StoragePath) -> StorageResult<()> {
        let mut tree = self.tree();
        let errno = match find(&tree, path) {
            Ok(Some(MemoryNode::File(_))) => Errno::ENOTDIR,
            Ok(None) => Errno::EBUSY,
            Ok(Some(_)) if has_entries(&tree, path) => Errno::ENOTEMPTY,
            Ok(Some(_)) => {
                self.remove(&mut tree, path);
                return Ok(());
            }
            Err(errno) => errno,
        };
        Err(StorageError::cannot("remove the folder", path, errno))
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
        let moved = self.move_node(from, to);
        moved.map_err(|errno| StorageError::cannot(&format!("rename {from} to"), to, errno))
    }

    fn set_mode(&self, path: &StoragePath, new: u32) -> StorageResult<()> {
        let mut tree = self.tree();
        let found = find(&tree, path).map(drop);
        found.map_err(|errno| StorageError::cannot("set the permissions of", path, errno))?;
        match tree.get_mut(path) {
            Some(MemoryNode::File(file)) => file.content().set_mode(new & 0o777),
            Some(MemoryNode::Folder { mode, .. }) => *mode = new & 0o777,
            None => return Err(StorageError::cannot("set the permissions of", path, Errno::EPERM)),
        }
        Ok(())
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        let truncated = match find(&self.tree(), path) {
            Ok(Some(MemoryNode::File(file))) => file.truncate(size),
            Ok(_) => Err(Errno::EISDIR),
            Err(errno) => Err(errno),
        };
        truncated.map_err(|errno| StorageError::cannot("truncate", path, errno))
    }

    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        find(&self.tree(), path)
            .map_err(|errno| StorageError::cannot("find the space at", path, errno))?;
        let (total, free) = (self.room.total(), self.room.free());
        // The address is unique among storages that exist.
        let file_system = Arc::as_ptr(&self.room).addr() as u64;
        Ok(Space { total, free, largest: free, file_system })
    }

    fn attributes(&self, path: &StoragePath) -> StorageResult<Vec<Vec<u8>>> {
        self.with_attributes(path, "list attributes of", |attributes| {
            Ok(attributes.keys().cloned().collect())
        })
    }

    fn attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<Vec<u8>> {
        self.with_attributes(path, "read an attribute of", |attributes| {
            attributes.get(name).cloned().ok_or(Errno::ENODATA)
        })
    }

    fn set_attribute(
        &self,
        path: &StoragePath,
        name: &[u8],
        value: &[u8],
        must_be_new: bool,
    ) -> StorageResult<()> {
        self.with_attributes(path, "set an attribute of", |attributes| {
            if name.is_empty() || name.contains(&0) {
                return Err(Errno::EINVAL);
            }
            if name.len() > ATTRIBUTE_NAME_MAX || value.len() > ATTRIBUTE_VALUE_MAX {
                return Err(Errno::ERANGE);
            }
            if must_be_new && attributes.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            self.room.take(attribute_bytes(name, value))?;
            if let Some(old) = attributes.insert(name.to_vec(), value.to_vec()) {
                self.room.give_back(attribute_bytes(name, &old));
            }
            Ok(())
        })
    }

    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        self.with_attributes(path, "remove an attribute of", |attributes| {
            let old = attributes.remove(name).ok_or(Errno::ENODATA)?;
            self.room.give_back(attribute_bytes(name, &old));
            Ok(())
        })
    }
}

/// The node at a path; `None` for the top.
fn find<'a>(tree: &'a NodeMap, path: &StoragePath) -> Result<Option<&'a MemoryNode>, Errno> {
    if path.parent().is_none() {
        return Ok(None);
    }
    check_folder(tree, path)?;
    tree.get(path).map(Some).ok_or(Errno::ENOENT)
}

/// Checks that all ancestors of a path are folders.
fn check_folder(tree: &NodeMap, path: &StoragePath) -> Result<(), Errno> {
    for folder in path.folders_above() {
        match tree.get(&folder) {
            Some(MemoryNode::Folder { .. }) => {}
            Some(MemoryNode::File(_)) => return Err(Errno::ENOTDIR),
            None => return Err(Errno::ENOENT),
        }
    }
    Ok(())
}

/// All nodes below a folder, at any depth.
fn within<'a>(
    tree: &'a NodeMap,
    folder: &StoragePath,
) -> impl Iterator<Item = (&'a StoragePath, &'a MemoryNode)> {
    let first = match folder.parent() {
        None => folder.clone(),
        Some(_) => StoragePath::from_clean([folder.as_bytes(), b"/"].concat()),
    };
    let prefix = first.clone();
    tree.range((Bound::Excluded(first), Bound::Unbounded))
        .take_while(move |(path, _)| path.as_bytes().starts_with(prefix.as_bytes()))
}

fn has_entries(tree: &NodeMap, folder: &StoragePath) -> bool {
    within(tree, folder).next().is_some()
}

fn is_below(path: &StoragePath, folder: &StoragePath) -> bool {
    path.folders_above().any(|above| above == *folder)
}
