//! Files from open to close: open, close, sync, truncate, clone, checkpoints.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_open, kXR_close, kXR_sync, kXR_truncate,
//! kXR_chkpoint; the binary definitions of 5.2.0 for kXR_clone and templates.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use xrd::flags::{OpenOptions, OpenTemplateOptions};
use xrd::request::{CloneRanges, Close, FileRef, Open, Sync, Truncate};
use xrd::response::{CheckpointAnswer, FileCompression, OpenAnswer, Response};
use xrd::{ErrorCode, FileHandle, Location};

use super::failures::{failed, response_of};
use super::greeting::ok;
use super::handler::{RequestHandler, blocking, done, is_slashed, opaque};
use super::names::stat_line;
use crate::auth::Action;
use crate::logical::Logical;
use crate::logical::checkpoint::{CHECKPOINT_BYTES_MAX, Checkpoint};
use crate::logical::files::SharedFile;
use crate::logical::handles::OpenFile;
use crate::logical::latency::Kind;
use crate::logical::placement::Load;
use crate::logical::reopening::{self, Claim};
use crate::logical::sessions::Session;
use crate::physical::{
    Creation, Metadata, Opaque, OpenMode, Storage, StorageError, StoragePath, StorageResult,
    StoredFile,
};

/// Permission bits that new files always have: their writer may go on with them.
const FILE_MODE: u32 = 0o600;

/// Permission bits of new files where the client tells none.
const DEFAULT_FILE_MODE: u32 = 0o644;

/// What may pass from the time of a commit until others see it, and what clocks of servers may differ by.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1024 * 1024;

impl RequestHandler {
    pub(super) async fn open(&self, open: Open) -> Result<Response, Response> {
        let (path, how) = self.allowed_open(&open).await?;
        self.redirect(&path, opaque(&open.location))?;
        let claim = match names_snapshot(&open.location) {
            true => None,
            false => self.session.inheritance.claim(&path).map(Arc::new),
        };
        let opened = self.open_claimed(&open, path, how, claim.clone()).await;
        let comes_again = matches!(opened, Err(Response::Wait(_)));
        if let Some(claim) = claim.filter(|_| !comes_again) {
            claim.answered();
        }
        opened
    }

    async fn open_claimed(
        &self,
        open: &Open,
        path: StoragePath,
        how: OpenMode,
        claim: Option<Arc<Claim>>,
    ) -> Result<Response, Response> {
        let exports = &self.shared.logical.exports;
        let latencies = exports.latencies(&path);
        let _timed = latencies.timed(Kind::Open);
        // Making a file may wait for a disk.
        let is_quick = exports.is_quick(&path) && how.creation == Creation::Existing;
        let before = claim.as_ref().map(|claim| claim.snapshot()).transpose();
        let (name, mut known) = (path.clone(), opaque(&open.location).0.to_vec());
        if let Some(csn) = before.map_err(response_of)? {
            known.extend_from_slice(format!("&fb.csn={csn}").as_bytes());
        }
        let opened = self
            .call(is_quick, move |shared| shared.logical.files.open(&name, how, Opaque(&known)));
        let (file, mut metadata) = opened.await?;
        let unnamed_snapshot = file.snapshot().filter(|_| !names_snapshot(&open.location));
        if unnamed_snapshot.is_some() {
            self.check_unchanged(&path, &file).await?;
        }
        if open.template_options.contains(OpenTemplateOptions::DUPLICATE) {
            self.copy_template(open, &file).await?;
            metadata = self.shared_facts(&file).await?;
        }
        let handle = self.keep(OpenFile {
            file,
            unnamed_snapshot,
            claim,
            is_writable: how.write,
            is_quick: exports.is_quick(&path),
            latencies,
            path,
            persists_on_close: AtomicBool::new(
                how.write && open.options.contains(OpenOptions::PERSIST_ON_CLOSE),
            ),
            unsound_pages: Mutex::default(),
            checkpoint: Mutex::default(),
            since: SystemTime::now(),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        })?;
        Ok(ok(&open_answer(open, handle, &metadata)))
    }

    /// Refuses a file that changed after the begin of an inherited session that this server does not know.
    async fn check_unchanged(
        &self,
        path: &StoragePath,
        file: &Arc<SharedFile>,
    ) -> Result<(), Response> {
        let Some(since) = self.session.inheritance.unknown_since() else { return Ok(()) };
        let (file, since) = (Arc::clone(file), since - COMMIT_TIME_MAX);
        match self.call(false, move |_| file.interface()?.is_as_of(since)).await? {
            true => Ok(()),
            false => Err(response_of(reopening::changed_since_unknown(path))),
        }
    }

    /// The path and how it is to be opened, as far as the client's rights go.
    async fn allowed_open(&self, open: &Open) -> Result<(StoragePath, OpenMode), Response> {
        let mut how = how(open);
        if !how.write {
            return Ok((self.path(&open.location, Action::Read).await?, how));
        }
        let path = StoragePath::new(open.location.path()).map_err(response_of)?;
        if is_slashed(&open.location) {
            self.visible(&open.location).await?;
            return Err(response_of(StorageError::cannot("open", &path, Errno::EISDIR)));
        }
        if self.may(&open.location, &path, Action::Modify)? {
            return Ok((path, how));
        }
        // Who may only make files must not empty those that are there.
        if how.creation != Creation::Existing && self.may(&open.location, &path, Action::Create)? {
            how.creation = Creation::New;
            return Ok((path, how));
        }
        Err(self.forbidden(&path))
    }

    fn redirect(&self, path: &StoragePath, opaque: Opaque<'_>) -> Result<(), Response> {
        let logical = &self.shared.logical;
        let load = Load { sessions: logical.sessions.count() };
        match logical.placement.elsewhere(path, opaque, load) {
            None => Ok(()),
            Some(there) => Err(response_of(StorageError::Elsewhere {
                host: there.host,
                port: there.port,
                opaque: String::new(),
            })),
        }
    }

    fn keep(&self, file: OpenFile) -> Result<FileHandle, Response> {
        let limit = self.shared.logical.settings.files_per_session_max;
        match self.session.handles.insert(Arc::new(file), limit) {
            Some(number) => Ok(FileHandle(number.to_be_bytes())),
            None => Err(failed(
                ErrorCode::OVERLOADED,
                format!("a session may have {limit} files open; close some"),
            )),
        }
    }

    async fn copy_template(&self, open: &Open, file: &Arc<SharedFile>) -> Result<(), Response> {
        let (template, file) = (self.file(open.template)?, Arc::clone(file));
        self.call(false, move |_| {
            let size = template.file.metadata()?.size;
            let source = template.file.interface()?;
            copy(&*source, 0, size, &file, 0)
        })
        .await
    }

    async fn shared_facts(&self, file: &Arc<SharedFile>) -> Result<Metadata, Response> {
        let file = Arc::clone(file);
        self.call(false, move |_| file.metadata()).await
    }

    pub(super) async fn close(&self, close: Close) -> Result<Response, Response> {
        let number = u32::from_be_bytes(close.handle.0);
        let Some(file) = self.session.handles.remove(number) else {
            return Err(failed(ErrorCode::FILE_NOT_OPEN, "the handle names no open file"));
        };
        file.persists_on_close.store(false, Ordering::Release);
        if has_checkpoint(&file) {
            let file = Arc::clone(&file);
            blocking(move || undo(&file)).await.map_err(response_of)?;
        }
        match locked(&file.unsound_pages).len() {
            0 => done(),
            count => Err(failed(
                ErrorCode::CHECKSUM_ERROR,
                format!("{count} pages of {} came with wrong checksums", file.path),
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
                let file = self.writable(handle)?;
                blocking(move || file.file.truncate(size)).await.map_err(response_of)?;
            }
            FileRef::Location(location) => {
                let path = self.path(&location, Action::Modify).await?;
                let cut =
                    move |shared: &super::Shared| shared.logical.exports.truncate(&path, size);
                self.call(false, cut).await?;
            }
        }
        done()
    }

    pub(super) async fn clone_ranges(&self, clone: CloneRanges) -> Result<Response, Response> {
        let target = self.writable(clone.target)?;
        let sources = clone.ranges.iter().map(|range| self.file(range.source));
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

    /// The open file of a handle, if it may be written to.
    pub(super) fn writable(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Response> {
        let file = self.file(handle)?;
        match file.is_writable {
            true => Ok(file),
            false => Err(not_writable(&file)),
        }
    }

    pub(super) async fn begin_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.writable(handle)?;
        if has_checkpoint(&file) {
            let what = format!("{} has a checkpoint already", file.path);
            return Err(failed(ErrorCode::IN_PROGRESS, what));
        }
        let begun = blocking(move || {
            *locked(&file.checkpoint) = Some(Checkpoint::begin(&file.file)?);
            Ok(())
        });
        begun.await.map_err(response_of)?;
        done()
    }

    pub(super) async fn commit_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        let Some(checkpoint) = locked(&file.checkpoint).take() else {
            return Err(no_checkpoint(&file));
        };
        blocking(move || checkpoint.commit()).await.map_err(response_of)?;
        done()
    }

    pub(super) fn query_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        let used = locked(&file.checkpoint).as_ref().map_or(0, Checkpoint::used);
        Ok(ok(&CheckpointAnswer { most: CHECKPOINT_BYTES_MAX, used }))
    }

    pub(super) async fn roll_back(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        if !has_checkpoint(&file) {
            return Err(no_checkpoint(&file));
        }
        blocking(move || undo(&file)).await.map_err(response_of)?;
        done()
    }
}

fn names_snapshot(location: &Location) -> bool {
    ["fb.csn", "fb.tag"].iter().any(|key| location.value_of(key).is_some())
}

fn how(open: &Open) -> OpenMode {
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
        // Clients rely on it that servers take async with new or delete to mean it.
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

pub(super) fn not_writable(file: &OpenFile) -> Response {
    failed(ErrorCode::NOT_AUTHORIZED, format!("{} is not open for writing", file.path))
}

fn no_checkpoint(file: &OpenFile) -> Response {
    failed(ErrorCode::NOT_FOUND, format!("{} has no checkpoint", file.path))
}

fn has_checkpoint(file: &OpenFile) -> bool {
    locked(&file.checkpoint).is_some()
}

fn undo(file: &OpenFile) -> StorageResult<()> {
    let checkpoint = locked(&file.checkpoint).take();
    checkpoint.map_or(Ok(()), |checkpoint| checkpoint.undo(&file.file))
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
            let what = "a range to clone ends behind its file";
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        target.write_at(to, &buffer[..count])?;
        (from, to, left) = (from + count as u64, to + count as u64, left - count as u64);
    }
    Ok(())
}

/// Tidies up what a session leaves open: undoes checkpoints, removes files that were to persist only
/// if they were closed.
pub(super) async fn abandon(logical: Arc<Logical>, session: Arc<Session>) {
    let files = session.handles.close();
    let is_left = |file: &&Arc<OpenFile>| {
        has_checkpoint(file) || file.persists_on_close.load(Ordering::Acquire)
    };
    let left: Vec<_> = files.iter().filter(is_left).cloned().collect();
    if left.is_empty() {
        return;
    }
    let tidied = blocking(move || {
        for file in left {
            let undone = undo(&file);
            let removed = match file.persists_on_close.load(Ordering::Acquire) {
                true => logical.exports.remove_file(&file.path, Opaque::default()),
                false => Ok(()),
            };
            if let Err(trouble) = undone.and(removed) {
                tracing::warn!(path = %file.path, ?trouble, "cannot tidy up after a session");
            }
        }
        Ok(())
    });
    if let Err(trouble) = tidied.await {
        tracing::warn!(?trouble, "cannot tidy up after a session");
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
