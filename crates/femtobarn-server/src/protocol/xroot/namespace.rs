//! Requests about paths: stat, statx, locate, mkdir, rm, rmdir, mv, chmod, prepare.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, under these requests.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use xrd::flags::{LocateOptions, MkdirOptions, PrepareMore, PrepareOptions, StatOptions};
use xrd::request::{Chmod, FileRef, Locate, Mkdir, Mv, Prepare, Rm, Rmdir, Stat, Statx};
use xrd::response::{
    Access, LocatedKind, LocatedServer, Response, SpaceLine, encode_locate_answer,
};
use xrd::{ErrorCode, Location};

use super::handler::{RequestHandler, opaque};
use super::responses::{done, failed, ok, response_of};
use super::service::RootService;
use super::stat_line::{kind_flag, stat_line};
use crate::auth::Action;
use crate::logical::exports::Exports;
use crate::physical::{
    FileKind, Metadata, Opaque, Space, Storage, StorageError, StoragePath, StorageResult, WantedBy,
};

/// Permission bits of new folders if the client sends none.
const DEFAULT_FOLDER_MODE: u32 = 0o755;

impl RequestHandler {
    pub(super) async fn stat(&self, stat: Stat) -> Result<Response, Response> {
        match stat.target {
            FileRef::Handle(handle) => {
                let file = self.file(handle)?;
                let is_quick = file.is_quick;
                let metadata = self.call(is_quick, move |_| file.file.metadata()).await?;
                Ok(ok(&stat_line(&metadata)))
            }
            FileRef::Location(location) => {
                if stat.options.contains(StatOptions::FILE_SYSTEM) {
                    let (space, is_writable) = self.space(&location).await?;
                    return Ok(ok(&space_line(space, is_writable)));
                }
                Ok(ok(&stat_line(&self.metadata(&location).await?.1)))
            }
        }
    }

    /// The metadata of a path to which the client has any right.
    pub(super) async fn metadata(
        &self,
        location: &Location,
    ) -> Result<(StoragePath, Metadata), Response> {
        let path = self.visible(location).await?;
        let exports = &self.service.logical.exports;
        if exports.is_quick(&path) {
            let metadata = exports.metadata(&path, opaque(location));
            return Ok((path, metadata.map_err(response_of)?));
        }
        let location = location.clone();
        self.call(false, move |service| {
            let metadata = service.logical.exports.metadata(&path, opaque(&location))?;
            Ok((path, metadata))
        })
        .await
    }

    pub(super) async fn space(&self, location: &Location) -> Result<(Space, bool), Response> {
        let path = self.path(location, Action::Read).await?;
        let is_writable = self.may(location, &path, Action::Create).await?;
        let space = self.call(false, move |service| service.logical.exports.space(&path)).await?;
        Ok((space, is_writable))
    }

    pub(super) async fn statx(&self, statx: Statx) -> Result<Response, Response> {
        let mut flags = Vec::with_capacity(statx.locations.len());
        for location in &statx.locations {
            let (_, metadata) = self.metadata(location).await?;
            flags.push(kind_flag(&metadata).0 as u8);
        }
        Ok(Response::Ok(flags.into()))
    }

    pub(super) async fn locate(&self, locate: Locate) -> Result<Response, Response> {
        let located = |is_writable| LocatedServer {
            kind: LocatedKind::Server,
            online: true,
            access: if is_writable { Access::Write } else { Access::Read },
            address: self.address(locate.options.contains(LocateOptions::PREFER_NAMES)),
        };
        // `*` asks for servers, independent of any file.
        let server = if locate.location.path().starts_with(b"*") {
            located(true)
        } else {
            let (path, metadata) = self.metadata(&locate.location).await?;
            let may_write = self.may(&locate.location, &path, Action::Modify).await?;
            LocatedServer {
                online: metadata.is_online,
                ..located(may_write && metadata.is_writable)
            }
        };
        match encode_locate_answer(&[server]) {
            Ok(body) => Ok(Response::Ok(body.into())),
            Err(error) => Err(failed(ErrorCode::SERVER_ERROR, error.to_string())),
        }
    }

    fn address(&self, prefers_names: bool) -> String {
        match (nix::unistd::gethostname(), prefers_names && !self.local.ip().is_loopback()) {
            (Ok(name), true) => format!("{}:{}", name.to_string_lossy(), self.local.port()),
            _ => address(self.local),
        }
    }

    pub(super) async fn mkdir(&self, mkdir: Mkdir) -> Result<Response, Response> {
        let path = self.path(&mkdir.location, Action::MakeFolder).await?;
        let parents = mkdir.options.contains(MkdirOptions::MAKE_PATH);
        let mode = match u32::from(mkdir.mode.0) {
            0 => DEFAULT_FOLDER_MODE,
            // The creator can always use the folder.
            mode => mode | 0o700,
        };
        let make = move |service: &RootService| {
            let exports = &service.logical.exports;
            match exports.make_folder(&path, mode, parents) {
                // A client that did not receive the first answer repeats the request.
                Err(StorageError::Refused(Errno::EEXIST, _)) if is_folder(exports, &path, mode) => {
                    Ok(())
                }
                made => made,
            }
        };
        self.call(false, make).await?;
        done()
    }

    pub(super) async fn rm(&self, rm: Rm) -> Result<Response, Response> {
        let path = self.path(&rm.location, Action::Modify).await?;
        let remove = move |service: &RootService| {
            service.logical.exports.remove(&path, opaque(&rm.location))
        };
        self.call(false, remove).await?;
        done()
    }

    pub(super) async fn rmdir(&self, rmdir: Rmdir) -> Result<Response, Response> {
        let path = self.path(&rmdir.location, Action::Modify).await?;
        let remove = move |service: &RootService| match service.logical.exports.remove_folder(&path)
        {
            Err(StorageError::Refused(Errno::ENOENT, _)) => Ok(()),
            removed => removed,
        };
        self.call(false, remove).await?;
        done()
    }

    pub(super) async fn mv(&self, mv: Mv) -> Result<Response, Response> {
        let from = self.path(&mv.from, Action::Modify).await?;
        let to = self.path(&mv.to, Action::Modify).await?;
        if !self.may(&mv.to, &to, Action::Create).await? {
            // The right to a folder does not allow a file in its place.
            return Err(self.forbidden(Action::Create, &to));
        }
        self.call(false, move |service| rename(&service.logical.exports, &from, &to)).await?;
        done()
    }

    pub(super) async fn chmod(&self, chmod: Chmod) -> Result<Response, Response> {
        let path = self.path(&chmod.location, Action::Modify).await?;
        let mode = u32::from(chmod.mode.0);
        self.call(false, move |service| service.logical.exports.set_mode(&path, mode)).await?;
        done()
    }

    /// kXR_prepare: nearline files are staged, or files are evicted. Requests are remembered, so that clients can query
    /// and cancel them; a file that cannot be staged is shown as such by the query.
    pub(super) async fn prepare(&self, prepare: Prepare) -> Result<Response, Response> {
        let names = || prepare.locations.iter().map(|location| location.path().to_vec());
        if prepare.options.contains(PrepareOptions::CANCEL) {
            let name = names().next().unwrap_or_default();
            return if self.service.preparations.cancel(&name) {
                done()
            } else {
                Err(failed(ErrorCode::NOT_FOUND, "unknown prepare request"))
            };
        }
        if prepare.more.contains(PrepareMore::EVICT) {
            for location in &prepare.locations {
                let (path, location) =
                    (self.path(location, Action::Stage).await?, location.clone());
                let evict = move |service: &RootService| {
                    service.logical.exports.evict(&path, opaque(&location))
                };
                self.call(false, evict).await?;
            }
            return done();
        }
        let is_staging = prepare.options.contains(PrepareOptions::STAGE);
        let user = self.session.identity().map_or_else(String::new, |it| it.name.clone());
        for location in &prepare.locations {
            let action = if is_staging { Action::Stage } else { Action::Read };
            let path = self.path(location, action).await?;
            if is_staging {
                let (user, priority, location) = (user.clone(), prepare.priority, location.clone());
                let stage = move |service: &RootService| {
                    let wanted = WantedBy { user: &user, priority, deadline: None };
                    Ok(service.logical.exports.stage(&path, wanted, opaque(&location)).is_ok())
                };
                self.call(false, stage).await?;
            }
        }
        let name = self.service.preparations.add(names().collect());
        Ok(Response::Ok(format!("{name}\0").into_bytes().into()))
    }
}

/// Whether a folder with these permission bits exists.
fn is_folder(exports: &Exports, path: &StoragePath, mode: u32) -> bool {
    exports.metadata(path, Opaque::default()).is_ok_and(|metadata| {
        metadata.kind == FileKind::Folder && metadata.mode & 0o777 == mode & 0o777
    })
}

/// Renames, and creates missing parent folders of the new path.
fn rename(exports: &Exports, from: &StoragePath, to: &StoragePath) -> StorageResult<()> {
    let renamed = exports.rename(from, to);
    let is_there = || exports.metadata(from, Opaque::default()).is_ok();
    match (&renamed, to.parent()) {
        (Err(StorageError::Refused(Errno::ENOENT, _)), Some((folder, _))) if is_there() => {
            exports.make_folder(&folder, DEFAULT_FOLDER_MODE, true)?;
            exports.rename(from, to)
        }
        _ => renamed,
    }
}

/// An address as in the answer to locate: `[::127.0.0.1]:1094`.
pub(super) fn address(address: SocketAddr) -> String {
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("[::{ip}]:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

fn space_line(space: Space, is_writable: bool) -> SpaceLine {
    const MIB: u64 = 1024 * 1024;
    let used = space.total.saturating_sub(space.free);
    let used_percent = (u128::from(used) * 100).checked_div(u128::from(space.total)).unwrap_or(0);
    SpaceLine {
        writable_nodes: u64::from(is_writable),
        writable_free_mib: if is_writable { space.free / MIB } else { 0 },
        writable_used_percent: if is_writable { used_percent as u64 } else { 0 },
        staging_nodes: 0,
        staging_free_mib: 0,
        staging_used_percent: 0,
    }
}
