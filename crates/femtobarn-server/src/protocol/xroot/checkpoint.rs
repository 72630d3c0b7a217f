//! Requests about checkpoints: chkpoint.
//!
//! Changes within a checkpoint are writes; see `write`.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_chkpoint.

use xrd::request::Chkpoint;
use xrd::response::{CheckpointAnswer, Response};
use xrd::{ErrorCode, FileHandle};

use super::handler::{RequestHandler, blocking};
use super::responses::{done, failed, ok, response_of};
use crate::logical::checkpoint::{CHECKPOINT_BYTES_MAX, Checkpoint};
use crate::logical::handles::OpenFile;
use crate::physical::StorageResult;

impl RequestHandler {
    pub(super) async fn checkpoint(&self, checkpoint: Chkpoint) -> Result<Response, Response> {
        match checkpoint {
            Chkpoint::Begin(handle) => self.begin_checkpoint(handle).await,
            Chkpoint::Commit(handle) => self.commit_checkpoint(handle).await,
            Chkpoint::Query(handle) => self.query_checkpoint(handle),
            Chkpoint::Rollback(handle) => self.roll_back(handle).await,
            Chkpoint::Execute(_) => {
                Err(failed(ErrorCode::INVALID_REQUEST, "a change within a checkpoint needs data"))
            }
        }
    }

    async fn begin_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.writable_file(handle)?;
        if has_checkpoint(&file) {
            let what = format!("{} has a checkpoint already", file.path);
            return Err(failed(ErrorCode::IN_PROGRESS, what));
        }
        let begun = blocking(move || {
            *file.checkpoint.lock() = Some(Checkpoint::begin(&file.file)?);
            Ok(())
        });
        begun.await.map_err(response_of)?;
        done()
    }

    async fn commit_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        let Some(checkpoint) = file.checkpoint.lock().take() else {
            return Err(no_checkpoint(&file));
        };
        blocking(move || checkpoint.commit()).await.map_err(response_of)?;
        done()
    }

    fn query_checkpoint(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        let used = file.checkpoint.lock().as_ref().map_or(0, Checkpoint::used);
        Ok(ok(&CheckpointAnswer { most: CHECKPOINT_BYTES_MAX, used }))
    }

    async fn roll_back(&self, handle: FileHandle) -> Result<Response, Response> {
        let file = self.file(handle)?;
        if !has_checkpoint(&file) {
            return Err(no_checkpoint(&file));
        }
        blocking(move || undo_checkpoint(&file)).await.map_err(response_of)?;
        done()
    }
}

/// Whether a file has an open checkpoint.
pub(super) fn has_checkpoint(file: &OpenFile) -> bool {
    file.checkpoint.lock().is_some()
}

/// Undoes the file's checkpoint, if it has one. May block.
pub(super) fn undo_checkpoint(file: &OpenFile) -> StorageResult<()> {
    let checkpoint = file.checkpoint.lock().take();
    checkpoint.map_or(Ok(()), |checkpoint| checkpoint.undo(&file.file))
}

fn no_checkpoint(file: &OpenFile) -> Response {
    failed(ErrorCode::NOT_FOUND, format!("{} has no checkpoint", file.path))
}
