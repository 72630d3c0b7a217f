//! A catalogue that was open before a fork.

use std::path::Path;
use std::time::Duration;

use femtobarn_catalog::{Csn, LocalCatalogue, LockTable};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::child::{Player, say};
use crate::federation::{Federation, new_container};

#[test]
fn a_forked_child_uses_the_catalogue_as_its_parent_does() {
    let fed = Federation::new();
    let mut player = Player::start("fork", &fed.folder);
    assert_eq!(player.hear().unwrap(), "both committed");
    assert_eq!(fed.catalog.containers(fed.database, Csn::MAX).unwrap().len(), 6);
}

/// Role: forks with an open catalogue, with and without connections, and uses it in parent and child.
pub(crate) fn fork_and_use(folder: &Path) {
    let catalog = LocalCatalogue::open(folder).unwrap();
    let database = catalog.database("run7", Csn::MAX).unwrap().id;
    let locks = LockTable::new(folder);
    let (one, wait) = (femtobarn_catalog::ContainerId(1), Duration::from_millis(10));
    for round in ["connected", "disconnected"] {
        new_container(&catalog, database, &format!("{round}_before")).unwrap();
        if round == "disconnected" {
            catalog.disconnect();
        }
        let guard = locks.lock_container(database, one, wait).unwrap();
        // SAFETY: the other thread of this process is the test harness, which waits for this one
        // and holds nothing that the child needs.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                drop(guard);
                let held = locks.lock_container(database, one, wait).is_err();
                let done = new_container(&catalog, database, &format!("{round}_child")).is_ok();
                std::process::exit(if held && done { 42 } else { 1 });
            }
        };
        new_container(&catalog, database, &format!("{round}_parent")).unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 42));
        drop(guard);
    }
    say("both committed");
}
