//! The caller's bearer token, found by the rules of the WLCG (Bearer Token Discovery 1.0).

use std::env;
use std::fs;
use std::path::PathBuf;

/// The first token found; `None` if there is none.
pub(super) fn find() -> Option<String> {
    let given = env::var("BEARER_TOKEN").ok();
    given
        .or_else(|| files().into_iter().find_map(|path| fs::read_to_string(path).ok()))
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty())
}

fn files() -> Vec<PathBuf> {
    let name = format!("bt_u{}", nix::unistd::Uid::effective());
    let named = env::var_os("BEARER_TOKEN_FILE").map(PathBuf::from);
    let own = env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join(&name));
    let common = env::temp_dir().join(name);
    named.into_iter().chain(own).chain([common]).collect()
}
