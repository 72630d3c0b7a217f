//! Rights of a client: actions, each at a path and below it.

use std::fmt;

use percent_encoding::percent_decode;

/// An action, as in the scopes of bearer tokens: `storage.*` of the WLCG token profile 1.2, and `femtobarn.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read files and list folders.
    Read,
    /// Create files, folders and databases, without changing or removing existing ones.
    Create,
    /// Make a folder: where the client may create, and above that, since the folders that lead there may be missing.
    MakeFolder,
    /// Change, remove and create.
    Modify,
    /// Stage files from mass storage, and release them.
    Stage,
    /// Ask where files are, on disks or in mass storage.
    Poll,
    /// Write to files and databases that exist, without removing, replacing or renaming them.
    Write,
    /// Drop databases and containers of a federation.
    Drop,
    /// Make and drop tags of a federation, and set its retention.
    Tag,
    /// Make a copy of a federation its leader, which ends all changes here.
    Promote,
    /// Move databases between the servers of a federation, and drain servers.
    Manage,
}

impl Action {
    /// The scope that grants the action, if no right to files includes it.
    pub fn own_scope(self) -> Option<&'static str> {
        match self {
            Action::Promote => Some("femtobarn.promote"),
            Action::Manage => Some("femtobarn.manage"),
            Action::Read
            | Action::Create
            | Action::MakeFolder
            | Action::Modify
            | Action::Stage
            | Action::Poll
            | Action::Write
            | Action::Drop
            | Action::Tag => None,
        }
    }

    /// The action of a word of a scope, before its colon.
    fn of_word(name: &str, is_scitoken: bool) -> Option<Self> {
        Some(match name {
            "storage.read" => Action::Read,
            "storage.create" => Action::Create,
            "storage.modify" => Action::Modify,
            "storage.stage" => Action::Stage,
            "storage.poll" => Action::Poll,
            "femtobarn.write" => Action::Write,
            "femtobarn.drop" => Action::Drop,
            "femtobarn.tag" => Action::Tag,
            "femtobarn.promote" => Action::Promote,
            "femtobarn.manage" => Action::Manage,
            "read" if is_scitoken => Action::Read,
            "write" if is_scitoken => Action::Modify,
            _ => return None,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Create => "create",
            Action::MakeFolder => "make the folder",
            Action::Modify => "modify",
            Action::Stage => "stage",
            Action::Poll => "ask for the locality of",
            Action::Write => "write to",
            Action::Drop => "drop anything of",
            Action::Tag => "tag",
            Action::Promote => "promote a copy of",
            Action::Manage => "manage the servers of",
        })
    }
}

/// The rights of a client: actions, each at a path and everything below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    grants: Vec<Grant>,
}

/// An action at a path and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    action: Action,
    top: Vec<u8>,
    /// Whether the path was written with a trailing slash: then it is a folder's, and no file may be made there.
    is_folder: bool,
}

impl Rights {
    /// All actions everywhere.
    pub fn everything() -> Self {
        let operating = [Action::Promote, Action::Manage];
        let writing = [Action::Read, Action::Modify, Action::Stage];
        Rights::at("/", &[&writing[..], &operating].concat())
    }

    /// All actions everywhere, except promoting copies and managing servers.
    pub fn writing() -> Self {
        Rights::at("/", &[Action::Read, Action::Modify, Action::Stage])
    }

    /// Reading everywhere.
    pub fn reading() -> Self {
        Rights::at("/", &[Action::Read])
    }

    /// Actions at one path and below it.
    pub fn at(path: &str, actions: &[Action]) -> Self {
        let top = folder(path.as_bytes());
        let grant = |action: &Action| Grant { action: *action, top: top.clone(), is_folder: false };
        Rights { grants: actions.iter().map(grant).collect() }
    }

    /// The rights of a token's `scope`, which has words such as `storage.read:/store`, and, in a SciToken,
    /// `read:/store`. Paths are relative to `base`, and escaped as in URLs. Words of other services are ignored, and so
    /// are paths that are not absolute, lead up (`..`), or have a name that no file can have.
    ///
    /// `None` if no word is of this service: then the scope does not state the client's rights here.
    ///
    /// # Errors
    /// A text, if a word that needs a path has none: such a token must be refused as a whole.
    pub fn of_scope(scope: &str, base: &str, is_scitoken: bool) -> Result<Option<Self>, String> {
        let mut rights = None;
        for word in scope.split_ascii_whitespace() {
            let (name, path) = word.split_once(':').unwrap_or((word, ""));
            let Some(action) = Action::of_word(name, is_scitoken) else { continue };
            if path.is_empty() {
                return Err(format!("its scope has {name} without a path"));
            }
            let rights = rights.get_or_insert_with(Rights::default);
            rights.grants.extend(Grant::of(action, path, base));
        }
        Ok(rights)
    }

    /// The rights of words with the syntax of scopes, all of which must be of this service.
    ///
    /// # Errors
    /// A text that names the word that is not of this service, or has no path that files can have.
    pub fn of_words(words: &[String]) -> Result<Self, String> {
        let grants = words.iter().map(|word| {
            let (name, path) = word.split_once(':').unwrap_or((word, ""));
            let grant = Action::of_word(name, false).and_then(|action| Grant::of(action, path, ""));
            grant.ok_or_else(|| {
                format!("{word:?} is not a right: write it as in scopes of tokens, such as \"storage.read:/lhc.fed\"")
            })
        });
        Ok(Rights { grants: grants.collect::<Result<_, _>>()? })
    }

    /// The union of these rights and `other`.
    pub fn and(mut self, other: &Rights) -> Self {
        self.grants.extend_from_slice(&other.grants);
        self
    }

    /// Whether `action` is allowed at a path, which has to be absolute. Nothing is allowed at a path with `.` or `..`: it
    /// is not the path of the file that it leads to.
    pub fn may(&self, action: Action, path: &[u8]) -> bool {
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        !path.split(|byte| *byte == b'/').any(is_dots)
            && self.grants.iter().any(|Grant { action: granted, top, is_folder }| {
                let leads_there = action == Action::MakeFolder && is_below(top, path);
                let is_no_file = *is_folder && action == Action::Create && path == top;
                implies(*granted, action) && (is_below(path, top) || leads_there) && !is_no_file
            })
    }
}

impl Grant {
    /// The action at the path of a word; `None` if no file can have that path.
    fn of(action: Action, path: &str, base: &str) -> Option<Self> {
        let path = scope_path(path)?;
        let is_folder = path.ends_with(b"/") || path.ends_with(b"/.");
        Some(Grant { action, top: folder(&[base.as_bytes(), b"/", &path].concat()), is_folder })
    }
}

/// Whether a granted action includes another one. Changing includes creating, writing, dropping and tagging; any action
/// on a file includes asking for its location. Staging does not include reading. Promoting and managing are included in
/// no other action, and include none.
fn implies(granted: Action, asked: Action) -> bool {
    use Action::{Create, Drop, MakeFolder, Modify, Poll, Tag, Write};
    let is_of_files = granted.own_scope().is_none() && !matches!(granted, Drop | Tag);
    granted == asked
        || (granted == Modify && matches!(asked, Create | MakeFolder | Write | Drop | Tag))
        || (granted == Create && asked == MakeFolder)
        || (is_of_files && asked == Poll)
}

/// The unescaped path of a scope; `None` if it is not absolute or has a name that would mean another path.
fn scope_path(path: &str) -> Option<Vec<u8>> {
    let mut found = vec![];
    for name in path.strip_prefix('/')?.split('/') {
        let mut rest = name.split('%');
        let is_escape = |part: &str| {
            part.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        rest.next();
        if !rest.all(is_escape) {
            return None;
        }
        let name: Vec<u8> = percent_decode(name.as_bytes()).collect();
        if name == b".." || name.contains(&b'/') || name.contains(&0) {
            return None;
        }
        found.push(b'/');
        found.extend_from_slice(&name);
    }
    Some(found)
}

/// Whether `path` is `top` or below it. Names are compared whole: `/run70` is not below `/run7`.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// A path without empty names and trailing slash; the top is empty.
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

    fn rights(scope: &str, base: &str) -> Rights {
        Rights::of_scope(scope, base, false).expect("all words have paths").unwrap_or_default()
    }

    #[test]
    fn a_right_holds_for_its_path_and_everything_below() {
        let rights = rights("storage.read:/store openid storage.modify:/store/run7", "");
        assert!(rights.may(Action::Read, b"/store"));
        assert!(rights.may(Action::Read, b"/store/a/b"));
        assert!(!rights.may(Action::Read, b"/storeroom"));
        assert!(!rights.may(Action::Read, b"/"));
        assert!(rights.may(Action::Read, b"/store/..a/.b"));
        for climbing in [&b"/store/../other"[..], b"/store/a/..", b"/store/./a", b"/store/."] {
            assert!(!rights.may(Action::Read, climbing));
        }
        assert!(rights.may(Action::Create, b"/store/run7/x"));
        assert!(!rights.may(Action::Modify, b"/store/run70"));
    }

    #[test]
    fn paths_in_scopes_are_relative_to_the_issuers_base() {
        let relative = rights("storage.read:/", "/lhc.fed");
        assert!(relative.may(Action::Read, b"/lhc.fed/run7.root"));
        assert!(!relative.may(Action::Read, b"/other"));
        for climbing in
            ["/../other", "other", "..", "/%2e%2e/other", "/a%2Fb", "/%00", "/%zz", "/%2"]
        {
            assert_eq!(rights(&format!("storage.read:{climbing}"), "/lhc.fed"), Rights::default());
        }
        let escaped = rights("storage.read:/run%207//%41/.", "");
        assert!(
            escaped.may(Action::Read, b"/run 7/A/x") && !escaped.may(Action::Read, b"/run 7/a")
        );
    }

    #[test]
    fn the_right_to_create_includes_making_the_folders_above_its_path() {
        let creating = rights("storage.create:/new/run7 storage.read:/old/run7", "/top");
        for folder in [&b"/top/new/run7/a"[..], b"/top/new/run7", b"/top/new", b"/top"] {
            assert!(creating.may(Action::MakeFolder, folder));
        }
        for other in [&b"/top/new/run70"[..], b"/top/ne", b"/top/old", b"/to", b"/"] {
            assert!(!creating.may(Action::MakeFolder, other));
        }
        assert!(!creating.may(Action::Create, b"/top/new"));
    }

    #[test]
    fn a_slash_at_the_end_of_a_path_makes_it_a_folders() {
        for slashed in ["/new/", "/new//", "/new/."] {
            for scope in ["storage.create", "storage.modify"] {
                let rights = rights(&format!("{scope}:{slashed}"), "/top");
                assert!(!rights.may(Action::Create, b"/top/new"), "no file of this name");
                assert!(rights.may(Action::MakeFolder, b"/top/new"));
                assert!(rights.may(Action::Create, b"/top/new/x"));
                assert!(!rights.may(Action::Create, b"/top/newer"));
            }
        }
        assert!(rights("storage.create:/new", "/top").may(Action::Create, b"/top/new"));
        assert!(rights("storage.read:/new/", "/top").may(Action::Read, b"/top/new"));
    }

    #[test]
    fn words_that_need_a_path_are_refused_without_one() {
        for scope in ["storage.read", "openid storage.modify:", "femtobarn.promote"] {
            assert!(Rights::of_scope(scope, "", false).is_err(), "{scope}");
        }
        assert_eq!(rights("openid read:/ write compute.read", ""), Rights::default());
        let scitoken = Rights::of_scope("read:/store write:/store/new", "", true);
        let scitoken = scitoken.expect("paths").expect("words of this service");
        assert!(
            scitoken.may(Action::Read, b"/store/x") && !scitoken.may(Action::Create, b"/store/x")
        );
        assert!(scitoken.may(Action::Modify, b"/store/new/x"));
    }

    #[test]
    fn staging_excludes_reading_and_every_right_includes_locating() {
        let staging = rights("storage.stage:/tape storage.create:/new storage.poll:/far", "");
        assert!(staging.may(Action::Stage, b"/tape/x") && !staging.may(Action::Read, b"/tape/x"));
        for known in [&b"/tape/x"[..], b"/new", b"/far/x"] {
            assert!(staging.may(Action::Poll, known));
        }
        assert!(!staging.may(Action::Poll, b"/other") && !staging.may(Action::Stage, b"/far/x"));
        assert!(!rights("femtobarn.promote:/", "").may(Action::Poll, b"/x"));
    }

    #[test]
    fn parts_of_the_right_to_modify_include_no_others() {
        use Action::{Create, Drop, Modify, Tag, Write};
        let all = [Create, Drop, Modify, Tag, Write];
        assert!(all.iter().all(|action| rights("storage.modify:/a", "").may(*action, b"/a")));
        for (word, own) in
            [("femtobarn.write", Write), ("femtobarn.drop", Drop), ("femtobarn.tag", Tag)]
        {
            let rights = rights(&format!("{word}:/a"), "");
            let allowed: Vec<_> = all.iter().filter(|action| rights.may(**action, b"/a")).collect();
            assert_eq!(allowed, [&own]);
            assert!(!rights.may(own, b"/ab") && !rights.may(Action::Read, b"/a"));
        }
    }

    #[test]
    fn words_of_settings_are_all_of_this_service() {
        let of = |word: &str| Rights::of_words(&[word.to_owned()]);
        assert!(of("femtobarn.drop:/a").expect("a right").may(Action::Drop, b"/a/b"));
        for wrong in
            ["", "read:/", "storage.read", "storage.read:a", "storage.all:/", "storage.read:/.."]
        {
            assert!(of(wrong).is_err_and(|what| what.contains("not a right")), "{wrong:?}");
        }
        let both = Rights::reading().and(&of("femtobarn.tag:/a").expect("a right"));
        assert!(both.may(Action::Read, b"/b") && both.may(Action::Tag, b"/a"));
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
            let own = rights(&format!("{}:/", action.own_scope().unwrap()), "/lhc.fed");
            assert!(own.may(action, b"/lhc.fed"));
            assert!(!own.may(action, b"/other.fed"));
            assert!(!own.may(Action::Modify, b"/lhc.fed"));
            assert!(!own.may(Action::Read, b"/lhc.fed"));
            assert!(!rights(all_of_storage, "").may(action, b"/lhc.fed"));
        }
    }
}
