//! Requests about open files: open, close, sync, truncate, clone.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_open, kXR_close, kXR_sync, kXR_truncate; the binary
//! definitions of 5.2.0 for kXR_clone and templates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use femtobarn_catalog::clock;
use nix::errno::Errno;
use parking_lot::Mutex;
use xrd::client::Url;
use xrd::flags::{OpenOptions, OpenTemplateOptions};
use xrd::request::{CloneRanges, Close, FileRef, Open, Sync, Truncate};
use xrd::response::{FileCompression, OpenAnswer, Response};
use xrd::{ErrorCode, FileHandle, Location};

use super::checkpoint::{has_checkpoint, undo_checkpoint};
use super::handler::{RequestHandler, blocking, is_slashed, opaque};
use super::responses::{done, failed, ok, response_of};
use super::service::RootService;
use super::stat_line::stat_line;
use super::third_party::cancel;
use crate::auth::Action;
use crate::client_shares::ClientShare;
use crate::logical::Logical;
use crate::logical::files::SharedFile;
use crate::logical::handles::OpenFile;
use crate::logical::latency::RequestKind;
use crate::logical::placement::Opening;
use crate::logical::session_recovery::{self, SnapshotClaim};
use crate::logical::sessions::ClientSession;
use crate::physical::{
    Creation, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile,
};

/// Permission bits that new files always get, so that their writer can open them again.
const FILE_MODE: u32 = 0o600;

/// Permission bits of new files if the client sends none.
const DEFAULT_FILE_MODE: u32 = 0o644;

/// An upper bound for the time from a commit's timestamp until the commit is visible, plus the difference between the
/// clocks of two servers.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of one copy.
const COPY_BYTES: u64 = 1024 * 1024;

impl RequestHandler {
    pub(super) async fn open(&self, open: Open) -> Result<Response, Response> {
        let (path, how) = self.allowed_open(&open).await?;
        let claim = if names_snapshot(&open.location) {
            None
        } else {
            self.session.inheritance.claim(&path).map(Arc::new)
        };
        // A client that continues after its connection was lost needs the snapshot that it has here.
        if claim.is_none() {
            self.redirect(&path, opaque(&open.location), how.write)?;
        }
        // The server with the file reads the source.
        let source = if how.write { self.copy_source(&open.location, &path)? } else { None };
        let opened = self.open_claimed(&open, (path, how), source, claim.clone()).await;
        let is_deferred = matches!(opened, Err(Response::Wait(_)));
        if let Some(claim) = claim.filter(|_| !is_deferred) {
            claim.mark_answered();
        }
        opened
    }

    async fn open_claimed(
        &self,
        open: &Open,
        (path, how): (StoragePath, OpenMode),
        source: Option<Url>,
        claim: Option<Arc<SnapshotClaim>>,
    ) -> Result<Response, Response> {
        let exports = &self.service.logical.exports;
        let latencies = exports.latencies(&path);
        let _timed = latencies.start_timer(RequestKind::Open);
        // Creating a file may wait for a disk.
        let is_quick = exports.is_quick(&path) && how.creation == Creation::Existing;
        let share = self.share()?;
        let before = claim.as_ref().map(|claim| claim.snapshot()).transpose();
        let (name, mut opaque_bytes) = (path.clone(), opaque(&open.location).0.to_vec());
        if let Some(csn) = before.map_err(response_of)? {
            opaque_bytes.extend_from_slice(format!("&fb.csn={csn}").as_bytes());
        }
        if open.options.contains(OpenOptions::SEQUENTIAL) {
            // The client's own value comes first, and takes precedence.
            opaque_bytes.extend_from_slice(b"&fb.access=sequential");
        }
        let (file, mut metadata, copy) = if let Some(source) = source {
            self.begin_copy(&open.location, (&path, how), source).await?
        } else {
            let client = self.session.host.ip();
            let opened = self.call(is_quick, move |service| {
                service.logical.files.open(&name, how, Opaque(&opaque_bytes), client)
            });
            let (file, metadata) = opened.await?;
            (file, metadata, None)
        };
        let is_writable = how.write && copy.is_none();
        let unnamed_snapshot = file.snapshot().filter(|_| !names_snapshot(&open.location));
        if unnamed_snapshot.is_some() {
            self.check_unchanged(&path, &file).await?;
        }
        if open.template_options.contains(OpenTemplateOptions::DUPLICATE) && copy.is_none() {
            self.copy_template(open, &file).await?;
            metadata = self.metadata_of(&file).await?;
        }
        let is_readable = self.may_read(open, &path, how).await?;
        let is_remote = file.ready().is_some_and(|interface| interface.is_remote());
        let handle = self.insert_handle(OpenFile {
            file,
            share,
            copy,
            unnamed_snapshot,
            claim,
            is_readable,
            is_writable,
            is_quick: exports.is_quick(&path),
            is_remote,
            latencies,
            path,
            persists_on_close: AtomicBool::new(persists_on_close(open, how) && is_writable),
            unsound_pages: Mutex::default(),
            checkpoint: Mutex::default(),
            since: clock::utc(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        })?;
        Ok(ok(&open_answer(open, handle, &metadata)))
    }

    /// Refuses a file that changed after the begin of an inherited session which this server does not know.
    async fn check_unchanged(
        &self,
        path: &StoragePath,
        file: &Arc<SharedFile>,
    ) -> Result<(), Response> {
        let Some(since) = self.session.inheritance.unknown_since() else { return Ok(()) };
        let (file, since) = (Arc::clone(file), since - COMMIT_TIME_MAX);
        if self.call(false, move |_| file.interface()?.is_as_of(since)).await? {
            Ok(())
        } else {
            Err(response_of(session_recovery::changed_since_unknown(path)))
        }
    }

    /// The path and the mode of an open, restricted to the client's rights.
    async fn allowed_open(&self, open: &Open) -> Result<(StoragePath, OpenMode), Response> {
        let mut how = open_mode(open);
        if !how.write {
            return Ok((self.path(&open.location, Action::Read).await?, how));
        }
        let path = StoragePath::new(open.location.path()).map_err(response_of)?;
        if is_slashed(&open.location) {
            self.visible(&open.location).await?;
            return Err(response_of(StorageError::cannot("open", &path, Errno::EISDIR)));
        }
        let may_create = how.creation != Creation::Existing
            && self.may(&open.location, &path, Action::Create).await?;
        if self.may(&open.location, &path, Action::Modify).await? {
            // The right to a folder does not allow a file in its place.
            if may_create || how.creation == Creation::Existing {
                return Ok((path, how));
            }
            return Err(self.forbidden(Action::Create, &path));
        }
        // A client that may only create files must not truncate existing ones.
        if may_create {
            how.creation = Creation::New;
            return Ok((path, how));
        }
        if how.creation == Creation::Existing
            && self.may(&open.location, &path, Action::Write).await?
        {
            return Ok((path, how));
        }
        Err(self.forbidden(Action::Modify, &path))
    }

    /// Whether the client may read a file that it has opened in this way: a file that it has made contains only its own
    /// bytes.
    async fn may_read(
        &self,
        open: &Open,
        path: &StoragePath,
        how: OpenMode,
    ) -> Result<bool, Response> {
        let is_allowed = !how.write || how.creation != Creation::Existing;
        Ok(is_allowed || self.may(&open.location, path, Action::Read).await?)
    }

    fn redirect(
        &self,
        path: &StoragePath,
        opaque: Opaque<'_>,
        is_writing: bool,
    ) -> Result<(), Response> {
        let logical = &self.service.logical;
        let opening = Opening { sessions: logical.sessions.count(), is_writing };
        match logical.placement.redirect_target(path, opaque, opening) {
            None => Ok(()),
            Some(there) => Err(response_of(StorageError::Elsewhere {
                host: there.host,
                port: there.port,
                opaque: there.opaque,
                is_encrypted: false,
            })),
        }
    }

    /// A place among the open files of all sessions.
    fn share(&self) -> Result<ClientShare, Response> {
        let share = self.service.logical.open_files.take(self.session.host.ip());
        share.ok_or_else(|| {
            let what =
                "the clients of this machine have the maximum number of open files; close some";
            failed(ErrorCode::OVERLOADED, what)
        })
    }

    fn insert_handle(&self, file: OpenFile) -> Result<FileHandle, Response> {
        let limit = self.service.logical.settings.files_per_session_max;
        match self.session.handles.insert(Arc::new(file), limit) {
            Some(number) => Ok(FileHandle(number.to_be_bytes())),
            None => Err(failed(
                ErrorCode::OVERLOADED,
                format!("the session has {limit} open files, the maximum; close some"),
            )),
        }
    }

    async fn copy_template(&self, open: &Open, file: &Arc<SharedFile>) -> Result<(), Response> {
        let (template, file) = (self.readable_file(open.template)?, Arc::clone(file));
        self.call(false, move |_| {
            let size = template.file.metadata()?.size;
            let source = template.file.interface()?;
            copy(&*source, 0, size, &file, 0)
        })
        .await
    }

    async fn metadata_of(&self, file: &Arc<SharedFile>) -> Result<Metadata, Response> {
        let file = Arc::clone(file);
        self.call(false, move |_| file.metadata()).await
    }

    pub(super) async fn close(&self, close: Close) -> Result<Response, Response> {
        let number = u32::from_be_bytes(close.handle.0);
        let Some(file) = self.session.handles.remove(number) else {
            return Err(failed(ErrorCode::FILE_NOT_OPEN, "unknown file handle"));
        };
        file.persists_on_close.store(false, Ordering::Release);
        if let Some(copy) = &file.copy {
            copy.cancel();
            copy.outcome().await.map_err(response_of)?;
        }
        if has_checkpoint(&file) {
            let file = Arc::clone(&file);
            blocking(move || undo_checkpoint(&file)).await.map_err(response_of)?;
        }
        match file.unsound_pages.lock().len() {
            0 => done(),
            count => Err(failed(
                ErrorCode::CHECKSUM_ERROR,
                format!("{count} pages of {} arrived with wrong checksums", file.path),
            )),
        }
    }

    pub(super) async fn sync(&self, sync: Sync) -> Result<Response, Response> {
        let file = self.file(sync.handle)?;
        blocking(move || file.file.sync()).await.map_err(response_of)?;
        done()
    }

    pub(super) async fn truncate(&self, truncate: Truncate) -> Result<Response, Response> {
        let size = truncate.size;
        match truncate.target {
            FileRef::Handle(handle) => {
                let file = self.writable_file(handle)?;
                blocking(move || file.file.truncate(size)).await.map_err(response_of)?;
            }
            FileRef::Location(location) => {
                let path = self.path(&location, Action::Modify).await?;
                let cut =
                    move |service: &RootService| service.logical.exports.truncate(&path, size);
                self.call(false, cut).await?;
            }
        }
        done()
    }

    pub(super) async fn clone_ranges(&self, clone: CloneRanges) -> Result<Response, Response> {
        let target = self.writable_file(clone.target)?;
        let sources = clone.ranges.iter().map(|range| self.readable_file(range.source));
        let sources: Vec<_> = sources.collect::<Result<_, _>>()?;
        let copied = blocking(move || {
            for (range, source) in clone.ranges.iter().zip(sources) {
                let interface = source.file.interface()?;
                let (from, to) = (range.source_offset, range.target_offset);
                copy(&*interface, from, range.length, &target.file, to)?;
            }
            Ok(())
        });
        copied.await.map_err(response_of)?;
        done()
    }
}

/// Whether a client names the snapshot that it opens.
fn names_snapshot(location: &Location) -> bool {
    ["fb.csn", "fb.tag"].iter().any(|key| location.value_of(key).is_some())
}

/// The storage's mode for an open.
pub(super) fn open_mode(open: &Open) -> OpenMode {
    let has = |option| open.options.intersects(option);
    let makes = has(OpenOptions::NEW | OpenOptions::DELETE);
    let changes = has(OpenOptions::UPDATE | OpenOptions::APPEND | OpenOptions::WRITE_ONLY);
    OpenMode {
        write: makes || changes,
        creation: match (has(OpenOptions::DELETE), has(OpenOptions::NEW)) {
            (true, _) => Creation::Empty,
            (false, true) => Creation::New,
            (false, false) => Creation::Existing,
        },
        // Clients rely on servers to create folders if async is given with new or delete.
        make_folders: has(OpenOptions::MAKE_PATH) || (makes && has(OpenOptions::ASYNC)),
        mode: match u32::from(open.mode.0) {
            0 => DEFAULT_FILE_MODE,
            mode => mode | FILE_MODE,
        },
    }
}

fn open_answer(open: &Open, handle: FileHandle, metadata: &Metadata) -> OpenAnswer {
    let wants_stat = open.options.contains(OpenOptions::RETURN_STAT)
        || open.template_options.contains(OpenTemplateOptions::RETURN_EXTENDED_STAT);
    let wants_compression = open.options.contains(OpenOptions::COMPRESS);
    OpenAnswer {
        handle,
        compression: (wants_compression || wants_stat).then(FileCompression::default),
        stat: wants_stat.then(|| stat_line(metadata)),
    }
}

/// Copies a range from one file to another.
fn copy(
    source: &dyn StoredFile,
    mut from: u64,
    length: u64,
    target: &SharedFile,
    mut to: u64,
) -> StorageResult<()> {
    let mut left = length;
    let mut buffer = vec![0; left.min(COPY_BYTES) as usize];
    while left > 0 {
        let count = left.min(COPY_BYTES) as usize;
        if source.read_at(from, &mut buffer[..count])? < count {
            let what = "a range to clone is past the end of its file";
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        target.write_at(to, &buffer[..count])?;
        (from, to, left) = (from + count as u64, to + count as u64, left - count as u64);
    }
    Ok(())
}

/// Whether a file that is opened in this way is removed unless the client closes it. An existing file is not removed,
/// since the right to write does not include that.
fn persists_on_close(open: &Open, how: OpenMode) -> bool {
    how.creation != Creation::Existing && open.options.contains(OpenOptions::PERSIST_ON_CLOSE)
}

fn must_be_removed(file: &OpenFile) -> bool {
    file.persists_on_close.load(Ordering::Acquire)
}

/// Cleans up the open files of an ended session: ends copies, undoes checkpoints, and removes files that persist only if
/// they are closed.
pub(super) async fn abandon(logical: Arc<Logical>, session: Arc<ClientSession>) {
    let files = session.handles.close();
    files.iter().for_each(|file| cancel(file));
    let is_left = |file: &&Arc<OpenFile>| has_checkpoint(file) || must_be_removed(file);
    let left: Vec<_> = files.iter().filter(is_left).cloned().collect();
    if left.is_empty() {
        return;
    }
    let tidied = blocking(move || {
        for file in left {
            let undone = undo_checkpoint(&file);
            let removed = if must_be_removed(&file) {
                logical.exports.remove_file(&file.path, Opaque::default())
            } else {
                Ok(())
            };
            if let Err(error) = undone.and(removed) {
                tracing::warn!(path = %file.path, ?error, "cannot clean up after a session");
            }
        }
        Ok(())
    });
    if let Err(error) = tidied.await {
        tracing::warn!(?error, "cannot clean up after a session");
    }
}
