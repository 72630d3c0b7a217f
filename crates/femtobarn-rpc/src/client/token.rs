//! The bearer token of who asks, looked for where tools of the WLCG keep it (bearer token discovery 1.0).

use std::env;
use std::fs;
use std::path::PathBuf;

/// The token; none if there is none.
pub(super) fn find() -> Option<String> {
    let told = env::var("BEARER_TOKEN").ok();
    told.or_else(|| places().into_iter().find_map(|path| fs::read_to_string(path).ok()))
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
}

fn places() -> Vec<PathBuf> {
    let name = format!("bt_u{}", nix::unistd::Uid::effective());
    let named = env::var_os("BEARER_TOKEN_FILE").map(PathBuf::from);
    let own = env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join(&name));
    let common = env::temp_dir().join(name);
    named.into_iter().chain(own).chain([common]).collect()
}
