//! The machine around us: its clock, its name, the user and the process.
//!
//! Everything else in this crate asks here, so that there is one place to look.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    (now_us() / 1000).unsigned_abs()
}

/// A clock that only goes forward, for waits.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// This process; not remembered, because a fork changes it.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

pub(crate) fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_else(|_| "unknown".into())
    })
}

pub(crate) fn user_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let uid = nix::unistd::Uid::effective();
        match nix::unistd::User::from_uid(uid) {
            Ok(Some(user)) => user.name,
            _ => uid.to_string(),
        }
    })
}
