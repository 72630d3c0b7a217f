//! A simulated disk that distinguishes durable changes from those that a loss of power may undo.
//!
//! The model is as harsh as POSIX allows:
//!
//! 1. Writes, sizes, allocated space and holes of a file are durable after a sync of that file. Until then each of
//!    them may survive or not, in any order; of a write, any sectors may survive.
//! 2. A name (created, linked, renamed, removed) is durable after a sync of its folder. Until then a prefix of
//!    that folder's changes may survive, since journaling file systems keep their order.
//! 3. After a failed sync of a file, its changes that were not durable may never become so, whatever later syncs
//!    return, although the program still reads them. If they are on the disk, they are below what later syncs made durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::trace::FileOperation;

/// The bytes that a disk writes atomically.
pub const SECTOR: u64 = 512;
/// The number of a file, which renames do not change.
pub type DiskFileNumber = usize;

/// A simulated disk.
#[derive(Clone, Default)]
pub struct CrashDisk {
    files: Vec<DiskFile>,
    /// The newest file with each inode number.
    inodes: BTreeMap<u64, DiskFileNumber>,
    durable_names: Namespace,
    live_names: Namespace,
    pending_names: Vec<NameChange>,
    clock: u64,
}

type Namespace = BTreeMap<PathBuf, NameTarget>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameTarget {
    Folder,
    File(DiskFileNumber),
}

/// A change of the entries of one or two folders.
#[derive(Clone, Debug)]
struct NameChange {
    removed: Option<PathBuf>,
    added: Option<(PathBuf, NameTarget)>,
}

#[derive(Clone, Default)]
struct DiskFile {
    durable: Vec<u8>,
    /// The changes since then, in their order. Those that are durable, too, follow one that may be lost.
    changes: Vec<PendingChange>,
}

/// A change of a file after the first one that is not durable.
#[derive(Clone)]
pub struct PendingChange {
    /// The order of changes of all files.
    pub time: u64,
    change: FileChange,
    state: ChangeState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeState {
    Pending,
    /// A sync of it failed: it may be on the disk, but no later sync makes it durable.
    Dropped,
    Durable,
}

#[derive(Clone)]
enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Resize(u64),
    Allocate(u64),
    Punch { offset: u64, size: u64 },
}

/// The effect of a crash on one pending change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change survives.
    Kept,
    /// The change is lost.
    Lost,
    /// Only the written bytes before this offset of the file survive.
    CutAt(u64),
    /// Only some sectors survive, chosen by this number.
    Sectors(u64),
    /// The file has the new size, but other bytes.
    Garbage,
}

/// The effect of a crash on all pending changes.
#[derive(Clone, Debug, Default)]
pub struct Crash {
    /// The outcome of each pending change of files, in the order of [`CrashDisk::pending`].
    pub outcomes: Vec<ChangeOutcome>,
    /// How many of the pending changes of names survive; all if none is given.
    pub names: Option<u64>,
}

/// The contents of a disk after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskImage {
    /// Folders.
    pub folders: BTreeSet<PathBuf>,
    /// Files and their bytes.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl CrashDisk {
    /// A disk on which all files of an image are durable. `inode` returns their inode numbers.
    ///
    /// # Errors
    /// The first of `inode`.
    pub fn of(image: &DiskImage, inode: impl Fn(&Path) -> io::Result<u64>) -> io::Result<Self> {
        let mut disk = CrashDisk::default();
        let folders = image.folders.iter().map(|path| (path.clone(), NameTarget::Folder));
        disk.durable_names.extend(folders);
        for (number, (path, bytes)) in image.files.iter().enumerate() {
            disk.files.push(DiskFile { durable: bytes.clone(), changes: vec![] });
            disk.inodes.insert(inode(path)?, number);
            disk.durable_names.insert(path.clone(), NameTarget::File(number));
        }
        disk.live_names = disk.durable_names.clone();
        Ok(disk)
    }

    /// Applies an operation of a trace.
    ///
    /// # Errors
    /// Names the file if it does not exist on this disk.
    pub fn apply(&mut self, operation: FileOperation) -> Result<(), String> {
        match operation {
            FileOperation::Create { file, path } => {
                self.files.push(DiskFile::default());
                let number = self.files.len() - 1;
                self.inodes.insert(file, number);
                self.rename(None, Some((path, NameTarget::File(number))));
            }
            FileOperation::MakeFolder { path } => {
                self.rename(None, Some((path, NameTarget::Folder)));
            }
            FileOperation::Write { file, offset, bytes, .. } => {
                self.change(file, FileChange::Write { offset, bytes })?;
            }
            FileOperation::Resize { file, size } => self.change(file, FileChange::Resize(size))?,
            FileOperation::Allocate { file, offset, size } => {
                self.change(file, FileChange::Allocate(offset + size))?;
            }
            FileOperation::Punch { file, offset, size } => {
                self.change(file, FileChange::Punch { offset, size })?;
            }
            FileOperation::Sync { file } => self.file(file)?.sync(),
            FileOperation::FailedSync { file } => {
                self.file(file)?.end_pending(ChangeState::Dropped);
            }
            FileOperation::SyncFolder { path } => self.sync_folder(&path),
            FileOperation::Link { from, to } => {
                let node = self.live(&from)?;
                self.rename(None, Some((to, node)));
            }
            FileOperation::Rename { from, to } => {
                let node = self.live(&from)?;
                self.rename(Some(from), Some((to, node)));
            }
            FileOperation::Remove { path } => {
                self.live(&path)?;
                self.rename(Some(path), None);
            }
            FileOperation::Acknowledge { .. } => {}
        }
        Ok(())
    }

    fn live(&self, path: &Path) -> Result<NameTarget, String> {
        let node = self.live_names.get(path).copied();
        node.ok_or_else(|| format!("the trace uses {}, which does not exist", path.display()))
    }

    fn file(&mut self, inode: u64) -> Result<&mut DiskFile, String> {
        let number = self.inodes.get(&inode);
        let number = number.ok_or_else(|| format!("inode {inode} was never created"))?;
        Ok(&mut self.files[*number])
    }

    fn change(&mut self, inode: u64, change: FileChange) -> Result<(), String> {
        self.clock += 1;
        let time = self.clock;
        let state = ChangeState::Pending;
        self.file(inode)?.changes.push(PendingChange { time, change, state });
        Ok(())
    }

    fn rename(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, NameTarget)>) {
        let change = NameChange { removed, added };
        change.apply(&mut self.live_names);
        self.pending_names.push(change);
    }

    fn sync_folder(&mut self, folder: &Path) {
        let pending = std::mem::take(&mut self.pending_names);
        for change in pending {
            if change.concerns(folder) {
                change.apply(&mut self.durable_names)
            } else {
                self.pending_names.push(change)
            }
        }
    }

    /// The pending changes of files, in the order in which they were made.
    pub fn pending(&self) -> Vec<(DiskFileNumber, &PendingChange)> {
        let mut all: Vec<(DiskFileNumber, &PendingChange)> = vec![];
        for (number, file) in self.files.iter().enumerate() {
            let uncertain = file.changes.iter().filter(|it| it.state != ChangeState::Durable);
            all.extend(uncertain.map(|change| (number, change)));
        }
        all.sort_by_key(|(_, pending)| pending.time);
        all
    }

    /// The number of pending changes of names.
    pub fn pending_names(&self) -> u64 {
        self.pending_names.len() as u64
    }

    /// The contents of the disk after a crash.
    pub fn after(&self, crash: &Crash) -> DiskImage {
        let mut names = self.durable_names.clone();
        let kept = crash.names.unwrap_or(self.pending_names());
        let kept = &self.pending_names[..kept.min(self.pending_names()) as usize];
        kept.iter().for_each(|change| change.apply(&mut names));
        let times = self.pending().into_iter().map(|(_, pending)| pending.time);
        let outcomes: BTreeMap<u64, &ChangeOutcome> = times.zip(&crash.outcomes).collect();
        let mut found = DiskImage::default();
        let is_there = |path: &Path| {
            let above = path.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
            above.into_iter().all(|folder| names.get(folder) == Some(&NameTarget::Folder))
        };
        for (path, node) in names.iter().filter(|(path, _)| is_there(path)) {
            match node {
                NameTarget::Folder => drop(found.folders.insert(path.clone())),
                NameTarget::File(number) => {
                    let mut bytes = self.files[*number].durable.clone();
                    for change in &self.files[*number].changes {
                        let outcome = match change.state {
                            ChangeState::Durable => &ChangeOutcome::Kept,
                            _ => {
                                outcomes.get(&change.time).copied().unwrap_or(&ChangeOutcome::Lost)
                            }
                        };
                        change.change.apply(&mut bytes, outcome);
                    }
                    found.files.insert(path.clone(), bytes);
                }
            }
        }
        found
    }
}

impl NameChange {
    fn apply(&self, names: &mut Namespace) {
        if let Some(path) = &self.removed {
            names.remove(path);
        }
        if let Some((path, node)) = &self.added {
            names.insert(path.clone(), *node);
        }
    }

    fn concerns(&self, folder: &Path) -> bool {
        let added = self.added.as_ref().map(|(path, _)| path);
        self.removed.iter().chain(added).any(|path| path.parent() == Some(folder))
    }
}

impl DiskFile {
    fn sync(&mut self) {
        self.end_pending(ChangeState::Durable);
        let is_durable = |it: &&PendingChange| it.state == ChangeState::Durable;
        let certain = self.changes.iter().take_while(is_durable).count();
        for change in self.changes.drain(..certain) {
            change.change.apply(&mut self.durable, &ChangeOutcome::Kept);
        }
    }

    fn end_pending(&mut self, state: ChangeState) {
        let pending = self.changes.iter_mut().filter(|it| it.state == ChangeState::Pending);
        pending.for_each(|change| change.state = state);
    }
}

impl PendingChange {
    /// The range of the file that a write covers; none for other changes.
    pub fn written(&self) -> Option<std::ops::Range<u64>> {
        match &self.change {
            FileChange::Write { offset, bytes } => Some(*offset..*offset + bytes.len() as u64),
            _ => None,
        }
    }
}

impl FileChange {
    fn apply(&self, file: &mut Vec<u8>, outcome: &ChangeOutcome) {
        if *outcome == ChangeOutcome::Lost {
            return;
        }
        match self {
            FileChange::Write { offset, bytes } => write(file, *offset, bytes, outcome),
            FileChange::Resize(size) => file.resize(*size as usize, 0),
            FileChange::Allocate(end) => file.resize(file.len().max(*end as usize), 0),
            FileChange::Punch { offset, size } => {
                let end = ((offset + size) as usize).min(file.len());
                if let Some(range) = file.get_mut(*offset as usize..end) {
                    range.fill(0);
                }
            }
        }
    }
}

/// Applies the part of a write that survives a crash.
fn write(file: &mut Vec<u8>, offset: u64, bytes: &[u8], outcome: &ChangeOutcome) {
    let end = offset + bytes.len() as u64;
    let old_end = file.len() as u64;
    let end_kept =
        if let ChangeOutcome::CutAt(cut) = outcome { (*cut).clamp(offset, end) } else { end };
    if file.len() < end_kept as usize {
        file.resize(end_kept as usize, 0);
    }
    if let ChangeOutcome::Kept | ChangeOutcome::CutAt(_) = outcome {
        let kept = (end_kept - offset) as usize;
        file[offset as usize..end_kept as usize].copy_from_slice(&bytes[..kept]);
        return;
    }
    let mut sector = offset;
    while sector < end_kept {
        let next = (sector / SECTOR * SECTOR + SECTOR).min(end_kept);
        let target = &mut file[sector as usize..next as usize];
        let source = &bytes[(sector - offset) as usize..(next - offset) as usize];
        match outcome {
            ChangeOutcome::Sectors(choice) if !is_chosen(*choice, sector / SECTOR) => {}
            ChangeOutcome::Garbage if sector >= old_end => target.fill(0xA5),
            ChangeOutcome::Garbage => {}
            _ => target.copy_from_slice(source),
        }
        sector = next;
    }
}

fn is_chosen(choice: u64, sector: u64) -> bool {
    crate::random::SplitMix(choice ^ sector.wrapping_mul(0x2545_f491_4f6c_dd1d)).one_in(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lost_by_a_failed_sync_lie_below_those_of_a_later_sync() {
        let mut disk = CrashDisk::default();
        let write = |offset, bytes: &[u8]| {
            let (path, bytes) = (PathBuf::from("file"), bytes.to_vec());
            FileOperation::Write { file: 1, path, offset, bytes }
        };
        let operations = [
            FileOperation::Create { file: 1, path: PathBuf::from("file") },
            FileOperation::SyncFolder { path: PathBuf::new() },
            write(0, b"oldold"),
            FileOperation::FailedSync { file: 1 },
            write(0, b"new"),
            FileOperation::Sync { file: 1 },
        ];
        let applied = operations.into_iter().try_for_each(|operation| disk.apply(operation));
        assert_eq!(applied, Ok(()));
        assert_eq!(disk.pending().len(), 1);
        let found = |outcome| {
            let image = disk.after(&Crash { outcomes: vec![outcome], names: None });
            image.files.get(Path::new("file")).cloned()
        };
        assert_eq!(found(ChangeOutcome::Kept).as_deref(), Some(&b"newold"[..]));
        assert_eq!(found(ChangeOutcome::Lost).as_deref(), Some(&b"new"[..]));
    }
}
