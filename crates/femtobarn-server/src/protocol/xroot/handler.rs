//! The handler of requests that need no socket: checks rights and paths, and calls the storage.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use xrd::request::{Chkpoint, Request, Set};
use xrd::response::Response;
use xrd::{ErrorCode, FileHandle, Location};

use super::Shared;
use super::failures::{failed, response_of};
use crate::auth::{Action, Identity};
use crate::logical::handles::OpenFile;
use crate::logical::sessions::Session;
use crate::physical::{FileKind, Opaque, Storage, StorageError, StoragePath, StorageResult};

/// A client's session, with what a request may need besides.
pub(super) struct RequestHandler {
    pub shared: Arc<Shared>,
    pub session: Arc<Session>,
    /// The server's own end of the connection.
    pub local: SocketAddr,
}

impl RequestHandler {
    /// Does a request.
    pub(super) async fn respond(&self, request: Request) -> Response {
        let outcome = match request {
            Request::Ping(_) => done(),
            Request::Stat(stat) => self.stat(stat).await,
            Request::Open(open) => self.open(open).await,
            Request::Close(close) => self.close(close).await,
            Request::Sync(sync) => self.sync(sync).await,
            Request::Truncate(truncate) => self.truncate(truncate).await,
            Request::CloneRanges(ranges) => self.clone_ranges(ranges).await,
            Request::Chkpoint(checkpoint) => self.checkpoint(checkpoint).await,
            Request::Statx(statx) => self.statx(statx).await,
            Request::Locate(locate) => self.locate(locate).await,
            Request::Mkdir(mkdir) => self.mkdir(mkdir).await,
            Request::Rm(rm) => self.rm(rm).await,
            Request::Rmdir(rmdir) => self.rmdir(rmdir).await,
            Request::Mv(mv) => self.mv(mv).await,
            Request::Chmod(chmod) => self.chmod(chmod).await,
            Request::Prepare(prepare) => self.prepare(prepare).await,
            Request::Fattr(fattr) => self.fattr(fattr).await,
            Request::Set(set) => self.set(&set),
            other => {
                let what = format!("{} is not supported here", other.code());
                Err(failed(ErrorCode::UNSUPPORTED, what))
            }
        };
        outcome.unwrap_or_else(|response| response)
    }

    /// The open file of a handle.
    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Response> {
        file_of(&self.session, handle)
    }

    /// The path of a location, if its client may do this there.
    pub(super) async fn path(
        &self,
        location: &Location,
        action: Action,
    ) -> Result<StoragePath, Response> {
        let path = StoragePath::new(location.path()).map_err(response_of)?;
        match self.may(location, &path, action)? {
            true => self.unless_slashed_file(location, path).await,
            false => Err(self.forbidden(&path)),
        }
    }

    /// The path, but an error if it ends with a slash and leads to something that is no folder.
    pub(super) async fn unless_slashed_file(
        &self,
        location: &Location,
        path: StoragePath,
    ) -> Result<StoragePath, Response> {
        if !is_slashed(location) {
            return Ok(path);
        }
        let (name, location) = (path.clone(), location.clone());
        let found = self.call(false, move |shared| {
            Ok(shared.logical.exports.metadata(&name, opaque(&location)).ok())
        });
        match found.await? {
            Some(metadata) if metadata.kind != FileKind::Folder => {
                Err(response_of(StorageError::cannot("enter", &path, Errno::ENOTDIR)))
            }
            _ => Ok(path),
        }
    }

    /// The path of a location, if its client may do anything there: who puts files somewhere looks first
    /// whether they are there.
    pub(super) async fn visible(&self, location: &Location) -> Result<StoragePath, Response> {
        let path = StoragePath::new(location.path()).map_err(response_of)?;
        for action in [Action::Read, Action::Create, Action::Modify, Action::Stage] {
            if self.may(location, &path, action)? {
                return self.unless_slashed_file(location, path).await;
            }
        }
        Err(self.forbidden(&path))
    }

    /// Whether the client may do this to a path: as who it logged in as, or as the bearer of a token
    /// that it sent along.
    pub(super) fn may(
        &self,
        location: &Location,
        path: &StoragePath,
        action: Action,
    ) -> Result<bool, Response> {
        let allows = |identity: &Identity| identity.may(action, path.as_bytes());
        if self.session.identity().is_some_and(allows) {
            return Ok(true);
        }
        let Some(token) = location.value_of("authz") else { return Ok(false) };
        let token = bearer(token)
            .ok_or_else(|| failed(ErrorCode::AUTH_FAILED, "authz holds no bearer token"))?;
        let identity = self.shared.authenticator.token(&token);
        let identity = identity.map_err(|refusal| failed(ErrorCode::AUTH_FAILED, refusal.0))?;
        Ok(allows(&identity))
    }

    pub(super) fn forbidden(&self, path: &StoragePath) -> Response {
        let name = self.session.identity().map_or("somebody", |identity| &identity.name);
        failed(ErrorCode::NOT_AUTHORIZED, format!("{name} may not do this to {path}"))
    }

    /// Does something that may block; in place if `is_quick`.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        is_quick: bool,
        work: impl FnOnce(&Shared) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, Response> {
        if is_quick {
            return work(&self.shared).map_err(response_of);
        }
        let shared = Arc::clone(&self.shared);
        blocking(move || work(&shared)).await.map_err(response_of)
    }

    /// kXR_set: what clients tell of themselves.
    fn set(&self, set: &Set) -> Result<Response, Response> {
        let text = String::from_utf8_lossy(&set.text);
        let mut words = text.trim_end_matches('\0').splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("appid"), name, _) => {
                let name = name.unwrap_or_default().chars().take(80).collect();
                if let Ok(mut application) = self.session.application.write() {
                    *application = name;
                }
                done()
            }
            // The number by which monitoring would know the text.
            (Some("monitor"), Some("info"), _) => {
                let number = self.session.number as u32;
                Ok(Response::Ok(number.to_be_bytes().to_vec().into()))
            }
            (Some("monitor"), _, _) => done(),
            _ => Err(failed(ErrorCode::UNSUPPORTED, format!("cannot set {text:.80?}"))),
        }
    }

    async fn checkpoint(&self, checkpoint: Chkpoint) -> Result<Response, Response> {
        match checkpoint {
            Chkpoint::Begin(handle) => self.begin_checkpoint(handle).await,
            Chkpoint::Commit(handle) => self.commit_checkpoint(handle).await,
            Chkpoint::Query(handle) => self.query_checkpoint(handle),
            Chkpoint::Rollback(handle) => self.roll_back(handle).await,
            Chkpoint::Execute(_) => Err(failed(ErrorCode::INVALID_REQUEST, "there are no data")),
        }
    }
}

/// The open file of a handle.
pub(super) fn file_of(session: &Session, handle: FileHandle) -> Result<Arc<OpenFile>, Response> {
    session
        .handles
        .get(u32::from_be_bytes(handle.0))
        .ok_or_else(|| failed(ErrorCode::FILE_NOT_OPEN, "the handle names no open file"))
}

/// Does something in the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StorageResult<T> + Send + 'static,
) -> StorageResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(StorageError::refused(Errno::EIO, "the server failed to do this")))
}

/// An empty answer.
pub(super) fn done() -> Result<Response, Response> {
    Ok(Response::Ok(Default::default()))
}

/// Whether a location ends with a slash, which only paths of folders may.
pub(super) fn is_slashed(location: &Location) -> bool {
    location.path().ends_with(b"/")
}

/// The opaque information of a location, to be handed down.
pub(super) fn opaque(location: &Location) -> Opaque<'_> {
    Opaque(location.opaque().unwrap_or_default())
}

/// The token in `Bearer%20eyJ..`, with its escapes taken out.
fn bearer(value: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(value.len());
    let mut left = value;
    while let [first, rest @ ..] = left {
        match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                text.push(u8::from_str_radix(digits, 16).ok()?);
                left = rest;
            }
            (byte, rest) => {
                text.push(*byte);
                left = rest;
            }
        }
    }
    let text = String::from_utf8(text).ok()?;
    let token = text.strip_prefix("Bearer ").unwrap_or(&text);
    (!token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_out_of_opaque_information() {
        assert_eq!(bearer(b"Bearer%20a.b%2Dc").as_deref(), Some("a.b-c"));
        assert_eq!(bearer(b"abc").as_deref(), Some("abc"));
        assert_eq!(bearer(b"Bearer%20"), None);
        assert_eq!(bearer(b"a%zz"), None);
        assert_eq!(bearer(b"a%2").as_deref(), Some("a%2"));
    }
}
