//! The handler of requests that need no socket: it checks rights, paths and handles, and calls the storage.

use std::net::SocketAddr;
use std::sync::Arc;

use nix::errno::Errno;
use xrd::request::{Request, Set};
use xrd::response::Response;
use xrd::{ErrorCode, FileHandle, Location};

use super::responses::{done, failed, response_of};
use super::service::RootService;
use crate::auth::{Action, Identity, Refusal};
use crate::logical::handles::OpenFile;
use crate::logical::sessions::ClientSession;
use crate::physical::{FileKind, Opaque, Storage, StorageError, StoragePath, StorageResult};

/// A client's session with the service, for one request.
pub(super) struct RequestHandler {
    pub service: Arc<RootService>,
    pub session: Arc<ClientSession>,
    /// The server's address of the connection.
    pub local: SocketAddr,
    /// Whether the connection is encrypted, so that requests may have tokens.
    pub is_encrypted: bool,
}

impl RequestHandler {
    /// Performs a request.
    pub(super) async fn perform(&self, request: Request) -> Response {
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

    /// The open file of a handle, if the session may read it.
    pub(super) fn readable_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Response> {
        readable_file_of(&self.session, handle)
    }

    /// The open file of a handle, if it is open for writing.
    pub(super) fn writable_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Response> {
        writable_file_of(&self.session, handle)
    }

    /// The path of a location, if the client has this right to it.
    pub(super) async fn path(
        &self,
        location: &Location,
        action: Action,
    ) -> Result<StoragePath, Response> {
        let path = StoragePath::new(location.path()).map_err(response_of)?;
        if self.may(location, &path, action).await? {
            self.unless_slashed_file(location, path).await
        } else {
            Err(self.forbidden(action, &path))
        }
    }

    /// The path; an error if it was sent with a trailing slash but does not lead to a folder.
    pub(super) async fn unless_slashed_file(
        &self,
        location: &Location,
        path: StoragePath,
    ) -> Result<StoragePath, Response> {
        if !is_slashed(location) {
            return Ok(path);
        }
        let (name, location) = (path.clone(), location.clone());
        let found = self.call(false, move |service| {
            Ok(service.logical.exports.metadata(&name, opaque(&location)).ok())
        });
        match found.await? {
            Some(metadata) if metadata.kind != FileKind::Folder => {
                Err(response_of(StorageError::cannot("enter", &path, Errno::ENOTDIR)))
            }
            _ => Ok(path),
        }
    }

    /// The path of a location, if the client may ask for its location, which any right to files includes: a client that
    /// may only create files checks first whether they exist.
    pub(super) async fn visible(&self, location: &Location) -> Result<StoragePath, Response> {
        let path = StoragePath::new(location.path()).map_err(response_of)?;
        if self.may(location, &path, Action::Poll).await? {
            return self.unless_slashed_file(location, path).await;
        }
        Err(self.forbidden(Action::Read, &path))
    }

    /// Whether the client has this right to a path, by its identity or by a bearer token in the opaque information.
    pub(super) async fn may(
        &self,
        location: &Location,
        path: &StoragePath,
        action: Action,
    ) -> Result<bool, Response> {
        let allows = |identity: &Identity| identity.may(action, path.as_bytes());
        if self.session.identity().as_deref().is_some_and(allows) {
            return Ok(true);
        }
        let Some(token) = location.value_of("authz") else { return Ok(false) };
        let refused = |what: String| failed(ErrorCode::AUTH_FAILED, what);
        let token = bearer(token).ok_or_else(|| refused("authz has no bearer token".to_owned()))?;
        Ok(allows(&self.named_by(&token).await.map_err(|refusal| refused(refusal.0))?))
    }

    /// The identity of a bearer token in a request.
    pub(super) async fn named_by(&self, token: &str) -> Result<Identity, Refusal> {
        if !self.is_encrypted {
            return Err(Refusal("a token must only be sent over TLS; use roots://".to_owned()));
        }
        self.service.authenticator.await_keys(token).await;
        // The rights by the client's certificate belong to the session already.
        self.service.authenticator.token(token, None)
    }

    pub(super) fn forbidden(&self, action: Action, path: &StoragePath) -> Response {
        let identity = self.session.identity();
        let identity = identity.as_deref();
        let name = identity.map_or("an unknown client", |identity| &identity.name);
        let what = format!("{name} has no right to {action} {path}");
        let what = identity.map_or(what.clone(), |identity| identity.explained(what));
        failed(ErrorCode::NOT_AUTHORIZED, what)
    }

    /// Runs work that may block: in the blocking pool, or on this thread if `is_quick`.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        is_quick: bool,
        work: impl FnOnce(&RootService) -> StorageResult<T> + Send + 'static,
    ) -> Result<T, Response> {
        if is_quick {
            return work(&self.service).map_err(response_of);
        }
        let service = Arc::clone(&self.service);
        blocking(move || work(&service)).await.map_err(response_of)
    }

    /// kXR_set: a client's name for its work.
    fn set(&self, set: &Set) -> Result<Response, Response> {
        let text = String::from_utf8_lossy(&set.text);
        let mut words = text.trim_end_matches('\0').splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("appid"), name, _) => {
                let name = name.unwrap_or_default().chars().take(80).collect();
                *self.session.application.write() = name;
                done()
            }
            // The answer is the id of the text in a monitoring stream.
            (Some("monitor"), Some("info"), _) => {
                let number = self.session.number as u32;
                Ok(Response::Ok(number.to_be_bytes().to_vec().into()))
            }
            (Some("monitor"), _, _) => done(),
            _ => Err(failed(ErrorCode::UNSUPPORTED, format!("cannot set {text:.80?}"))),
        }
    }
}

/// The open file of a handle.
pub(super) fn file_of(
    session: &ClientSession,
    handle: FileHandle,
) -> Result<Arc<OpenFile>, Response> {
    session
        .handles
        .get(u32::from_be_bytes(handle.0))
        .ok_or_else(|| failed(ErrorCode::FILE_NOT_OPEN, "unknown file handle"))
}

/// The open file of a handle, if the session may read it.
pub(super) fn readable_file_of(
    session: &ClientSession,
    handle: FileHandle,
) -> Result<Arc<OpenFile>, Response> {
    let file = file_of(session, handle)?;
    if file.is_readable {
        return Ok(file);
    }
    let what = format!("{} may be written, but not read, by this client's rights", file.path);
    Err(failed(ErrorCode::NOT_AUTHORIZED, what))
}

/// The open file of a handle, if it is open for writing.
pub(super) fn writable_file_of(
    session: &ClientSession,
    handle: FileHandle,
) -> Result<Arc<OpenFile>, Response> {
    let file = file_of(session, handle)?;
    if file.is_writable {
        return Ok(file);
    }
    Err(failed(ErrorCode::NOT_AUTHORIZED, format!("{} is not open for writing", file.path)))
}

/// Runs work in the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StorageResult<T> + Send + 'static,
) -> StorageResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(StorageError::refused(Errno::EIO, "internal error of the server")))
}

/// Whether a location ends with a slash, which is allowed for folders only.
pub(super) fn is_slashed(location: &Location) -> bool {
    location.path().ends_with(b"/")
}

/// The opaque information of a location.
pub(super) fn opaque(location: &Location) -> Opaque<'_> {
    Opaque(location.opaque().unwrap_or_default())
}

/// The token in `Bearer%20eyJ..`, with its escapes decoded.
pub(super) fn bearer(value: &[u8]) -> Option<String> {
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
    fn bearer_tokens_are_decoded_from_opaque_information() {
        assert_eq!(bearer(b"Bearer%20a.b%2Dc").as_deref(), Some("a.b-c"));
        assert_eq!(bearer(b"abc").as_deref(), Some("abc"));
        assert_eq!(bearer(b"Bearer%20"), None);
        assert_eq!(bearer(b"a%zz"), None);
        assert_eq!(bearer(b"a%2").as_deref(), Some("a%2"));
    }
}
