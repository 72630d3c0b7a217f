//! Credentials for a server's security protocols: `unix`, which only names the user, and bearer tokens (`ztn`).
//!
//! ```text
//! unix  "unix" 0  user [" " group] 0
//! ztn   "ztn" 0  version u8  'T'  zero[2]  length u16  token[length]  0
//! ```
//!
//! **Invariant:** a token is sent over TLS only.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::unistd::{Group, Uid, User, getgid, getuid};

use super::options::{Options, Token};
use crate::request::Auth;

/// The largest token file, in bytes, that is read.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// The user's name: the one of the options, or that of the process's user id.
pub(super) fn user_name(options: &Options) -> String {
    let known = || User::from_uid(getuid()).ok().flatten().map(|user| user.name);
    options.user.clone().or_else(known).unwrap_or_else(|| getuid().to_string())
}

/// The credentials for one of the server's security protocols, with the token that was found, or the reason why none
/// can be made.
pub(super) fn credentials(
    protocol: &str,
    options: &Options,
    is_encrypted: bool,
    token: Option<&Token>,
) -> std::result::Result<Auth, String> {
    if options.without_credentials {
        return Err(format!("{protocol}: this client sends no credentials"));
    }
    match protocol {
        "unix" => Ok(unix(&user_name(options))),
        "ztn" if !is_encrypted => Err("ztn: tokens are sent over TLS only".to_owned()),
        "ztn" => match token {
            Some(token) => Ok(ztn(token)),
            None => Err("ztn: no token found; set BEARER_TOKEN or BEARER_TOKEN_FILE".to_owned()),
        },
        other => Err(format!("{other}: not supported by this client")),
    }
}

fn unix(user: &str) -> Auth {
    let group = Group::from_gid(getgid()).ok().flatten().map(|group| format!(" {}", group.name));
    let text = format!("unix\0{user}{}\0", group.unwrap_or_default());
    Auth { protocol: *b"unix", credentials: text.into() }
}

/// The credentials that show a token.
pub(super) fn ztn(token: &Token) -> Auth {
    let text = token.0.as_bytes();
    // `trimmed` accepts no longer token, so the fallback is never taken.
    let length = u16::try_from(text.len() + 1).unwrap_or(u16::MAX);
    let head = [&b"ztn\0\0T\0\0"[..], &length.to_be_bytes()].concat();
    Auth { protocol: *b"ztn\0", credentials: Bytes::from([&head[..], text, &[0]].concat()) }
}

/// The token of the options, or otherwise the one that is found.
pub(super) fn token(options: &Options) -> Option<Token> {
    options.token.clone().or_else(options.find_token)
}

/// A token that was found.
#[derive(Clone, Debug)]
pub struct FoundToken {
    /// The variable of the environment that it is in, or the path of its file.
    pub place: PathBuf,
    /// The token.
    pub token: Token,
}

/// The token of this process: that of `BEARER_TOKEN`, or of the file that `BEARER_TOKEN_FILE` names, or of `bt_u<uid>`
/// in `XDG_RUNTIME_DIR` or otherwise in `/tmp` (WLCG Bearer Token Discovery 1.0). The last two are read only if the
/// file belongs to the user and no other user can write to it.
pub fn bearer_token() -> Option<FoundToken> {
    let uid = getuid();
    let found = |place, token| Some(FoundToken { place, token });
    let file = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let read_from = |path: PathBuf, owner| read(&path, owner).and_then(|token| found(path, token));
    let given = || found("BEARER_TOKEN".into(), trimmed(std::env::var("BEARER_TOKEN").ok()?)?);
    let named = || read_from(file("BEARER_TOKEN_FILE")?, None);
    let own = |folder: PathBuf| read_from(folder.join(format!("bt_u{uid}")), Some(uid));
    let in_session = || own(file("XDG_RUNTIME_DIR")?);
    given().or_else(named).or_else(in_session).or_else(|| own("/tmp".into()))
}

/// Reads a token from a file. If `owner` is given, the file must belong to that user and be writable by no
/// other.
fn read(path: &Path, owner: Option<Uid>) -> Option<Token> {
    let metadata = path.metadata().ok()?;
    let is_trusted =
        owner.is_none_or(|uid| metadata.uid() == uid.as_raw() && metadata.mode() & 0o22 == 0);
    if !is_trusted || metadata.len() > TOKEN_BYTES_MAX {
        return None;
    }
    trimmed(std::fs::read_to_string(path).ok()?)
}

fn trimmed(text: String) -> Option<Token> {
    let text = text.trim();
    let fits = !text.is_empty() && text.len() < usize::from(u16::MAX);
    fits.then(|| Token(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_the_bytes_that_servers_expect() {
        let (options, token) = (Options::default(), Token("abc".into()));
        let auth = credentials("ztn", &options, true, Some(&token)).unwrap();
        assert_eq!(auth.credentials, &b"ztn\0\0T\0\0\0\x04abc\0"[..]);
        assert!(credentials("ztn", &options, false, Some(&token)).is_err(), "a token without TLS");
        assert!(credentials("gsi", &options, true, Some(&token)).is_err());
        let none = Options { without_credentials: true, ..options };
        for protocol in ["unix", "ztn"] {
            assert!(credentials(protocol, &none, true, Some(&token)).is_err(), "{protocol}");
        }
        let options = Options { user: Some("ann".into()), ..Options::default() };
        let auth = credentials("unix", &options, false, None).unwrap();
        assert!(auth.credentials.starts_with(b"unix\0ann"));
    }
}
