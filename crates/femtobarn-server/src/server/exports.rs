//! Exports: opens the folders of a configuration as storages under their names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use femtobarn_archive::{Applied, Archive, Recaller, RuleKeeper};
use femtobarn_catalog::{ErrorKind, is_federation};
use nix::errno::Errno;
use xrd::client::Url;

use super::error::StartError;
use super::state::ExportDisks;
use crate::config::{self, Config, ExportConfig};
use crate::logical::catalogue::FederationService;
use crate::logical::cluster::Membership;
use crate::logical::exports::{ExportOptions, Exports};
use crate::logical::journal::restore_all;
use crate::logical::uploads::remove_left;
use crate::physical::{
    CachedOrigin, DiskModel, FaultyStorage, FederationStorage, InPlaceCounts, MachineClock,
    PosixStorage, Storage, StorageError, StoragePath, ThrottledStorage,
};
use crate::protocol::http::mounts::ServedFederation;

/// The opened exports of a server.
pub(super) struct OpenExports {
    pub exports: Exports,
    /// The names of all exports.
    pub names: Vec<String>,
    /// The exports that are federations.
    pub federations: Vec<Arc<FederationService>>,
    /// The same federations, for mounts.
    pub served: Vec<ServedFederation>,
    /// The simulated disks of throttled exports.
    pub disks: Vec<ExportDisks>,
    /// The exports that are caches of other servers.
    pub caches: Vec<(String, Arc<CachedOrigin>)>,
    /// The recallers of federations with stores, by the names of their exports.
    pub recallers: Vec<(String, Arc<Recaller>)>,
    /// Counts of reads in stores, for federations that allow these, by the names of their exports.
    pub in_place: Vec<(String, Arc<InPlaceCounts>)>,
    /// The rule keepers of federations whose settings have an interval.
    pub rule_keepers: Vec<RuleKeeper>,
    /// The place of this server in a cluster.
    pub membership: Option<Membership>,
}

/// The block size of a simulated disk.
const BLOCK_BYTES: u32 = 64 << 10;

/// Opens all exports of a configuration.
pub(super) fn open(config: &Config) -> Result<OpenExports, StartError> {
    if config.exports.is_empty() && !config.redirect.has_servers() {
        let what = "nothing to serve: name a folder, an [[export]] in the configuration, or servers to redirect to";
        return Err(StartError::Config(what.to_owned()));
    }
    let mut exported = OpenExports {
        exports: Exports::default(),
        names: vec![],
        federations: vec![],
        served: vec![],
        disks: vec![],
        caches: vec![],
        recallers: vec![],
        in_place: vec![],
        rule_keepers: vec![],
        membership: None,
    };
    exported.membership = membership(config, &mut exported.exports);
    for export in &config.exports {
        let name = name_of(export)?;
        let is_federation = export.cache.is_none() && is_federation(&export.folder);
        let options = ExportOptions {
            // Opening a database may have to synthesise parts of its file first.
            is_quick: export.throttle.is_none() && export.cache.is_none() && !is_federation,
            is_read_only: export.read_only || config.read_only,
        };
        let mut storage = match &export.cache {
            Some(cache) => {
                let origin = cached_origin(export, cache)?;
                exported.caches.push((name.clone(), Arc::clone(&origin)));
                origin
            }
            None => files(export)?,
        };
        if let Some(throttle) = &export.throttle {
            let slow = slow(storage, throttle);
            exported.disks.push(ExportDisks { export: name.clone(), throttle: slow.gate() });
            storage = Arc::new(slow);
        }
        if is_federation {
            let lease = Duration::from_secs(config.limits.lease_seconds);
            let grace = Duration::from_secs(config.limits.grace_seconds);
            let key = name.trim_matches('/');
            let service = FederationService::open(key, &export.folder, options.is_read_only, lease);
            let service =
                service.map_err(|error| unusable(&export.folder, &error, kind_of(error.kind())))?;
            let service = Arc::new(service.with_grace(grace));
            let recaller = recaller(&service)?;
            if let Some(recaller) = recaller.as_ref().filter(|_| !options.is_read_only) {
                exported.rule_keepers.extend(rule_keeper(&name, recaller)?);
            }
            exported.recallers.extend(recaller.clone().map(|it| (name.clone(), it)));
            let federation = FederationStorage::new(service.catalog().clone(), storage);
            let federation = federation.recalling(recaller).remembering(config.limits.layout_bytes);
            let in_place = federation.in_place_counts();
            exported.in_place.extend(in_place.map(|it| (name.clone(), it)));
            storage = Arc::new(federation.writable(Arc::new(Arc::clone(&service))));
            exported.federations.push(service);
            exported.served.push(ServedFederation {
                name: name.clone(),
                folder: export.folder.clone(),
                is_read_only: options.is_read_only,
            });
        } else if export.cache.is_none() && !options.is_read_only {
            restore_all(&storage);
            remove_left(&*storage);
        }
        let prefix = StoragePath::new(name.as_bytes()).map_err(config_error)?;
        exported.exports.add(&prefix, storage, options).map_err(config_error)?;
        exported.names.push(name);
    }
    Ok(exported)
}

/// The membership of a server with these exports in a cluster; `None` if the configuration names no cluster.
fn membership(config: &Config, exports: &mut Exports) -> Option<Membership> {
    let socket = &config.cluster.cmsd;
    if socket.as_os_str().is_empty() {
        return None;
    }
    let (membership, news) = Membership::new(socket.clone());
    exports.tell(news);
    Some(membership)
}

/// The recaller of a federation's databases; `None` if it has no stores.
fn recaller(service: &FederationService) -> Result<Option<Arc<Recaller>>, StartError> {
    let archive = Archive::open(service.catalog().clone());
    let archive = archive.map_err(|error| StartError::Config(error.to_string()))?;
    let has_stores = !archive.settings().stores.is_empty();
    let recaller = || Recaller::new(Arc::new(archive)).reporting_evictions(report_eviction);
    Ok(has_stores.then(|| Arc::new(recaller())))
}

/// Logs an eviction whose client did not wait for it.
fn report_eviction(archive: &Archive, database: &str, evicted: &femtobarn_archive::Result<u64>) {
    let federation = archive.folder();
    match evicted {
        Ok(bytes) => {
            tracing::info!(federation = %federation.display(), database, bytes, "left the disk")
        }
        Err(error) => {
            tracing::warn!(federation = %federation.display(), database, %error, "stays on the disk");
        }
    }
}

/// The rule keeper of a federation; `None` if its settings have no interval.
fn rule_keeper(name: &str, recaller: &Recaller) -> Result<Option<RuleKeeper>, StartError> {
    let archive = Arc::clone(recaller.archive());
    let Some(seconds) = archive.settings().apply_every_seconds else { return Ok(None) };
    let export = name.to_owned();
    let report = move |applied: femtobarn_archive::Result<Applied>| match applied {
        Ok(Applied { migrated, not_on_disk, evicted, failed, .. }) => {
            for (database, store) in migrated {
                tracing::info!(export, database, store, "copied to a store");
            }
            for (database, store) in not_on_disk {
                tracing::info!(export, database, store, "gets a copy when it is staged");
            }
            for (database, bytes) in evicted {
                tracing::info!(export, database, bytes, "left the disk");
            }
            for (what, error) in failed {
                tracing::warn!(export, what, error, "a rule of the storage failed");
            }
        }
        Err(error) => tracing::warn!(export, %error, "the rules of the storage failed"),
    };
    let keeper = RuleKeeper::start(archive, Duration::from_secs(seconds), report);
    keeper.map(Some).map_err(|error| StartError::System(error.to_string()))
}

/// The configured name, or else `/` and the folder's own name.
fn name_of(export: &ExportConfig) -> Result<String, StartError> {
    if !export.name.is_empty() {
        return Ok(format!("/{}", export.name.trim_matches('/')));
    }
    if let Some(cache) = &export.cache {
        let path = origin_url(cache)?.location.path().to_vec();
        return Ok(format!("/{}", String::from_utf8_lossy(&path).trim_matches('/')));
    }
    let folder = std::fs::canonicalize(&export.folder).map_err(|error| {
        let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let kind = if is_denied { StartError::Denied } else { StartError::System };
        unusable(&export.folder, &error, kind)
    })?;
    match folder.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(format!("/{name}")),
        None => Err(StartError::Config(format!(
            "cannot derive a name for {}; give it one: {}=/name",
            folder.display(),
            folder.display()
        ))),
    }
}

/// The files of an export's folder, with the configured faults.
fn files(export: &ExportConfig) -> Result<Arc<dyn Storage>, StartError> {
    let mut files: Arc<dyn Storage> =
        Arc::new(PosixStorage::new(&export.folder).map_err(system_error)?);
    let faults = export.faults.iter().map(|fault| fault.parse());
    let faults: Vec<_> = faults.collect::<Result<_, _>>().map_err(StartError::Config)?;
    if !faults.is_empty() {
        files = Arc::new(FaultyStorage::failing(files, faults));
    }
    Ok(files)
}

/// The files of another server, kept in an export's folder and its further folders.
fn cached_origin(
    export: &ExportConfig,
    cache: &config::CacheConfig,
) -> Result<Arc<CachedOrigin>, StartError> {
    if !export.faults.is_empty() {
        return Err(StartError::Config(format!("the cache of {} has no faults", cache.of)));
    }
    let folders = std::iter::once(&export.folder).chain(&cache.more_folders).map(PathBuf::as_path);
    let origin = CachedOrigin::new(origin_url(cache)?, folders, cache.bytes, cache.immutable);
    let idle = cache.idle_seconds.map(|seconds| Duration::from_secs(seconds.get()));
    origin.map(|origin| Arc::new(origin.leaving(idle))).map_err(system_error)
}

fn origin_url(cache: &config::CacheConfig) -> Result<Url, StartError> {
    Url::parse(&cache.of).map_err(|error| StartError::Config(format!("cache.of: {error}")))
}

/// Files on the configured simulated disks.
fn slow(files: Arc<dyn Storage>, throttle: &config::ThrottleConfig) -> ThrottledStorage {
    let model = DiskModel {
        bytes_per_second: throttle.bytes_per_second,
        seeks_per_second: throttle.seeks_per_second,
        block_size: BLOCK_BYTES,
        cache_bytes: throttle.cache_bytes,
        write_behind: Duration::try_from_secs_f64(throttle.write_behind_seconds)
            .expect("checked by the configuration"),
        defer_above: throttle.defer_above_seconds.map(|most| Duration::from_secs(most.into())),
    };
    let clock = Arc::new(MachineClock::default());
    ThrottledStorage::throttled(files, model, &throttle.disks, clock)
}

fn kind_of(error: ErrorKind) -> fn(String) -> StartError {
    match error {
        ErrorKind::Denied => StartError::Denied,
        ErrorKind::Corrupt => StartError::Corrupt,
        ErrorKind::Unsupported => StartError::Unsupported,
        _ => StartError::System,
    }
}

fn unusable(
    folder: &Path,
    error: &dyn std::fmt::Display,
    kind: fn(String) -> StartError,
) -> StartError {
    kind(format!("cannot serve {}: {error}", folder.display()))
}

fn system_error(error: StorageError) -> StartError {
    match error {
        StorageError::Refused(Errno::EACCES | Errno::EPERM, what) => StartError::Denied(what),
        error => StartError::System(error.into_text()),
    }
}

fn config_error(error: StorageError) -> StartError {
    StartError::Config(error.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_may_not_be_opened_is_denied() {
        let refused = |errno| system_error(StorageError::refused(errno, "cannot open /data"));
        assert_eq!(refused(Errno::EACCES), StartError::Denied("cannot open /data".to_owned()));
        assert_eq!(refused(Errno::EIO), StartError::System("cannot open /data".to_owned()));
    }
}
