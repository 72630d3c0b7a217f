//! What a name may look like, and which existing names are like one that does not exist.

use crate::error::{Error, Result};
use crate::local::DATABASES_FOLDER;

/// Longest name of a database, a container or a class, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Most names that a hint lists.
const NEAR_MISSES_MAX: usize = 3;
/// Names less alike than this (1.0 is equal) are not worth a hint.
const LIKENESS_MIN: f64 = 0.6;
/// Characters that mean something else where names are written: wildcards of shells, `xrdfs` and
/// `TChain`, quotes and other signs of shells, `name;cycle` of ROOT, `file:object` of uproot, and the
/// parameters, the fragment and the escapes of a URL.
const SIGNS: &str = "*?[]{}<>|&;:!$#%\"'`\\";

/// Checks the name of a new database, so that its file need not be made in vain.
///
/// # Errors
/// [`Error::Invalid`] that says what the name may not have.
pub fn check_database_name(name: &str) -> Result<()> {
    check("database", name)?;
    check_signs("database", name)
}

/// Refuses names that shells, URLs, ROOT or uproot would take for something else.
fn check_signs(what: &'static str, name: &str) -> Result<()> {
    if let Some(sign) = name.chars().find(|character| SIGNS.contains(*character)) {
        return Err(Error::invalid(format!(
            "{what} name {name:?} contains '{sign}', which shells, URLs or ROOT take for something \
             else; use '_' instead"
        )));
    }
    match name.chars().next() {
        Some(first @ ('.' | '-' | '~')) => Err(Error::invalid(format!(
            "{what} name {name:?} begins with '{first}', which paths and command lines take for \
             something else; begin with a letter or a digit"
        ))),
        _ => Ok(()),
    }
}

/// Checks what every name has had to be like from the beginning: the names of databases that are
/// there, of classes and of tags.
pub(crate) fn check(what: &'static str, name: &str) -> Result<()> {
    let refuse = |reason: &str| Err(Error::invalid(format!("{what} name {name:?} {reason}")));
    if name.is_empty() {
        return refuse("is empty; give it at least one character");
    }
    if name.len() > NAME_BYTES_MAX {
        return refuse(&format!("has {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len()));
    }
    if name.contains('/') {
        return refuse("contains '/', which separates a database from its container");
    }
    if name.chars().any(char::is_control) {
        return refuse("contains a control character");
    }
    if name.trim() != name {
        return refuse("starts or ends with a blank");
    }
    Ok(())
}

/// Checks the name of a new container.
///
/// # Errors
/// [`Error::Invalid`] that says what the name may not have.
pub fn check_container_name(name: &str) -> Result<()> {
    check_existing_container_name(name)?;
    check_signs("container", name)
}

/// Checks the name of a container that a file has already, by the RNTuple specification alone.
pub(crate) fn check_existing_container_name(name: &str) -> Result<()> {
    check("container", name)?;
    match name.chars().find(|character| matches!(character, '.' | ' ' | '\\')) {
        Some(character) => Err(Error::invalid(format!(
            "container name {name:?} contains {character:?}, which an RNTuple's name may not; \
             use '_' instead"
        ))),
        None => Ok(()),
    }
}

/// Checks the name of a place: a folder of the folder of databases that files of databases may lie in.
///
/// # Errors
/// [`Error::Invalid`] that says what the name may have.
pub fn check_place(place: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_good = (1..=NAME_BYTES_MAX).contains(&place.len()) && !place.starts_with('.');
    match is_good && place.bytes().all(is_plain) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "place {place:?} is not the name of a folder: take letters, digits, '.', '_' and '-', \
             {NAME_BYTES_MAX} at most and not '.' first"
        ))),
    }
}

/// Whether a path, below the federation's folder, is one of databases' files: in the folder of databases
/// or in a place there.
pub fn is_database_path(path: &str) -> bool {
    let Some(below) = path.strip_prefix(DATABASES_FOLDER) else { return false };
    let Some(below) = below.strip_prefix('/') else { return false };
    let name = match below.split_once('/') {
        Some((place, name)) if check_place(place).is_ok() => name,
        Some(_) => return false,
        None => below,
    };
    !name.contains('/') && !matches!(name, "" | "." | "..")
}

/// The error for a name that does not exist.
pub(crate) fn not_found(what: &'static str, name: &str, existing: Vec<String>) -> Error {
    Error::NotFound { what, name: name.to_owned(), near_misses: near_misses(name, existing) }
}

fn near_misses(name: &str, existing: Vec<String>) -> Vec<String> {
    let mut scored: Vec<(f64, String)> = existing
        .into_iter()
        .map(|candidate| (likeness(name, &candidate), candidate))
        .filter(|(score, _)| *score >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(NEAR_MISSES_MAX).map(|(_, candidate)| candidate).collect()
}

/// Spelling without regard to case; a name that contains the other is alike as well.
fn likeness(name: &str, candidate: &str) -> f64 {
    let (name, candidate) = (name.to_lowercase(), candidate.to_lowercase());
    let spelling = strsim::normalized_damerau_levenshtein(&name, &candidate);
    match !name.is_empty() && candidate.contains(&name) {
        true => spelling.max(LIKENESS_MIN),
        false => spelling,
    }
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

    /// `..`, `*`, `q?` and `a;1` were taken, and could then not be named to a shell, to `xrdfs`, to
    /// uproot or in a URL.
    #[test]
    fn new_names_that_mean_something_else_to_shells_urls_or_root_are_refused() {
        let refused = [".", "..", ".a", "-rf", "~", "*", "q?", "a;1", "a:b", "a[0]", "a\\b"];
        for name in refused.into_iter().chain(["a#b", "50%", "$HOME", "a&b", "a'b", "a\"b", "a!"]) {
            let error = check_database_name(name).unwrap_err().to_string();
            assert!(error.contains("take for something else"), "{error}");
            assert!(check_container_name(name).is_err(), "{name:?}");
        }
        for name in ["run-7_a", "a+b=c", "muon@cern,ch", "1", "nano (1)", "v1.2"] {
            assert!(check_database_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn names_that_older_releases_took_stay_names() {
        for name in ["*", "q?", "a;1", "-rf"] {
            assert!(check("database", name).is_ok(), "{name:?}");
            assert!(check_existing_container_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn files_of_databases_are_in_their_folder_or_in_a_place() {
        for path in ["databases/run7.root", "databases/disk-0/a run.root", "databases/a/.b"] {
            assert!(is_database_path(path), "{path:?}");
        }
        for path in [
            "",
            "run7.root",
            "/etc/passwd",
            "databases",
            "databases/",
            "databases/..",
            "databases/../catalogue.sqlite",
            "databases/./catalogue.sqlite",
            "databases//a",
            "databases/a/",
            "databases/a/..",
            "databases/.a/b",
            "databases/lost+found/b",
            "databases/a/b/c",
            "databasesx",
        ] {
            assert!(!is_database_path(path), "{path:?}");
        }
    }

    #[test]
    fn near_misses_are_the_likest_names_first() {
        let existing = ["events", "event_index", "hits", "Evnets"].map(String::from).to_vec();
        assert_eq!(near_misses("evnts", existing.clone()), ["Evnets", "events"]);
        assert_eq!(near_misses("event", existing), ["events", "Evnets", "event_index"]);
        assert!(near_misses("zzz", vec!["events".into()]).is_empty());
    }
}
