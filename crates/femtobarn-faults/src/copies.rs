//! Scripts that run at a leader, while a copy in the watched folder follows; and the checks of the copy after a crash.
//!
//! 1. The copy is at a commit of the leader, not before the acknowledged one, with the leader's contents as of it.
//! 2. The copy can be promoted without the leader, and is then a federation like any other.

use std::path::Path;
use std::time::Duration;

use femtobarn::{ErrorKind, Federation, FollowOptions, Follower, promote};
use femtobarn_server::Server;
use femtobarn_server::config::Config;

use crate::script::{Runner, Script};
use crate::verify::{self, Acknowledged, acknowledgement, say};

/// The scripts that are followed.
pub const NAMES: [&str; 7] =
    ["large", "two databases", "update", "names", "short lives", "vacuum", "seal"];

/// Runs a script in the folder `leader`, and follows it into `copy`. Tells the acknowledgements of the copy.
///
/// # Errors
/// The first step that fails.
pub fn run(
    script: &Script,
    leader: &Path,
    copy: &Path,
    acknowledge: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut runner = Runner::create(leader).map_err(say("leader"))?;
    let mut config = Config::from_toml("address = '127.0.0.1'\nport = 0")?;
    config.export(leader.to_owned(), "/test".to_owned());
    let server = Server::start(config).map_err(say("server"))?;
    let url = format!("root://{}//test", server.address());
    let options = FollowOptions { name: "copy".to_owned(), ..FollowOptions::default() };
    let mut follower = Follower::open(&url, copy, options).map_err(say("cannot follow"))?;
    acknowledge("created");
    for step in &script.steps {
        let csn = runner.run(step).map_err(say("leader"))?;
        loop {
            let state = follower.step(Duration::ZERO).map_err(say("cannot follow"))?;
            if state.at == state.head {
                break;
            }
        }
        acknowledge(&acknowledgement(csn));
    }
    drop(follower);
    server.stop();
    Ok(())
}

/// Verifies the copy in a folder after a crash: promotes it, since its leader is gone, and changes it.
///
/// # Errors
/// The first violation.
pub fn verify(
    folder: &Path,
    script: &Script,
    acknowledged: &Acknowledged,
    thorough: bool,
) -> Result<(), String> {
    let found = Federation::open(folder);
    if !acknowledged.is_created && found.is_err() {
        return Ok(());
    }
    let expected = [acknowledged.steps.len(), acknowledged.steps.len() + 1];
    let snapshot = found.and_then(|copy| copy.snapshot(None)).map_err(say("cannot open it"))?;
    let contents = verify::contents(&snapshot)?;
    let is_one =
        |steps: &usize| *steps <= script.steps.len() && contents == script.contents_after(*steps);
    if !expected.iter().any(is_one) {
        return Err(format!("the copy is not as after {expected:?} steps"));
    }
    drop(snapshot);
    match promote(folder, "root://nobody//test", true) {
        Ok(_) => {}
        // Nothing was followed yet.
        Err(error) if !acknowledged.is_created && error.kind() == ErrorKind::Denied => {}
        Err(error) => return Err(say("cannot promote it")(error)),
    }
    verify::verify(folder, script, acknowledged, thorough)
}
