//! Rights: what a client may do, and to which paths.

/// A kind of thing to do, as bearer tokens name it (WLCG token profile 1.0, `storage.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read files and list folders.
    Read,
    /// Make what is not there: files, folders, databases. Nothing is changed or removed by it.
    Create,
    /// Change and remove what is there, and make what is not.
    Modify,
    /// Bring files from mass storage.
    Stage,
}

/// What somebody may do: actions, each at a path and everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    grants: Vec<(Action, Vec<u8>)>,
}

impl Rights {
    /// All actions everywhere.
    pub fn everything() -> Self {
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

    /// What a token's `scope` grants: words such as `storage.read:/store`. Its paths are below `base`.
    /// Words of other services are left out, and so are paths that climb by `..`.
    pub fn of_scope(scope: &str, base: &str) -> Self {
        let grants = scope.split_ascii_whitespace().filter_map(|word| {
            let (name, path) = word.split_once(':').unwrap_or((word, "/"));
            let action = match name {
                "storage.read" => Action::Read,
                "storage.create" => Action::Create,
                "storage.modify" => Action::Modify,
                "storage.stage" => Action::Stage,
                _ => return None,
            };
            let climbs = path.split('/').any(|piece| piece == "..");
            let is_path = path.starts_with('/') && !climbs;
            is_path.then(|| (action, folder(format!("{base}/{path}").as_bytes())))
        });
        Rights { grants: grants.collect() }
    }

    /// Whether `action` is allowed at a path, which is absolute and clean.
    pub fn may(&self, action: Action, path: &[u8]) -> bool {
        self.grants.iter().any(|(granted, top)| implies(*granted, action) && is_below(path, top))
    }

    /// Whether a folder is on the way to something that may be read, and so may be looked into.
    pub fn may_pass(&self, path: &[u8]) -> bool {
        self.may(Action::Read, path)
            || self.grants.iter().any(|(_, top)| is_below(top, &folder(path)))
    }
}

/// Who may change may make, and who may bring back from mass storage may read what came.
fn implies(granted: Action, asked: Action) -> bool {
    granted == asked
        || (granted, asked) == (Action::Modify, Action::Create)
        || (granted, asked) == (Action::Stage, Action::Read)
}

/// Whether `path` is `top` or below it: whole pieces, so that `/run70` is not below `/run7`.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// A path without empty pieces and without `/` at its end; the top is empty.
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
    fn a_right_is_for_a_path_and_what_is_below() {
        let rights = Rights::of_scope("storage.read:/store openid storage.modify:/store/run7", "");
        assert!(rights.may(Action::Read, b"/store"));
        assert!(rights.may(Action::Read, b"/store/a/b"));
        assert!(!rights.may(Action::Read, b"/storeroom"));
        assert!(!rights.may(Action::Read, b"/"));
        assert!(rights.may_pass(b"/"));
        assert!(!rights.may_pass(b"/other"));
        assert!(rights.may(Action::Create, b"/store/run7/x"));
        assert!(!rights.may(Action::Modify, b"/store/run70"));
    }

    #[test]
    fn scopes_are_below_the_base_of_their_issuer() {
        let rights = Rights::of_scope("storage.read:/", "/lhc.fed");
        assert!(rights.may(Action::Read, b"/lhc.fed/run7.root"));
        assert!(!rights.may(Action::Read, b"/other"));
        for climbing in ["storage.read:/../other", "storage.read:other", "storage.read:.."] {
            assert_eq!(Rights::of_scope(climbing, "/lhc.fed"), Rights::default());
        }
    }

    #[test]
    fn everything_is_everywhere() {
        let all = Rights::everything();
        assert!(
            [Action::Read, Action::Create, Action::Modify, Action::Stage]
                .iter()
                .all(|action| all.may(*action, b"/") && all.may(*action, b"/a/b"))
        );
        assert!(!Rights::reading().may(Action::Modify, b"/a"));
    }
}
