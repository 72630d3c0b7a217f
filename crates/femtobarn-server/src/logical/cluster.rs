//! Reports this server to the `cmsd` on its machine, if it is a data server of an XRootD cluster.
//!
//! 1. While this server is logged in, `cmsd` reports to the managers that it is up, and its port. The end of the
//!    connection, from either side, logs the server out; it logs in again when `cmsd` is back.
//! 2. `cmsd` looks for files itself, in a folder of its own settings. It is informed of names that appear and vanish,
//!    since managers cache names for hours.
//! 3. No request waits for `cmsd`. Changes while it is offline are not reported: managers ask again when it is back.
//!    Nor are names with spaces and control characters, which its lines cannot have, nor changes that it is too slow to
//!    accept: a client that is sent here in vain makes its manager ask.
//!
//! Source: `XrdCmsAdmin.cc` and `XrdCmsFinder.cc` of XRootD 5.5, since there is no specification.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::physical::StoragePath;

/// Between two attempts to log in.
const INTERVAL: Duration = Duration::from_secs(2);
/// `cmsd` does not answer a login, but closes the connection at once if it refuses it.
const REFUSAL_MAX: Duration = Duration::from_secs(1);
/// Lines that wait for `cmsd`.
const LINES_MAX: usize = 1024;
/// Bytes of a path in a line, which is `cmsd`'s own limit.
const PATH_BYTES_MAX: usize = 1024;

/// A server's place in a cluster.
pub struct Membership {
    /// The socket on which `cmsd` listens for its server.
    socket: PathBuf,
    lines: Receiver<String>,
    login: ClusterLogin,
}

/// Whether a server is logged in.
#[derive(Clone, Debug)]
pub struct ClusterLogin(Arc<Mutex<Option<String>>>);

impl ClusterLogin {
    /// Why the server is not logged in; `None` if it is.
    pub fn why_not(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Where to report names that appear and vanish; by default, nowhere.
#[derive(Clone, Debug, Default)]
pub struct NameNews(Option<Sender<String>>);

impl NameNews {
    /// Reports a new file or folder.
    pub fn appears(&self, path: &StoragePath) {
        self.tell("newfn", path);
    }

    /// Reports a new file or folder, as [`appears`](Self::appears) does, whose parent folders may be new, too.
    pub fn appears_with_folders(&self, path: &StoragePath) {
        path.folders_above().for_each(|folder| self.appears(&folder));
        self.appears(path);
    }

    /// Reports that a file or folder no longer exists.
    pub fn vanishes(&self, path: &StoragePath) {
        self.tell("rmdid", path);
    }

    fn tell(&self, word: &str, path: &StoragePath) {
        let Some(lines) = &self.0 else { return };
        let Ok(text) = std::str::from_utf8(path.as_bytes()) else { return };
        let is_word = !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
        if is_word && text.len() < PATH_BYTES_MAX {
            // It fails if too many lines wait, or nothing receives them any more.
            let _ = lines.try_send(format!("{word} {text}\n"));
        }
    }
}

impl Membership {
    /// The login of a server at the `cmsd` that listens on this socket, and the channel for its names.
    pub fn new(socket: PathBuf) -> (Self, NameNews) {
        let (news, lines) = channel(LINES_MAX);
        let login = ClusterLogin(Arc::new(Mutex::new(Some(
            "this server has not logged in at cmsd yet".to_owned(),
        ))));
        (Membership { socket, lines, login }, NameNews(Some(news)))
    }

    /// Whether the server is logged in, from now on.
    pub fn login(&self) -> ClusterLogin {
        self.login.clone()
    }

    /// Stays logged in as a server with this port. Never returns; dropping the future logs the server out.
    pub async fn hold(mut self, port: u16) {
        let mut logged = String::new();
        loop {
            let socket = self.socket.display().to_string();
            let why = match self.log_in(port).await {
                Ok(stream) => {
                    tracing::info!(socket, port, "logged in at cmsd");
                    *self.login.0.lock() = None;
                    logged.clear();
                    let error = self.report_all(stream).await;
                    format!("the connection to cmsd ended, {error}")
                }
                Err(error) => format!("cannot log in at cmsd, {error}"),
            };
            *self.login.0.lock() = Some(why.clone());
            if why != logged {
                tracing::warn!(socket, why, "the cluster sends no clients to this server");
                logged = why;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn log_in(&mut self, port: u16) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        // Earlier changes are outdated: managers ask again.
        while self.lines.try_recv().is_ok() {}
        let login = format!("login p {} port {port}\n", std::process::id());
        stream.write_all(login.as_bytes()).await?;
        match tokio::time::timeout(REFUSAL_MAX, end(&mut stream)).await {
            Ok(error) => Err(error),
            Err(_) => Ok(stream),
        }
    }

    /// Reports names until the connection ends; returns why it ended.
    async fn report_all(&mut self, mut stream: UnixStream) -> io::Error {
        let (mut incoming, mut outgoing) = stream.split();
        loop {
            tokio::select! {
                error = end(&mut incoming) => return error,
                Some(line) = self.lines.recv() => {
                    if let Err(error) = outgoing.write_all(line.as_bytes()).await {
                        return error;
                    }
                }
            }
        }
    }
}

/// Reads and ignores the bytes from `cmsd` until the connection ends; returns why it ended.
async fn end(incoming: &mut (impl AsyncReadExt + Unpin)) -> io::Error {
    let mut ignored = [0; 256];
    loop {
        match incoming.read(&mut ignored).await {
            Ok(0) => {
                let what = "cmsd closed the connection; does it have another server, or is its role not server?";
                return io::Error::new(io::ErrorKind::ConnectionAborted, what);
            }
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader, Lines};
    use tokio::net::UnixListener;

    use super::*;

    fn path(text: &str) -> StoragePath {
        StoragePath::new(text.as_bytes()).expect("a path")
    }

    async fn next_login(listener: &UnixListener) -> Lines<BufReader<UnixStream>> {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut lines = BufReader::new(stream).lines();
        let login = lines.next_line().await.expect("a line").expect("a login");
        assert_eq!(login, format!("login p {} port 1094", std::process::id()));
        lines
    }

    #[tokio::test]
    async fn names_are_reported_and_a_lost_login_is_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("admin");
        let (membership, news) = Membership::new(socket.clone());
        news.appears(&path("/before"));
        let login = membership.login();
        assert!(login.why_not().is_some(), "nobody logged in");
        let held = tokio::spawn(membership.hold(1094));
        let listener = UnixListener::bind(&socket).expect("a socket");
        // A refused login is repeated, too.
        drop(next_login(&listener).await);
        let mut lines = next_login(&listener).await;
        let why = login.why_not().expect("a reason");
        assert!(why.contains("does it have another server"), "{why}");
        for text in ["/a", "/with space", "/line\nsuspend", "/\u{85}next", "/b"] {
            news.appears(&path(text));
        }
        news.appears(&path(&"/long".repeat(PATH_BYTES_MAX / 5 + 1)));
        news.appears_with_folders(&path("/c/d"));
        news.vanishes(&path("/a"));
        for expected in ["newfn /a", "newfn /b", "newfn /c", "newfn /c/d", "rmdid /a"] {
            assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some(expected));
        }
        assert_eq!(login.why_not(), None);
        held.abort();
        assert_eq!(lines.next_line().await.expect("an end"), None, "it is logged out");
        // Reporting does not wait, even if lines are lost.
        (0..2 * LINES_MAX).for_each(|_| news.appears(&path("/c")));
        NameNews::default().appears(&path("/d"));
    }
}
