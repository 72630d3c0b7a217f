//! Rules for names, and suggestions of similar names for one that does not exist.

use crate::error::{Error, Result};

/// Longest name of a database, a container or a class, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Most names that a hint lists.
const NEAR_MISSES_MAX: usize = 3;
/// The least similarity (1.0 is equal) of a name that a hint lists.
const SIMILARITY_MIN: f64 = 0.6;
/// Characters with a special meaning where names are written: wildcards of shells, `xrdfs` and `TChain`, quotes
/// and operators of shells, `name;cycle` of ROOT, `file:object` of uproot, and the parameters, fragment and escapes
/// of URLs.
const SIGNS: &str = "*?[]{}<>|&;:!$#%\"'`\\";

/// Checks the name of a new database. Callers check it before they create the database's file.
///
/// # Errors
/// [`Error::Invalid`] with the rule that the name breaks.
pub fn check_database_name(name: &str) -> Result<()> {
    check("database", name)?;
    check_signs("database", name)
}

/// Checks the name of a server, which is also the name of a file.
pub(crate) fn check_server_name(name: &str) -> Result<()> {
    check("server", name)?;
    check_signs("server", name)
}

/// Refuses names that shells, URLs, ROOT or uproot would misread.
fn check_signs(what: &'static str, name: &str) -> Result<()> {
    if let Some(sign) = name.chars().find(|character| SIGNS.contains(*character)) {
        return Err(Error::invalid(format!(
            "invalid {what} name {name:?}: '{sign}' has a special meaning in shells, URLs or ROOT; use '_' instead"
        )));
    }
    match name.chars().next() {
        Some(first @ ('.' | '-' | '~')) => Err(Error::invalid(format!(
            "invalid {what} name {name:?}: a leading '{first}' has a special meaning in paths and command lines; begin \
             with a letter or a digit"
        ))),
        _ => Ok(()),
    }
}

/// Checks the rules that have held for every name since the first release, and hold for the names of existing
/// databases, classes and tags.
pub(crate) fn check(what: &'static str, name: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("invalid {what} name {name:?}: {rule}")));
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return refuse(&format!("must be 1 to {NAME_BYTES_MAX} bytes"));
    }
    if name.contains('/') {
        return refuse("must not contain '/', which separates a database from its container");
    }
    if name.chars().any(char::is_control) {
        return refuse("must not contain control characters");
    }
    if name.trim() != name {
        return refuse("must not begin or end with a blank");
    }
    Ok(())
}

/// Checks the name of a new container.
///
/// # Errors
/// [`Error::Invalid`] with the rule that the name breaks.
pub fn check_container_name(name: &str) -> Result<()> {
    check_existing_container_name(name)?;
    check_signs("container", name)
}

/// Checks the name of a container that exists in a file, by the rules of the RNTuple specification alone.
pub(crate) fn check_existing_container_name(name: &str) -> Result<()> {
    check("container", name)?;
    match name.chars().find(|character| matches!(character, '.' | ' ' | '\\')) {
        Some(character) => Err(Error::invalid(format!(
            "invalid container name {name:?}: an RNTuple's name must not contain {character:?}; use '_' instead"
        ))),
        None => Ok(()),
    }
}

/// The error for a name that does not exist.
pub(crate) fn not_found(what: &'static str, name: &str, existing: Vec<String>) -> Error {
    Error::NotFound { what, name: name.to_owned(), near_misses: near_misses(name, existing) }
}

fn near_misses(name: &str, existing: Vec<String>) -> Vec<String> {
    let mut scored: Vec<(f64, String)> = existing
        .into_iter()
        .map(|candidate| (similarity(name, &candidate), candidate))
        .filter(|(score, _)| *score >= SIMILARITY_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(NEAR_MISSES_MAX).map(|(_, candidate)| candidate).collect()
}

/// The similarity of two spellings without regard to case; a candidate that contains the name counts as similar.
fn similarity(name: &str, candidate: &str) -> f64 {
    let (name, candidate) = (name.to_lowercase(), candidate.to_lowercase());
    let spelling = strsim::normalized_damerau_levenshtein(&name, &candidate);
    let contains = !name.is_empty() && candidate.contains(&name);
    if contains { spelling.max(SIMILARITY_MIN) } else { spelling }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_paths_or_files_are_refused() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a/b", "a\nb", " a", "a ", "a\u{7f}", &long] {
            assert!(check("database", name).is_err(), "{name:?}");
        }
        for name in ["a.b", "a b"] {
            assert!(check_database_name(name).is_ok(), "{name:?}");
            assert!(check_container_name(name).is_err(), "{name:?}");
        }
        assert!(check_container_name("Événements_7").is_ok());
    }

    /// `..`, `*`, `q?` and `a;1` used to be accepted, and could not be written in a shell, in `xrdfs`, in uproot or
    /// in a URL.
    #[test]
    fn new_names_with_special_meaning_in_shells_urls_or_root_are_refused() {
        let refused = [".", "..", ".a", "-rf", "~", "*", "q?", "a;1", "a:b", "a[0]", "a\\b"];
        for name in refused.into_iter().chain(["a#b", "50%", "$HOME", "a&b", "a'b", "a\"b", "a!"]) {
            let error = check_database_name(name).unwrap_err().to_string();
            assert!(error.contains("has a special meaning in"), "{error}");
            assert!(check_container_name(name).is_err(), "{name:?}");
        }
        for name in ["run-7_a", "a+b=c", "muon@cern,ch", "1", "nano (1)", "v1.2"] {
            assert!(check_database_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn names_that_older_releases_accepted_stay_valid() {
        for name in ["*", "q?", "a;1", "-rf"] {
            assert!(check("database", name).is_ok(), "{name:?}");
            assert!(check_existing_container_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn near_misses_are_the_most_similar_names_first() {
        let existing = ["events", "event_index", "hits", "Evnets"].map(String::from).to_vec();
        assert_eq!(near_misses("evnts", existing.clone()), ["Evnets", "events"]);
        assert_eq!(near_misses("event", existing), ["events", "Evnets", "event_index"]);
        assert!(near_misses("zzz", vec!["events".into()]).is_empty());
    }
}
