//! Rebuilding the catalogue from the commit records in the database files.
//!
//! | module | contents |
//! |---|---|
//! | `scanned_file` | a file with its commit records |
//! | `history` | the transactions, and their commit numbers |
//! | `assembly` | the rows that they made |
//! | `tags` | the tags in the file beside the catalogue, and their commits |
//! | `intact` | whether all bytes of a version are intact |
//!
//! 1. Acknowledged commits are found with their numbers: OIDs are as before, and CSNs too, except those of
//!    each container's newest version that has no tag, whose order is right.
//! 2. A transaction that was prepared and not acknowledged may appear, as a whole.
//! 3. The old catalogue is moved away, never deleted, and only once the new one is complete.
//!
//! 4. A tag is restored if its snapshot is complete. It names the same commit as before.
//!
//! Information that no file holds is lost: files attached elsewhere, copies in stores, unused classes, and users and
//! hosts of commits of earlier releases.

mod assembly;
mod history;
mod intact;
mod scanned_file;
mod tags;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use femtobarn_catalog::{
    CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE, Contents, Csn, DATABASES_FOLDER, LocalCatalogue,
    RETAINED_FILE, Retained, VersionRow, clock,
};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::progress::{Progress, Watch};
use crate::storage::file;
use crate::storage::places;
use history::History;
use scanned_file::ScannedFile;

/// The result of a rebuild.
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
    /// The newest commit.
    pub head: Csn,
    /// Tags that were restored.
    pub tags: u64,
    /// Files and tags that were left out, with the reason.
    pub left_out: Vec<String>,
    /// Where the old catalogue was moved, if there was one.
    pub old_catalogue: Option<PathBuf>,
}

/// Rebuilds the catalogue of the federation in `folder` from its database files, and from the file beside the catalogue
/// that has its name, tags and retention. No other process may have the federation open. The federation gets the name
/// `name`; without it, the name in that file, or else that of the folder.
///
/// # Errors
/// `NotFound` if no file has a commit record; `Closed` if `progress` stops it; `Io` if a file cannot be read
/// or written. Then the old catalogue is in its place.
pub fn rebuild_catalogue(
    folder: &Path,
    name: Option<&str>,
    progress: &mut Watch<'_>,
) -> Result<RebuildReport> {
    let folder = std::path::absolute(folder).map_err(|error| Error::io("find", folder, error))?;
    if folder.join(CATALOGUE_ADDRESS_FILE).exists() {
        let what = format!(
            "a catalogue in PostgreSQL is restored there, from PostgreSQL's own backup; to rebuild it in the folder \
             from the files instead, first move {CATALOGUE_ADDRESS_FILE} out of the folder"
        );
        return Err(femtobarn_catalog::Error::Unsupported { what }.into());
    }
    let mut report = RebuildReport::default();
    let files = scan_all(&folder, &mut report, progress)?;
    let federation = federation_of(&files).ok_or_else(|| Error::NotFound {
        what: format!("no file in {}/{DATABASES_FOLDER} has a commit record", folder.display()),
    })?;
    let retained = retained(&folder, federation, &mut report);
    let tagged = retained.as_ref().map_or(&[][..], |retained| &retained.tags);
    let history = History::of(&files, federation, &tags::commits(tagged));
    let mut contents = assembly::contents(&history, &files, tagged, &mut report);
    let lost = leave_out_vacuumed(&mut contents, &files);
    tags::leave_out_incomplete(&mut contents, &lost, &mut report);
    contents.retention = retained.as_ref().map(|it| it.retention).unwrap_or_default();
    let stem = folder.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.unwrap_or(retained.as_ref().map_or(&stem, |retained| &retained.name));
    let draft = folder.join(format!("rebuild-{}", Uuid::new_v4()));
    let made = LocalCatalogue::create_with(&draft, name, federation).and_then(|catalog| {
        catalog.restore(&contents)?;
        catalog.begin_new_epochs()?;
        if retained.is_some() {
            catalog.write_retained()?;
        }
        catalog.disconnect();
        Ok(())
    });
    let placed = made.map_err(Error::from).and_then(|()| replace(&folder, &draft));
    // The catalogue was moved out of the draft, or is of no use.
    drop(std::fs::remove_dir_all(&draft));
    report.old_catalogue = placed?;
    report.databases = contents.databases.len() as u64;
    report.containers = contents.containers.len() as u64;
    report.versions = contents.versions.len() as u64;
    report.commits = contents.commits.len() as u64;
    report.tags = contents.tags.len() as u64;
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
    let mut state = Progress { doing: "searching", of: String::new(), done: 0, total };
    let mut files = vec![];
    for places::FileInPlace { relative, path, .. } in found {
        let name = relative.split_once('/').map_or(&*relative, |(_, name)| name).to_owned();
        state.of.clone_from(&name);
        let mut goes_on = true;
        let mut searched = |bytes| {
            state.done += bytes;
            goes_on = progress(&state);
            goes_on
        };
        let scanned = ScannedFile::scan(path, relative, &mut searched);
        if !goes_on {
            return Err(Error::Closed { what: "the search was stopped; nothing changed".into() });
        }
        match scanned {
            Ok(file) if file.found.is_empty() => {
                report.left_out.push(format!("{name}: no commit record; attach it"));
            }
            Ok(file) => files.push(file),
            Err(error) => report.left_out.push(format!("{name}: {error}")),
        }
    }
    Ok(files)
}

/// The federation that most files were last committed to.
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

/// The content of the file beside the catalogue. If it cannot be used, `None` and a line in the report.
fn retained(folder: &Path, federation: Uuid, report: &mut RebuildReport) -> Option<Retained> {
    let why = match Retained::read(folder) {
        Ok(retained) => match retained {
            Some(other) if other.federation != federation => "it is another federation's".into(),
            retained => return retained,
        },
        Err(error) => error.to_string(),
    };
    report.left_out.push(format!("{RETAINED_FILE}, with tags and retention: {why}"));
    None
}

/// Leaves out versions whose bytes vacuum has freed, and raises the horizon past their snapshots. Returns them.
fn leave_out_vacuumed(contents: &mut Contents, files: &[ScannedFile]) -> Vec<VersionRow> {
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
    let mut lost = vec![];
    contents.versions.retain(|version| {
        let is_newest = newest.get(&(version.database, version.container)) == Some(&version.csn);
        let is_there =
            is_newest || sources.get_mut(&version.database).is_some_and(|found| found.has(version));
        if !is_there {
            *horizon = (*horizon).max(Csn(version.csn.0 + 1));
            lost.push(*version);
        }
        is_there
    });
    lost
}

/// Replaces the catalogue, and returns where the old one is now.
fn replace(folder: &Path, draft: &Path) -> Result<Option<PathBuf>> {
    let path = folder.join(CATALOGUE_FILE);
    let now = clock::utc_us();
    let old = folder.join(format!("{CATALOGUE_FILE}.damaged-{now}"));
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
    // The new catalogue lacks tags that a file missing now may restore later.
    let retained = folder.join(RETAINED_FILE);
    if retained.exists() {
        let copy = folder.join(format!("{RETAINED_FILE}.damaged-{now}"));
        std::fs::copy(&retained, &copy).map_err(|error| Error::io("copy", &retained, error))?;
    }
    // A rebuild that is stopped between the two renames finds the same state again.
    for name in [RETAINED_FILE, CATALOGUE_FILE] {
        let from = draft.join(name);
        if name == CATALOGUE_FILE || from.exists() {
            let moved = std::fs::rename(&from, folder.join(name));
            moved.map_err(|error| Error::io("move", &from, error))?;
        }
    }
    file::sync_folder(folder)?;
    Ok(kept)
}
