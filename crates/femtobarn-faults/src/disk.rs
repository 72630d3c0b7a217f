//! A disk in memory that knows what is durable and what would be lost with the power.
//!
//! The model, which is as harsh as POSIX allows:
//!
//! 1. Bytes, sizes, room that was made and holes of a file are durable after a sync of that file.
//!    Until then each of them may be durable or not, in any order; of a write any sectors.
//! 2. A name (created, linked, renamed, removed) is durable after a sync of its folder. Until then,
//!    a prefix of the changes of that folder may be: file systems with a journal keep their order.
//! 3. After a failed sync of a file, what was not durable may never become so, whatever later
//!    syncs say, although the program still reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::trace::Operation;

/// What a disk writes wholly or not at all.
pub const SECTOR: u64 = 512;
/// A file on the disk, whatever its names.
pub type FileNumber = usize;

/// The disk.
#[derive(Clone, Default)]
pub struct Disk {
    files: Vec<File>,
    /// The newest file that had an inode's number.
    inodes: BTreeMap<u64, FileNumber>,
    durable_names: Names,
    live_names: Names,
    pending_names: Vec<NameChange>,
    clock: u64,
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(FileNumber),
}

/// A change of the entries of one or two folders.
#[derive(Clone, Debug)]
struct NameChange {
    removed: Option<PathBuf>,
    added: Option<(PathBuf, Node)>,
}

#[derive(Clone, Default)]
struct File {
    durable: Arc<Vec<u8>>,
    pending: Vec<Pending>,
}

/// A change of a file that is not durable yet.
#[derive(Clone)]
pub struct Pending {
    /// The order of changes of all files.
    pub time: u64,
    change: Change,
    /// A sync has failed: it can be on the disk, but no sync can be trusted to bring it there.
    dropped: bool,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Arc<Vec<u8>> },
    Resize(u64),
    Allocate(u64),
    Punch { offset: u64, size: u64 },
}

/// What became of one pending change in a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is on the disk.
    Kept,
    /// It is not.
    Lost,
    /// Only bytes of the file before this offset are.
    CutAt(u64),
    /// Only some of its sectors are, chosen by this number.
    Sectors(u64),
    /// The size of the file is as if it were, but there is something else in its place.
    Garbage,
}

/// What became of everything that was not durable.
#[derive(Clone, Debug, Default)]
pub struct Crash {
    /// The fate of each pending change of the files, in the order of [`Disk::pending`].
    pub fates: Vec<Fate>,
    /// How many of the pending changes of names are durable, per folder.
    pub names: Option<u64>,
}

/// What is found after a crash: folders, and files with their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Folders.
    pub folders: BTreeSet<PathBuf>,
    /// Files and their bytes.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Disk {
    /// Carries an operation out.
    ///
    /// # Errors
    /// If it is about a file that never was, which the trace must not hold.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Create { file, path } => {
                self.files.push(File::default());
                let number = self.files.len() - 1;
                self.inodes.insert(*file, number);
                self.rename(None, Some((path.clone(), Node::File(number))));
            }
            Operation::MakeFolder { path } => {
                self.rename(None, Some((path.clone(), Node::Folder)));
            }
            Operation::Write { file, offset, bytes, .. } => {
                let change = Change::Write { offset: *offset, bytes: Arc::new(bytes.clone()) };
                self.change(*file, change)?;
            }
            Operation::Resize { file, size } => self.change(*file, Change::Resize(*size))?,
            Operation::Allocate { file, offset, size } => {
                self.change(*file, Change::Allocate(offset + size))?;
            }
            Operation::Punch { file, offset, size } => {
                self.change(*file, Change::Punch { offset: *offset, size: *size })?;
            }
            Operation::Sync { file } => self.file(*file)?.sync(),
            Operation::FailedSync { file } => {
                self.file(*file)?.pending.iter_mut().for_each(|pending| pending.dropped = true);
            }
            Operation::SyncFolder { path } => self.sync_folder(path),
            Operation::Link { from, to } => {
                let node = self.live(from)?;
                self.rename(None, Some((to.clone(), node)));
            }
            Operation::Rename { from, to } => {
                let node = self.live(from)?;
                self.rename(Some(from.clone()), Some((to.clone(), node)));
            }
            Operation::Remove { path } => {
                self.live(path)?;
                self.rename(Some(path.clone()), None);
            }
            Operation::Acknowledge { .. } => {}
        }
        Ok(())
    }

    fn live(&self, path: &Path) -> Result<Node, String> {
        let node = self.live_names.get(path).copied();
        node.ok_or_else(|| format!("the trace names {}, which is not there", path.display()))
    }

    fn file(&mut self, inode: u64) -> Result<&mut File, String> {
        let number = self.inodes.get(&inode);
        let number = number.ok_or_else(|| format!("inode {inode} was never created"))?;
        Ok(&mut self.files[*number])
    }

    fn change(&mut self, inode: u64, change: Change) -> Result<(), String> {
        self.clock += 1;
        let time = self.clock;
        self.file(inode)?.pending.push(Pending { time, change, dropped: false });
        Ok(())
    }

    fn rename(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, Node)>) {
        let change = NameChange { removed, added };
        change.apply(&mut self.live_names);
        self.pending_names.push(change);
    }

    fn sync_folder(&mut self, folder: &Path) {
        let pending = std::mem::take(&mut self.pending_names);
        for change in pending {
            match change.concerns(folder) {
                true => change.apply(&mut self.durable_names),
                false => self.pending_names.push(change),
            }
        }
    }

    /// The changes that are not durable, in the order in which they were made.
    pub fn pending(&self) -> Vec<(FileNumber, &Pending)> {
        let of_file = |(number, file): (FileNumber, &'_ File)| {
            let count = file.pending.len();
            (0..count).map(move |at| (number, at))
        };
        let mut all: Vec<(FileNumber, &Pending)> = (self.files.iter().enumerate())
            .flat_map(of_file)
            .map(|(number, at)| (number, &self.files[number].pending[at]))
            .collect();
        all.sort_by_key(|(_, pending)| pending.time);
        all
    }

    /// How many changes of names are not durable.
    pub fn pending_names(&self) -> u64 {
        self.pending_names.len() as u64
    }

    /// What is found when power comes back.
    pub fn after(&self, crash: &Crash) -> Found {
        let mut names = self.durable_names.clone();
        let kept = crash.names.unwrap_or(self.pending_names());
        let kept = &self.pending_names[..kept.min(self.pending_names()) as usize];
        kept.iter().for_each(|change| change.apply(&mut names));
        let mut fates: BTreeMap<FileNumber, Vec<(&Pending, &Fate)>> = BTreeMap::new();
        for ((number, pending), fate) in self.pending().into_iter().zip(&crash.fates) {
            fates.entry(number).or_default().push((pending, fate));
        }
        let mut found = Found::default();
        let is_there = |path: &Path| {
            let above = path.ancestors().skip(1).filter(|folder| *folder != Path::new(""));
            above.into_iter().all(|folder| names.get(folder) == Some(&Node::Folder))
        };
        for (path, node) in names.iter().filter(|(path, _)| is_there(path)) {
            match node {
                Node::Folder => drop(found.folders.insert(path.clone())),
                Node::File(number) => {
                    let mut bytes = (*self.files[*number].durable).clone();
                    for (pending, fate) in fates.get(number).into_iter().flatten() {
                        pending.change.apply(&mut bytes, fate);
                    }
                    found.files.insert(path.clone(), bytes);
                }
            }
        }
        found
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
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

impl File {
    fn sync(&mut self) {
        let mut bytes = (*self.durable).clone();
        let (dropped, synced): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.dropped);
        synced.iter().for_each(|pending| pending.change.apply(&mut bytes, &Fate::Kept));
        self.durable = Arc::new(bytes);
        self.pending = dropped;
    }
}

impl Pending {
    /// The range of the file that is written, if it is a write.
    pub fn written(&self) -> Option<std::ops::Range<u64>> {
        match &self.change {
            Change::Write { offset, bytes } => Some(*offset..*offset + bytes.len() as u64),
            _ => None,
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>, fate: &Fate) {
        if *fate == Fate::Lost {
            return;
        }
        match self {
            Change::Write { offset, bytes } => write(file, *offset, bytes, fate),
            Change::Resize(size) => file.resize(*size as usize, 0),
            Change::Allocate(end) => file.resize(file.len().max(*end as usize), 0),
            Change::Punch { offset, size } => {
                let end = ((offset + size) as usize).min(file.len());
                if let Some(range) = file.get_mut(*offset as usize..end) {
                    range.fill(0);
                }
            }
        }
    }
}

/// Writes those bytes that a crash has left.
fn write(file: &mut Vec<u8>, offset: u64, bytes: &[u8], fate: &Fate) {
    let end = offset + bytes.len() as u64;
    let old_end = file.len() as u64;
    let end_kept = if let Fate::CutAt(cut) = fate { (*cut).clamp(offset, end) } else { end };
    if file.len() < end_kept as usize {
        file.resize(end_kept as usize, 0);
    }
    let mut sector = offset;
    while sector < end_kept {
        let next = (sector / SECTOR * SECTOR + SECTOR).min(end_kept);
        let target = &mut file[sector as usize..next as usize];
        let source = &bytes[(sector - offset) as usize..(next - offset) as usize];
        match fate {
            Fate::Sectors(choice) if !is_chosen(*choice, sector / SECTOR) => {}
            Fate::Garbage if sector >= old_end => target.fill(0xA5),
            Fate::Garbage => {}
            _ => target.copy_from_slice(source),
        }
        sector = next;
    }
}

fn is_chosen(choice: u64, sector: u64) -> bool {
    crate::random::Random(choice ^ sector.wrapping_mul(0x2545_f491_4f6c_dd1d)).one_in(2)
}
