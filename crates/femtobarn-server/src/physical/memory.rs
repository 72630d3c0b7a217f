//! Files in memory: for tests, and where nothing shall outlast the process.
//!
//! 1. All names and bytes together take no more memory than was said; then the disk is full. Bytes are
//!    kept in chunks, so holes take none.
//! 2. A file that was removed lives, and counts, for as long as it is open.
//! 3. Lock order: the tree, then a file.

mod content;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use nix::errno::Errno;

use super::{
    Creation, FileKind, FolderEntry, Metadata, Opaque, OpenMode, Space, Storage, StorageError,
    StoragePath, StorageResult, StoredFile,
};
use content::{MemoryFile, OpenFile};

/// Bytes that a name takes, beside its letters.
const NAME_BYTES: u64 = 256;
/// Bytes of an attribute's name and of its value, as file systems have them.
const ATTRIBUTE_NAME_MAX: usize = 250;
const ATTRIBUTE_VALUE_MAX: usize = 64 << 10;

/// A tree of files in memory: see the module.
pub struct MemoryStorage {
    /// Everything but the top, by path.
    tree: Mutex<BTreeMap<StoragePath, Node>>,
    room: Arc<Room>,
    made: SystemTime,
}

/// How much memory there is and how much of it is taken.
#[derive(Debug)]
struct Room {
    total: u64,
    used: AtomicU64,
    /// Numbers of files and folders given so far.
    ids: AtomicU64,
}

#[derive(Clone)]
enum Node {
    File(Arc<MemoryFile>),
    Folder { id: u64, mode: u32, changed: SystemTime, attributes: Attributes },
}

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;
type Tree = BTreeMap<StoragePath, Node>;

impl Room {
    /// Takes memory, if there is as much.
    fn take(&self, bytes: u64) -> Result<(), Errno> {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.total)
        });
        taken.map(drop).map_err(|_| Errno::ENOSPC)
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl MemoryStorage {
    /// An empty tree that takes `bytes` of memory at most.
    pub fn new(bytes: u64) -> Self {
        let (used, ids) = (AtomicU64::new(0), AtomicU64::new(0));
        let room = Arc::new(Room { total: bytes, used, ids });
        MemoryStorage { tree: Mutex::default(), room, made: SystemTime::now() }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, tree: &mut Tree, path: &StoragePath, node: Node) -> Result<(), Errno> {
        self.room.take(cost(path))?;
        tree.insert(path.clone(), node);
        Ok(())
    }

    fn add_folder(&self, tree: &mut Tree, path: &StoragePath, mode: u32) -> Result<(), Errno> {
        let (id, changed) = (self.room.next_id(), SystemTime::now());
        let attributes = Attributes::new();
        self.add(tree, path, Node::Folder { id, mode: mode & 0o777, changed, attributes })
    }

    fn remove(&self, tree: &mut Tree, path: &StoragePath) {
        if let Some(node) = tree.remove(path) {
            self.room.give_back(cost(path));
            if let Node::Folder { attributes, .. } = node {
                attributes.iter().for_each(|(name, value)| self.room.give_back(size(name, value)));
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
            Ok(Some(Node::File(file))) => {
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
                self.add(&mut tree, path, Node::File(Arc::clone(&file)))?;
                Ok(file)
            }
            Err(errno) => Err(errno),
        }
    }

    fn make_folders_above(&self, tree: &mut Tree, path: &StoragePath) -> Result<(), Errno> {
        for folder in path.folders_above() {
            match find(tree, &folder) {
                Ok(Some(Node::File(_))) => return Err(Errno::ENOTDIR),
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
        if matches!(node, Node::Folder { .. }) && is_below(to, from) {
            return Err(Errno::EINVAL);
        }
        match (find(&tree, to), &node) {
            (Ok(Some(Node::File(_))), Node::Folder { .. }) => return Err(Errno::ENOTDIR),
            (Ok(Some(Node::Folder { .. })), Node::File(_)) => return Err(Errno::EISDIR),
            (Ok(_), _) if has_entries(&tree, to) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.remove(&mut tree, to);
        let moved: Vec<_> = within(&tree, from).map(|(path, _)| path.clone()).collect();
        for old in [from.clone()].into_iter().chain(moved) {
            let rest = &old.as_bytes()[from.as_bytes().len()..];
            let new = StoragePath([to.as_bytes(), rest].concat());
            let Some(node) = tree.remove(&old) else { continue };
            // A longer name is not refused: half of a folder would have moved.
            self.room.give_back(cost(&old));
            self.room.used.fetch_add(cost(&new), Ordering::AcqRel);
            tree.insert(new, node);
        }
        Ok(())
    }

    fn facts_of(&self, node: Option<&Node>) -> Metadata {
        let (id, mode, changed) = match node {
            Some(Node::File(file)) => return file.metadata(),
            Some(Node::Folder { id, mode, changed, .. }) => (*id, *mode, *changed),
            None => (0, 0o755, self.made),
        };
        metadata(FileKind::Folder, id, mode, changed)
    }

    /// Does something to the attributes of what lies at a path.
    fn with_attributes<T>(
        &self,
        path: &StoragePath,
        what: &str,
        act: impl FnOnce(&mut Attributes) -> Result<T, Errno>,
    ) -> StorageResult<T> {
        let mut tree = self.tree();
        let done = match find(&tree, path) {
            Ok(Some(Node::File(file))) => act(&mut file.content().attributes),
            Ok(Some(Node::Folder { .. })) => match tree.get_mut(path) {
                Some(Node::Folder { attributes, .. }) => act(attributes),
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
        Ok(Arc::new(OpenFile { file, path: path.clone(), is_writable }))
    }

    fn metadata(&self, path: &StoragePath, _opaque: Opaque<'_>) -> StorageResult<Metadata> {
        let tree = self.tree();
        let node = find(&tree, path).map_err(|errno| StorageError::cannot("stat", path, errno))?;
        Ok(self.facts_of(node))
    }

    fn list(
        &self,
        path: &StoragePath,
        with_facts: bool,
        _opaque: Opaque<'_>,
    ) -> StorageResult<Vec<FolderEntry>> {
        let tree = self.tree();
        match find(&tree, path) {
            Ok(Some(Node::File(_))) => {
                return Err(StorageError::cannot("list", path, Errno::ENOTDIR));
            }
            Ok(_) => {}
            Err(errno) => return Err(StorageError::cannot("list", path, errno)),
        }
        let entry = |(below, node): (&StoragePath, &Node)| {
            let (folder, name) = below.parent()?;
            let metadata = with_facts.then(|| self.facts_of(Some(node)));
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
                Ok(None | Some(Node::Folder { .. })) if parents => Ok(()),
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
            Ok(Some(Node::File(_))) => {
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
            Ok(Some(Node::File(_))) => Errno::ENOTDIR,
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
            Some(Node::File(file)) => file.content().set_mode(new & 0o777),
            Some(Node::Folder { mode, .. }) => *mode = new & 0o777,
            None => return Err(StorageError::cannot("set the permissions of", path, Errno::EPERM)),
        }
        Ok(())
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> StorageResult<()> {
        let truncated = match find(&self.tree(), path) {
            Ok(Some(Node::File(file))) => file.truncate(size),
            Ok(_) => Err(Errno::EISDIR),
            Err(errno) => Err(errno),
        };
        truncated.map_err(|errno| StorageError::cannot("truncate", path, errno))
    }

    fn space(&self, path: &StoragePath) -> StorageResult<Space> {
        find(&self.tree(), path)
            .map_err(|errno| StorageError::cannot("find the space at", path, errno))?;
        let total = self.room.total;
        let free = total.saturating_sub(self.room.used.load(Ordering::Acquire));
        // No two that live have the same address.
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
            self.room.take(size(name, value))?;
            if let Some(old) = attributes.insert(name.to_vec(), value.to_vec()) {
                self.room.give_back(size(name, &old));
            }
            Ok(())
        })
    }

    fn remove_attribute(&self, path: &StoragePath, name: &[u8]) -> StorageResult<()> {
        self.with_attributes(path, "remove an attribute of", |attributes| {
            let old = attributes.remove(name).ok_or(Errno::ENODATA)?;
            self.room.give_back(size(name, &old));
            Ok(())
        })
    }
}

/// What lies at a path; nothing stands for the top.
fn find<'a>(tree: &'a Tree, path: &StoragePath) -> Result<Option<&'a Node>, Errno> {
    if path.parent().is_none() {
        return Ok(None);
    }
    check_folder(tree, path)?;
    tree.get(path).map(Some).ok_or(Errno::ENOENT)
}

/// Whether a path is one of something in a folder.
fn check_folder(tree: &Tree, path: &StoragePath) -> Result<(), Errno> {
    for folder in path.folders_above() {
        match tree.get(&folder) {
            Some(Node::Folder { .. }) => {}
            Some(Node::File(_)) => return Err(Errno::ENOTDIR),
            None => return Err(Errno::ENOENT),
        }
    }
    Ok(())
}

/// All that lies below a folder, however deep.
fn within<'a>(
    tree: &'a Tree,
    folder: &StoragePath,
) -> impl Iterator<Item = (&'a StoragePath, &'a Node)> {
    let first = match folder.parent() {
        None => folder.clone(),
        Some(_) => StoragePath([folder.as_bytes(), b"/"].concat()),
    };
    let prefix = first.clone();
    tree.range((Bound::Excluded(first), Bound::Unbounded))
        .take_while(move |(path, _)| path.as_bytes().starts_with(prefix.as_bytes()))
}

fn has_entries(tree: &Tree, folder: &StoragePath) -> bool {
    within(tree, folder).next().is_some()
}

fn is_below(path: &StoragePath, folder: &StoragePath) -> bool {
    path.folders_above().any(|above| above == *folder)
}

fn cost(path: &StoragePath) -> u64 {
    NAME_BYTES + path.as_bytes().len() as u64
}

/// Memory that an attribute takes.
fn size(name: &[u8], value: &[u8]) -> u64 {
    NAME_BYTES + (name.len() + value.len()) as u64
}

fn metadata(kind: FileKind, id: u64, mode: u32, changed: SystemTime) -> Metadata {
    Metadata {
        kind,
        id,
        size: 0,
        modified: changed,
        changed,
        accessed: changed,
        mode,
        owner: "memory".into(),
        group: "memory".into(),
        is_readable: true,
        is_writable: true,
        is_online: true,
    }
}
