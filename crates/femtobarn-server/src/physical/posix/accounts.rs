//! The kernel's `stat` of a file as [`Metadata`], with the names of its owner and group, and the rights of this
//! process.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::libc;
use nix::sys::stat::FileStat;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgroups};
use parking_lot::Mutex;

use crate::physical::{FileKind, Metadata};

/// Names that are cached at most.
const NAMES_MAX: usize = 1024;

/// The user and groups of this process, and the names of all users and groups.
#[derive(Debug)]
pub(super) struct Accounts {
    user: Uid,
    groups: Vec<Gid>,
    users: NameCache<Uid>,
    group_names: NameCache<Gid>,
}

/// Names by number. Asking the operating system for one takes longer than the rest of a file's metadata.
#[derive(Debug)]
struct NameCache<N>(Mutex<HashMap<N, Arc<str>>>);

impl Default for Accounts {
    fn default() -> Self {
        let mut groups = getgroups().unwrap_or_default();
        groups.push(getegid());
        Accounts { user: geteuid(), groups, users: NameCache::new(), group_names: NameCache::new() }
    }
}

impl Accounts {
    pub(super) fn metadata(&self, found: &FileStat) -> Metadata {
        let (user, group) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        let may = self.permissions(found, user, group);
        Metadata {
            kind: kind_of(found),
            // Inode numbers are unique in one file system only.
            id: found.st_ino ^ found.st_dev.rotate_left(40),
            size: u64::try_from(found.st_size).unwrap_or(0),
            modified: time(found.st_mtime, found.st_mtime_nsec),
            changed: time(found.st_ctime, found.st_ctime_nsec),
            accessed: time(found.st_atime, found.st_atime_nsec),
            mode: found.st_mode & 0o7777,
            owner: self.users.get(user, || Some(User::from_uid(user).ok()??.name)),
            group: self.group_names.get(group, || Some(Group::from_gid(group).ok()??.name)),
            is_readable: may & 0o4 != 0,
            is_writable: may & 0o2 != 0,
            is_online: true,
            is_backed_up: false,
        }
    }

    /// The permission bits that apply to this process, as the lowest three bits.
    fn permissions(&self, found: &FileStat, user: Uid, group: Gid) -> u32 {
        if self.user.is_root() {
            0o7
        } else if self.user == user {
            found.st_mode >> 6
        } else if self.groups.contains(&group) {
            found.st_mode >> 3
        } else {
            found.st_mode
        }
    }
}

impl<N: Copy + Eq + Hash + ToString> NameCache<N> {
    fn new() -> Self {
        NameCache(Mutex::new(HashMap::new()))
    }

    fn get(&self, number: N, look_up: impl FnOnce() -> Option<String>) -> Arc<str> {
        if let Some(name) = self.0.lock().get(&number) {
            return Arc::clone(name);
        }
        // Without the lock: the operating system may query a directory server.
        let name: Arc<str> = look_up().unwrap_or_else(|| number.to_string()).into();
        let mut names = self.0.lock();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(number, Arc::clone(&name));
        name
    }
}

pub(super) fn kind_of(found: &FileStat) -> FileKind {
    match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Folder,
        _ => FileKind::Other,
    }
}

/// A time of the kernel; times before 1970 become 1970.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let since = |seconds| Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0));
    let since = u64::try_from(seconds).map(since).unwrap_or_default();
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
