//! A PostgreSQL of this program's own, in a temporary folder, which is reached by its socket alone.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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
    pub(crate) port: u16,
    /// Settings of the server, which hold from its next start on.
    pub(crate) settings: Vec<String>,
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
        let mut postgres =
            Postgres { programs, folder, server: None, port: 5432, settings: vec![] };
        let made = postgres
            .command("initdb")
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"])
            .arg("--locale=C.UTF-8")
            .status()
            .unwrap();
        assert!(made.success());
        let rules = format!(
            "local all {LOCKED} scram-sha-256\nlocal all,replication all trust\nhost all all 127.0.0.1/32 trust\n"
        );
        fs::write(postgres.data().join("pg_hba.conf"), rules).unwrap();
        postgres.start_again();
        Some(postgres)
    }

    /// Starts a standby of this server, and makes it a synchronous one.
    pub(crate) fn start_standby(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let settings = vec!["wal_retrieve_retry_interval=100ms".to_owned()];
        let programs = self.programs.clone();
        let mut standby = Postgres { programs, folder, server: None, port: 5432, settings };
        let copied = standby
            .command("pg_basebackup")
            .args(["-U", "postgres", "-R", "--checkpoint=fast", "--no-sync", "-h"])
            .arg(self.folder.path())
            .status()
            .unwrap();
        assert!(copied.success());
        standby.start_again();
        self.psql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.psql("SELECT pg_reload_conf()");
        while self.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "0"
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        standby
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.psql("SELECT pg_promote()"), "t");
    }

    pub(crate) fn start_again(&mut self) {
        let server = self
            .command("postgres")
            .arg("-k")
            .arg(self.folder.path())
            .args(["-p", &self.port.to_string()])
            .args(["-c", "listen_addresses=", "-c", "max_connections=200", "-c", "fsync=on"])
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .stderr(File::options().create(true).append(true).open(self.log()).unwrap())
            .spawn()
            .unwrap();
        self.server = Some(server);
        while !self.try_psql("SELECT 1").status.success() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the server again, at a free port of this machine.
    pub(crate) fn listen(&mut self) {
        self.crash();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        self.port = free.local_addr().unwrap().port();
        drop(free);
        self.settings.push("listen_addresses=127.0.0.1".to_owned());
        self.start_again();
    }

    /// Ends the server and all its sessions without anything being written, as a crash would.
    pub(crate) fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            kill(Pid::from_raw(server.id() as i32), Signal::SIGQUIT).unwrap();
            server.wait().unwrap();
        }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Sends a signal to the server and all its processes.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let id = self.server.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        for process in children.split_whitespace().chain([&*id.to_string()]) {
            // A process may have ended already.
            let _ = kill(Pid::from_raw(process.parse().unwrap()), signal);
        }
    }

    /// The folder of the socket.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    pub(crate) fn url_of(&self, login: &str) -> String {
        format!("postgresql://{login}@/postgres?host={}", self.folder.path().display())
    }

    /// Runs SQL as the administrator; returns the answer.
    pub(crate) fn psql(&self, sql: &str) -> String {
        let ran = self.try_psql(sql);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    /// Runs SQL as the administrator; returns the output, even of a failure.
    pub(crate) fn try_psql(&self, sql: &str) -> Output {
        Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "-qtA", "-U", "postgres", "-p", &self.port.to_string(), "-h"])
            .arg(self.folder.path())
            .args(["-c", sql])
            .output()
            .unwrap()
    }

    /// Gives a folder to the user of the server.
    pub(crate) fn own(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        if Uid::effective().is_root() {
            let user = User::from_name("postgres").unwrap().expect("the user of PostgreSQL");
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }

    /// The server's log.
    pub(crate) fn logged(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap()).into_owned()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
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
