//! Federations, snapshots, and the names of databases and containers.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{At, Csn, Federation, OpenOptions, Result, Snapshot};

use crate::argument::{text, texts};
use crate::owned::Owned;
use crate::status::{c_text, invalid, run};

/// An open federation: `fb_federation`.
pub type CFederation = Owned<Federation>;

/// A federation as of a commit: `fb_snapshot`.
pub type CSnapshot = Owned<Snapshot>;

/// Names of databases or containers: `fb_names`.
pub type CNames = Owned<Vec<CString>>;

/// How a federation is opened: `fb_options`. Zero and NULL stand for the default.
#[repr(C)]
pub struct COptions {
    /// Bytes of the page cache.
    pub cache_bytes: u64,
    /// Threads that one call reads with.
    pub threads: u32,
    /// Connections for prefetching from a server.
    pub streams: u32,
    /// Seconds that requests wait for a server that was reached before.
    pub timeout_seconds: f64,
    /// Folder of the disk cache.
    pub disk_cache: *const c_char,
    /// Bytes of the disk cache.
    pub disk_cache_bytes: u64,
    /// Addresses of memcached servers.
    pub memcached: *const *const c_char,
    /// Number of these.
    pub memcached_count: usize,
}

/// # Safety
/// The texts are NULL or end with NUL.
unsafe fn options_of(given: Option<&COptions>) -> Result<OpenOptions> {
    let usual = OpenOptions::default();
    let Some(given) = given else { return Ok(usual) };
    let timeout = match given.timeout_seconds {
        0.0 => usual.timeout,
        seconds => Duration::try_from_secs_f64(seconds)
            .map_err(|_| invalid(format!("invalid timeout {seconds}: must be seconds above 0")))?,
    };
    let disk_cache = if given.disk_cache.is_null() {
        None
    } else {
        // SAFETY: the caller's.
        Some(PathBuf::from(unsafe { text("disk_cache", given.disk_cache) }?))
    };
    // SAFETY: the caller's.
    let memcached = unsafe { texts("memcached", given.memcached, given.memcached_count) }?;
    let or = |given, usual| if given == 0 { usual } else { given };
    Ok(OpenOptions {
        cache_bytes: or(given.cache_bytes, usual.cache_bytes),
        threads: or(u64::from(given.threads), usual.threads as u64) as usize,
        streams: or(u64::from(given.streams), usual.streams as u64) as usize,
        timeout,
        disk_cache,
        disk_cache_bytes: or(given.disk_cache_bytes, usual.disk_cache_bytes),
        memcached: memcached.into_iter().map(str::to_owned).collect(),
        ..usual
    })
}

/// Opens a federation: a folder, a URL, or several URLs of copies, separated by commas.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_open(
    place: *const c_char,
    options: *const COptions,
    federation: *mut *mut CFederation,
) -> c_int {
    let open = || {
        // SAFETY: the caller's.
        let place = unsafe { text("place", place) }?;
        // SAFETY: the caller's.
        let options = unsafe { options_of(options.as_ref()) }?;
        if place.contains("://") {
            let urls: Vec<String> = place.split(',').map(str::to_owned).collect();
            Federation::open_urls(&urls, options)
        } else {
            Federation::open_with(Path::new(place), options)
        }
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(federation, open) })
}

/// Creates a federation in a folder.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_create(
    folder: *const c_char,
    name: *const c_char,
    federation: *mut *mut CFederation,
) -> c_int {
    let create = || {
        // SAFETY: the caller's.
        let (folder, name) = unsafe { (text("folder", folder)?, text("name", name)?) };
        Federation::create(Path::new(folder), name)
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(federation, create) })
}

/// Closes a federation. Snapshots, views and transactions of it stay usable.
///
/// # Safety
/// As the header says: the pointer is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_federation_free(federation: *mut CFederation) {
    // SAFETY: the caller's.
    unsafe { Owned::free(federation) }
}

/// The newest snapshot.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_newest(
    federation: *const CFederation,
    snapshot: *mut *mut CSnapshot,
) -> c_int {
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(snapshot, || Owned::get(federation)?.snapshot_at(&At::Newest)) })
}

/// The snapshot of a commit.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_at(
    federation: *const CFederation,
    csn: u64,
    snapshot: *mut *mut CSnapshot,
) -> c_int {
    let at = At::Commit(Csn(csn));
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(snapshot, || Owned::get(federation)?.snapshot_at(&at)) })
}

/// The snapshot that a tag names.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_tagged(
    federation: *const CFederation,
    tag: *const c_char,
    snapshot: *mut *mut CSnapshot,
) -> c_int {
    let open = || {
        // SAFETY: the caller's.
        let (federation, tag) = unsafe { (Owned::get(federation)?, text("tag", tag)?) };
        federation.snapshot_at(&At::Tag(tag.to_owned()))
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(snapshot, open) })
}

/// The number of a snapshot's commit; 0 for NULL.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_csn(snapshot: *const CSnapshot) -> u64 {
    // SAFETY: the caller's.
    unsafe { Owned::get(snapshot) }.map_or(0, |snapshot| snapshot.csn().0)
}

/// The names of all databases.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_databases(
    snapshot: *const CSnapshot,
    names: *mut *mut CNames,
) -> c_int {
    let list = || {
        // SAFETY: the caller's.
        let databases = unsafe { Owned::get(snapshot) }?.databases()?;
        Ok(databases.iter().map(|row| c_text(&row.name)).collect())
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(names, list) })
}

/// The names of a database's containers.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_containers(
    snapshot: *const CSnapshot,
    database: *const c_char,
    names: *mut *mut CNames,
) -> c_int {
    let list = || {
        // SAFETY: the caller's.
        let (snapshot, name) = unsafe { (Owned::get(snapshot)?, text("database", database)?) };
        let database = snapshot.database(name)?;
        let containers = snapshot.containers(database.id)?;
        Ok(containers.iter().map(|row| c_text(&row.name)).collect())
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(names, list) })
}

/// Releases a snapshot.
///
/// # Safety
/// As the header says: the pointer is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_snapshot_free(snapshot: *mut CSnapshot) {
    // SAFETY: the caller's.
    unsafe { Owned::free(snapshot) }
}

/// The number of names; 0 for NULL.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_names_count(names: *const CNames) -> usize {
    // SAFETY: the caller's.
    unsafe { Owned::get(names) }.map_or(0, Vec::len)
}

/// A name, as long as the list lives; NULL past the end.
///
/// # Safety
/// As the header says: the pointer is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_names_get(names: *const CNames, index: usize) -> *const c_char {
    // SAFETY: the caller's.
    let names = unsafe { Owned::get(names) };
    let name = names.ok().and_then(|names| names.get(index));
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Releases names.
///
/// # Safety
/// As the header says: the pointer is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_names_free(names: *mut CNames) {
    // SAFETY: the caller's.
    unsafe { Owned::free(names) }
}
