//! Rights of a client: actions, each at a path and below it.

use std::fmt;

/// An action, as in the scopes of bearer tokens: `storage.*` of the WLCG token profile 1.0, and `femtobarn.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read files and list folders.
    Read,
    /// Create files, folders and databases, without changing or removing existing ones.
    Create,
    /// Change, remove and create.
    Modify,
    /// Stage files from mass storage.
    Stage,
    /// Make a copy of a federation its leader, which ends all changes here.
    Promote,
    /// Move databases between the servers of a federation, and drain servers.
    Manage,
}

impl Action {
    /// The scope that alone grants it, if no right to files includes it.
    pub fn own_scope(self) -> Option<&'static str> {
        match self {
            Action::Promote => Some("femtobarn.promote"),
            Action::Manage => Some("femtobarn.manage"),
            Action::Read | Action::Create | Action::Modify | Action::Stage => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Create => "create",
            Action::Modify => "modify",
            Action::Stage => "stage",
            Action::Promote => "promote a copy of",
            Action::Manage => "manage the servers of",
        })
    }
}

/// The rights of a client: actions, each at a path and everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    grants: Vec<(Action, Vec<u8>)>,
}

impl Rights {
    /// All actions everywhere.
    pub fn everything() -> Self {
        let operating = [Action::Promote, Action::Manage];
        let writing = [Action::Read, Action::Modify, Action::Stage];
        Rights::at("/", &[&writing[..], &operating].concat())
    }

    /// All actions everywhere, but to promote copies and to manage servers.
    pub fn writing() -> Self {
        Rights::at("/", &[Action::Read, Action::Modify, Action::Stage])
    }

    /// Reading everywhere.
    pub fn reading() -> Self {
        Rights::at("/", &[Action::Read])
    }

    /// Actions at one path and below it.
    pub fn at(path: &str, actions: &[Action]) -> Self {
        let path = folder(path.as_bytes());
        Rights { grants: actions.iter().map(|action| (*action, path.clone())).collect() }
    }

    /// The rights of a token's `scope`, which has words such as `storage.read:/store`. Its paths are relative to
    /// `base`. Words of other services and paths with `..` are ignored.
    pub fn of_scope(scope: &str, base: &str) -> Self {
        let grants = scope.split_ascii_whitespace().filter_map(|word| {
            let (name, path) = word.split_once(':').unwrap_or((word, "/"));
            let action = match name {
                "storage.read" => Action::Read,
                "storage.create" => Action::Create,
                "storage.modify" => Action::Modify,
                "storage.stage" => Action::Stage,
                "femtobarn.promote" => Action::Promote,
                "femtobarn.manage" => Action::Manage,
                _ => return None,
            };
            let climbs = path.split('/').any(|piece| piece == "..");
            let is_path = path.starts_with('/') && !climbs;
            is_path.then(|| (action, folder(format!("{base}/{path}").as_bytes())))
        });
        Rights { grants: grants.collect() }
    }

    /// Whether `action` is allowed at a path, which has to be absolute and without `.`, `..` and empty names.
    pub fn may(&self, action: Action, path: &[u8]) -> bool {
        self.grants.iter().any(|(granted, top)| implies(*granted, action) && is_below(path, top))
    }
}

/// Whether a granted action includes another: changing includes creating, and staging includes reading. Nothing includes
/// promoting or managing, and these include nothing.
fn implies(granted: Action, asked: Action) -> bool {
    granted == asked
        || (granted, asked) == (Action::Modify, Action::Create)
        || (granted, asked) == (Action::Stage, Action::Read)
}

/// Whether `path` is `top` or below it. Names are compared whole: `/run70` is not below `/run7`.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// A path without empty names and without `/` at its end; the top is empty.
fn folder(path: &[u8]) -> Vec<u8> {
    let pieces = path.split(|byte| *byte == b'/').filter(|piece| !matches!(piece, [] | [b'.']));
    pieces.fold(Vec::new(), |mut all, piece| {
        all.push(b'/');
        all.extend_from_slice(piece);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_holds_for_its_path_and_everything_below() {
        let rights = Rights::of_scope("storage.read:/store openid storage.modify:/store/run7", "");
        assert!(rights.may(Action::Read, b"/store"));
        assert!(rights.may(Action::Read, b"/store/a/b"));
        assert!(!rights.may(Action::Read, b"/storeroom"));
        assert!(!rights.may(Action::Read, b"/"));
        assert!(rights.may(Action::Create, b"/store/run7/x"));
        assert!(!rights.may(Action::Modify, b"/store/run70"));
    }

    #[test]
    fn paths_in_scopes_are_relative_to_the_issuers_base() {
        let rights = Rights::of_scope("storage.read:/", "/lhc.fed");
        assert!(rights.may(Action::Read, b"/lhc.fed/run7.root"));
        assert!(!rights.may(Action::Read, b"/other"));
        for climbing in ["storage.read:/../other", "storage.read:other", "storage.read:.."] {
            assert_eq!(Rights::of_scope(climbing, "/lhc.fed"), Rights::default());
        }
    }

    #[test]
    fn everything_allows_all_actions_everywhere() {
        let all = Rights::everything();
        assert!(
            [
                Action::Read,
                Action::Create,
                Action::Modify,
                Action::Stage,
                Action::Promote,
                Action::Manage
            ]
            .iter()
            .all(|action| all.may(*action, b"/") && all.may(*action, b"/a/b"))
        );
        assert!(!Rights::reading().may(Action::Modify, b"/a"));
    }

    #[test]
    fn promoting_and_managing_are_rights_of_their_own() {
        assert!(Rights::writing().may(Action::Modify, b"/lhc.fed"));
        let all_of_storage = "storage.read:/ storage.create:/ storage.modify:/ storage.stage:/";
        for action in [Action::Promote, Action::Manage] {
            assert!(!Rights::writing().may(action, b"/lhc.fed"));
            let rights =
                Rights::of_scope(&format!("{}:/", action.own_scope().unwrap()), "/lhc.fed");
            assert!(rights.may(action, b"/lhc.fed"));
            assert!(!rights.may(action, b"/other.fed"));
            assert!(!rights.may(Action::Modify, b"/lhc.fed"));
            assert!(!rights.may(Action::Read, b"/lhc.fed"));
            assert!(!Rights::of_scope(all_of_storage, "").may(action, b"/lhc.fed"));
        }
    }
}
