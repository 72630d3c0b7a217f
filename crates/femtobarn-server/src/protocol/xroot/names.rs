//! Requests about names: stat, statx, locate, mkdir, rm, rmdir, mv, chmod, prepare.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, under these names.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use uuid::Uuid;
use xrd::flags::{
    LocateOptions, MkdirOptions, Mode, PrepareMore, PrepareOptions, StatFlags, StatOptions,
};
use xrd::request::{Chmod, FileRef, Locate, Mkdir, Mv, Prepare, Rm, Rmdir, Stat, Statx};
use xrd::response::{
    Access, LocatedKind, LocatedServer, Response, SpaceLine, StatExtension, StatLine,
    encode_locate_answer,
};
use xrd::{ErrorCode, Location};

use super::failures::failed;
use super::greeting::ok;
use super::handler::{RequestHandler, done, opaque};
use crate::auth::Action;
use crate::logical::exports::Exports;
use crate::physical::{
    FileKind, Metadata, Opaque, Space, Storage, StorageError, StoragePath, StorageResult,
};

/// Permission bits of new folders where the client tells none.
const DEFAULT_FOLDER_MODE: u32 = 0o755;

/// Prepare requests that are remembered.
const PREPARATIONS_MAX: usize = 1024;

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

    /// What is known of a name that the client may look at.
    pub(super) async fn metadata(
        &self,
        location: &Location,
    ) -> Result<(StoragePath, Metadata), Response> {
        let path = self.visible(location).await?;
        let exports = &self.shared.logical.exports;
        if exports.is_quick(&path) {
            let metadata = exports.metadata(&path, opaque(location));
            return Ok((path, metadata.map_err(super::failures::response_of)?));
        }
        let location = location.clone();
        self.call(false, move |shared| {
            let metadata = shared.logical.exports.metadata(&path, opaque(&location))?;
            Ok((path, metadata))
        })
        .await
    }

    pub(super) async fn space(&self, location: &Location) -> Result<(Space, bool), Response> {
        let path = self.path(location, Action::Read).await?;
        let is_writable = self.may(location, &path, Action::Create)?;
        let space = self.call(false, move |shared| shared.logical.exports.space(&path)).await?;
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
        let place = |is_writable| LocatedServer {
            kind: LocatedKind::Server,
            online: true,
            access: if is_writable { Access::Write } else { Access::Read },
            address: self.address(locate.options.contains(LocateOptions::PREFER_NAMES)),
        };
        // `*` asks for servers, whatever they have.
        let place = if locate.location.path().starts_with(b"*") {
            place(true)
        } else {
            let (path, metadata) = self.metadata(&locate.location).await?;
            let may_write = self.may(&locate.location, &path, Action::Modify)?;
            LocatedServer { online: metadata.is_online, ..place(may_write && metadata.is_writable) }
        };
        match encode_locate_answer(&[place]) {
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
        let path = self.path(&mkdir.location, Action::Create).await?;
        let parents = mkdir.options.contains(MkdirOptions::MAKE_PATH);
        let mode = match u32::from(mkdir.mode.0) {
            0 => DEFAULT_FOLDER_MODE,
            // Its maker may go on with it.
            mode => mode | 0o700,
        };
        let make = move |shared: &super::Shared| {
            let exports = &shared.logical.exports;
            match exports.make_folder(&path, mode, parents) {
                // Made twice, such as by a client that did not get the first answer.
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
        let remove = move |shared: &super::Shared| {
            let exports = &shared.logical.exports;
            match exports.remove_file(&path, opaque(&rm.location)) {
                Err(StorageError::Refused(Errno::EISDIR, _)) => exports.remove_folder(&path),
                removed => removed,
            }
        };
        self.call(false, remove).await?;
        done()
    }

    pub(super) async fn rmdir(&self, rmdir: Rmdir) -> Result<Response, Response> {
        let path = self.path(&rmdir.location, Action::Modify).await?;
        let remove = move |shared: &super::Shared| match shared.logical.exports.remove_folder(&path)
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
        self.call(false, move |shared| rename(&shared.logical.exports, &from, &to)).await?;
        done()
    }

    pub(super) async fn chmod(&self, chmod: Chmod) -> Result<Response, Response> {
        let path = self.path(&chmod.location, Action::Modify).await?;
        let mode = u32::from(chmod.mode.0);
        self.call(false, move |shared| shared.logical.exports.set_mode(&path, mode)).await?;
        done()
    }

    /// Whatever is staged is here already or comes when it is opened: requests are remembered, so that
    /// they can be asked about and cancelled.
    pub(super) async fn prepare(&self, prepare: Prepare) -> Result<Response, Response> {
        let names = || prepare.locations.iter().map(|location| location.path().to_vec());
        if prepare.options.contains(PrepareOptions::CANCEL) {
            let name = names().next().unwrap_or_default();
            return match self.shared.preparations.cancel(&name) {
                true => done(),
                false => Err(failed(ErrorCode::NOT_FOUND, "there is no such prepare request")),
            };
        }
        if prepare.more.contains(PrepareMore::EVICT) {
            for location in &prepare.locations {
                self.path(location, Action::Stage).await?;
            }
            return done();
        }
        let is_staging = prepare.options.contains(PrepareOptions::STAGE);
        for location in &prepare.locations {
            self.path(location, if is_staging { Action::Stage } else { Action::Read }).await?;
        }
        let name = self.shared.preparations.add(names().collect());
        Ok(Response::Ok(format!("{name}\0").into_bytes().into()))
    }
}

/// Whether a folder with these permission bits is there.
fn is_folder(exports: &Exports, path: &StoragePath, mode: u32) -> bool {
    exports.metadata(path, Opaque::default()).is_ok_and(|metadata| {
        metadata.kind == FileKind::Folder && metadata.mode & 0o777 == mode & 0o777
    })
}

/// Renames, and makes the folders that the new name is to lie in if it must.
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

/// Prepare requests, the newest [`PREPARATIONS_MAX`] of them.
#[derive(Default)]
pub(super) struct Preparations {
    requests: Mutex<VecDeque<(String, Vec<Vec<u8>>)>>,
}

impl Preparations {
    fn add(&self, paths: Vec<Vec<u8>>) -> String {
        let name = Uuid::new_v4().to_string();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() >= PREPARATIONS_MAX {
            requests.pop_front();
        }
        requests.push_back((name.clone(), paths));
        name
    }

    fn cancel(&self, name: &[u8]) -> bool {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let before = requests.len();
        requests.retain(|(known, _)| known.as_bytes() != name);
        requests.len() < before
    }

    /// The paths of a request.
    pub(super) fn paths(&self, name: &[u8]) -> Option<Vec<Vec<u8>>> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let found = requests.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, paths)| paths.clone())
    }
}

/// An address as locate has it: `[::127.0.0.1]:1094`.
pub(super) fn address(address: SocketAddr) -> String {
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("[::{ip}]:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

/// What is known of a file, as a stat line.
pub(super) fn stat_line(metadata: &Metadata) -> StatLine {
    StatLine {
        id: metadata.id.cast_signed(),
        size: metadata.size,
        flags: stat_flags(metadata),
        modified: seconds(metadata.modified),
        extension: Some(StatExtension {
            changed: seconds(metadata.changed),
            accessed: seconds(metadata.accessed),
            mode: Mode((metadata.mode & 0o7777) as u16),
            owner: word(&metadata.owner),
            group: word(&metadata.group),
        }),
    }
}

/// A name without what would part it.
fn word(name: &str) -> String {
    match name {
        "" => "*".to_owned(),
        name => name.replace([' ', '\n', '\0'], "_"),
    }
}

/// Of the flags those that statx tells: what a name is, if it is here.
fn kind_flag(metadata: &Metadata) -> StatFlags {
    match metadata.kind {
        _ if !metadata.is_online => StatFlags::OFFLINE,
        FileKind::Folder => StatFlags::DIRECTORY,
        FileKind::File | FileKind::Other => StatFlags::default(),
    }
}

fn stat_flags(metadata: &Metadata) -> StatFlags {
    let flags = [
        (metadata.mode & 0o111 != 0, StatFlags::EXECUTABLE),
        (metadata.kind == FileKind::Folder, StatFlags::DIRECTORY),
        (metadata.kind == FileKind::Other, StatFlags::OTHER),
        (!metadata.is_online, StatFlags::OFFLINE),
        (metadata.is_readable, StatFlags::READABLE),
        (metadata.is_writable, StatFlags::WRITABLE),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(StatFlags::default(), |all, (_, flag)| all | flag)
}

/// Seconds since 1970, before it negative.
pub(super) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |time| -time),
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
