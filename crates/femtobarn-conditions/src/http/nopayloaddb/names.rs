//! Names of payload types and payload lists, and the paths of the containers that they stand for.

use crate::global_tag::GlobalTagState;

/// The database of the types that clients create.
pub(super) const DATABASE: &str = "nopayloaddb";

/// Separates the type from the global tag in the name of a list without a container of its own.
const OF_TAG: char = '@';

/// The path of the series of a payload type, or of the container of a list. Names of containers have no dot.
pub(super) fn path_of(name: &str) -> String {
    let (database, container) = name.rsplit_once('.').unwrap_or((DATABASE, name));
    format!("{database}/{container}")
}

/// The name for a path: `gain` for `nopayloaddb/gain`, `det.gain` for `det/gain`.
pub(super) fn name_of(path: &str) -> String {
    match path.split_once('/') {
        Some((DATABASE, container)) => container.to_owned(),
        Some((database, container)) => format!("{database}.{container}"),
        None => path.to_owned(),
    }
}

/// Database and container of a path.
pub(super) fn parts(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap_or((path, ""))
}

/// The name of a list without a container of its own.
pub(super) fn shared_list(type_name: &str, tag: &str) -> String {
    format!("{type_name}{OF_TAG}{tag}")
}

/// The type and the tag in such a name.
pub(super) fn shared_list_parts(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(OF_TAG)
}

/// The path of a list's container: that of its type and a number.
pub(super) fn list_path(type_path: &str, number: usize) -> String {
    format!("{type_path}_{number}")
}

/// The path of the type of a list, if the path has the form of a list's.
pub(super) fn type_of_list(path: &str) -> Option<&str> {
    let (of, number) = path.rsplit_once('_')?;
    (!number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())).then_some(of)
}

/// All statuses, with their numbers.
pub(super) const STATUSES: [(u32, &str); 3] = [(1, "unlocked"), (2, "locked"), (3, "frozen")];

/// The status that corresponds to a state.
pub(super) fn status_of(state: GlobalTagState) -> &'static str {
    match state {
        GlobalTagState::Open => "unlocked",
        other => other.name(),
    }
}

/// The state that corresponds to a status.
pub(super) fn state_of(status: &str) -> Option<GlobalTagState> {
    match status {
        "unlocked" => Some(GlobalTagState::Open),
        "locked" => Some(GlobalTagState::Locked),
        "frozen" => Some(GlobalTagState::Frozen),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_one_to_one() {
        for (name, path) in [
            ("Beam", "nopayloaddb/Beam"),
            ("det.gain", "det/gain"),
            ("run.7.gain", "run.7/gain"),
            ("Beam_7", "nopayloaddb/Beam_7"),
        ] {
            assert_eq!(path_of(name), path);
            assert_eq!(name_of(path), name);
        }
    }

    #[test]
    fn a_list_is_its_type_and_a_number() {
        assert_eq!(type_of_list("nopayloaddb/Beam_7"), Some("nopayloaddb/Beam"));
        assert_eq!(type_of_list("det/gain_test"), None);
        assert_eq!(type_of_list("det/gain_"), None);
        assert_eq!(shared_list_parts(&shared_list("a@b", "prod")), Some(("a@b", "prod")));
    }
}
