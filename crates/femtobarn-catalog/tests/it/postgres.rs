//! A PostgreSQL of this program's own, in a temporary folder, which is reached by its socket alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

/// The user who must give a password.
pub(crate) const LOCKED: &str = "locked";

pub(crate) struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    server: Option<Child>,
}

impl Postgres {
    /// Starts a server; none if this machine has no PostgreSQL.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: this machine has no PostgreSQL");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut postgres = Postgres { programs, folder, server: None };
        let made = postgres
            .command("initdb")
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"])
            .arg("--locale=C.UTF-8")
            .status()
            .unwrap();
        assert!(made.success());
        let rules = format!("local all {LOCKED} scram-sha-256\nlocal all all trust\n");
        fs::write(postgres.data().join("pg_hba.conf"), rules).unwrap();
        postgres.start_again();
        Some(postgres)
    }

    pub(crate) fn start_again(&mut self) {
        let server = self
            .command("postgres")
            .arg("-k")
            .arg(self.folder.path())
            .args(["-c", "listen_addresses=", "-c", "max_connections=200", "-c", "fsync=on"])
            .spawn()
            .unwrap();
        self.server = Some(server);
        let socket = self.folder.path().join(".s.PGSQL.5432");
        while UnixStream::connect(&socket).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server and all its sessions without anything being written, as a crash would.
    pub(crate) fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            kill(Pid::from_raw(server.id() as i32), Signal::SIGQUIT).unwrap();
            server.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    pub(crate) fn url_of(&self, login: &str) -> String {
        format!("postgresql://{login}@/postgres?host={}", self.folder.path().display())
    }

    /// Runs SQL as the administrator; what it answers.
    pub(crate) fn psql(&self, sql: &str) -> String {
        let ran = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "-qtA", "-U", "postgres", "-h"])
            .arg(self.folder.path())
            .args(["-c", sql])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A program with the folder of the data. The server refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-D").arg(self.data()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(self.folder.path());
        if Uid::effective().is_root() {
            let user = User::from_name("postgres").unwrap().expect("the user of PostgreSQL");
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.crash();
    }
}

/// The folder of the newest PostgreSQL's programs.
fn programs() -> Option<PathBuf> {
    let has_all = |folder: &Path| {
        ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).exists())
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut packaged: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    packaged.sort();
    let mut all = std::env::split_paths(&path).chain(packaged.into_iter().rev());
    all.find(|folder| has_all(folder))
}
