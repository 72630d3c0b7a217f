//! Making the catalogue again from the database files alone.
//!
//! | module | noun |
//! |---|---|
//! | `history` | which transactions happened, and which commits they were |
//! | `assembly` | the rows that they made |
//! | `intact` | whether all bytes of a version are there |
//!
//! Invariants:
//! 1. What was acknowledged is found again, with its numbers: OIDs and, but for the newest version of
//!    each container, CSNs are as they were. Of those the order is right.
//! 2. A transaction that was prepared and not acknowledged may come to life, as a whole.
//! 3. The old catalogue is moved away, never deleted, and only when the new one is complete.
//!
//! What is in no file is lost: tags, retention, users and hosts of commits, files that were attached
//! elsewhere, and classes that no container has.

mod assembly;
mod history;
mod intact;
mod scanned_file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use femtobarn_catalog::{CATALOGUE_FILE, Contents, Csn, DATABASES_FOLDER, LocalCatalogue, clock};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::progress::{Progress, Watch};
use crate::storage::file;
use crate::storage::places;
use history::History;
use scanned_file::ScannedFile;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Databases, with dropped ones.
    pub databases: u64,
    /// Containers, with dropped ones.
    pub containers: u64,
    /// Versions of containers.
    pub versions: u64,
    /// Commits.
    pub commits: u64,
    /// The newest of them.
    pub head: Csn,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// Where the old catalogue is now, if there was one.
    pub old_catalogue: Option<PathBuf>,
}

/// Makes the catalogue of the federation in `folder` again, from the files of its databases; nobody
/// else may have the federation open. Without a name it is named as the folder.
///
/// # Errors
/// `NotFound` if there are no databases with commits; `Closed` if `progress` answers no; as the disk.
/// Then the old catalogue is where it was.
pub fn rebuild_catalogue(
    folder: &Path,
    name: Option<&str>,
    progress: &mut Watch<'_>,
) -> Result<RebuildReport> {
    let folder = std::path::absolute(folder).map_err(|error| Error::io("find", folder, error))?;
    let mut report = RebuildReport::default();
    let files = scan_all(&folder, &mut report, progress)?;
    let federation = federation_of(&files).ok_or_else(|| Error::NotFound {
        what: format!("no file in {}/{DATABASES_FOLDER} has a commit in it", folder.display()),
    })?;
    let history = History::of(&files, federation);
    let mut contents = assembly::contents(&history, &files, &mut report);
    leave_out_vacuumed(&mut contents, &files);
    let stem = folder.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let draft = folder.join(format!("rebuild-{}", Uuid::new_v4()));
    let made = LocalCatalogue::create_with(&draft, name.unwrap_or(&stem), federation).and_then(
        |catalog| {
            catalog.restore(&contents)?;
            catalog.begin_new_epochs()?;
            catalog.disconnect();
            Ok(())
        },
    );
    let placed = made.map_err(Error::from).and_then(|()| replace(&folder, &draft));
    // The draft holds nothing but what has been moved, or is of no use.
    drop(std::fs::remove_dir_all(&draft));
    report.old_catalogue = placed?;
    report.databases = contents.databases.len() as u64;
    report.containers = contents.containers.len() as u64;
    report.versions = contents.versions.len() as u64;
    report.commits = contents.commits.len() as u64;
    report.head = contents.commits.last().map_or(Csn::ZERO, |commit| commit.csn);
    Ok(report)
}

/// Reads the commit records of all files.
fn scan_all(
    folder: &Path,
    report: &mut RebuildReport,
    progress: &mut Watch<'_>,
) -> Result<Vec<ScannedFile>> {
    let found = places::files(folder)?;
    let total = found.iter().map(|file| file.size).sum();
    let mut tell = Progress { doing: "searching", of: String::new(), done: 0, total };
    let mut files = vec![];
    for places::FileInPlace { relative, path, .. } in found {
        let name = relative.split_once('/').map_or(&*relative, |(_, name)| name).to_owned();
        tell.of.clone_from(&name);
        let mut goes_on = true;
        let mut searched = |bytes| {
            tell.done += bytes;
            goes_on = progress(&tell);
            goes_on
        };
        let scanned = ScannedFile::scan(path, relative, &mut searched);
        if !goes_on {
            return Err(Error::Closed { what: "the search was stopped; nothing changed".into() });
        }
        match scanned {
            Ok(file) if file.found.is_empty() => {
                report.left_out.push(format!("{name}: no commit is recorded in it; attach it"));
            }
            Ok(file) => files.push(file),
            Err(error) => report.left_out.push(format!("{name}: {error}")),
        }
    }
    Ok(files)
}

/// The federation that most files were committed to last.
fn federation_of(files: &[ScannedFile]) -> Option<Uuid> {
    let last = |file: &ScannedFile| {
        let newest = file.found.iter().max_by_key(|found| found.record.time_us)?;
        Some(newest.record.federation)
    };
    let federations: Vec<Uuid> = files.iter().filter_map(last).collect();
    federations
        .iter()
        .max_by_key(|one| federations.iter().filter(|other| other == one).count())
        .copied()
}

/// Versions whose bytes vacuum has given back are no versions any more; the snapshots that had them
/// are gone.
fn leave_out_vacuumed(contents: &mut Contents, files: &[ScannedFile]) {
    let mut newest = HashMap::new();
    for version in &contents.versions {
        newest.insert((version.database, version.container), version.csn);
    }
    let mut sources = HashMap::new();
    for record in &contents.databases {
        let file = files.iter().find(|file| file.path == record.row.path);
        sources.extend(file.map(|file| (record.row.id, intact::Intact::new(&file.source))));
    }
    let horizon = &mut contents.horizon;
    contents.versions.retain(|version| {
        let is_newest = newest.get(&(version.database, version.container)) == Some(&version.csn);
        let is_there =
            is_newest || sources.get_mut(&version.database).is_some_and(|found| found.has(version));
        if !is_there {
            *horizon = (*horizon).max(Csn(version.csn.0 + 1));
        }
        is_there
    });
}

/// Puts the new catalogue in the place of the old one, and returns where that is now.
fn replace(folder: &Path, draft: &Path) -> Result<Option<PathBuf>> {
    let path = folder.join(CATALOGUE_FILE);
    let old = folder.join(format!("{CATALOGUE_FILE}.damaged-{}", clock::utc_us()));
    let mut kept = None;
    for suffix in ["", "-wal", "-shm"] {
        let with_suffix = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let (from, to) = (with_suffix(&path), with_suffix(&old));
        match std::fs::rename(&from, &to) {
            Ok(()) => kept = Some(old.clone()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("move", &from, error)),
        }
    }
    let from = draft.join(CATALOGUE_FILE);
    std::fs::rename(&from, &path).map_err(|error| Error::io("move", &from, error))?;
    file::sync_folder(folder)?;
    Ok(kept)
}
