//! A database that moves to another server keeps all its commits.

use femtobarn_models::moves::{Moves, MovesGuard};

use super::{holds, is_violated};

#[test]
fn a_moved_database_has_all_commits() {
    let reached =
        ["moved", "all commits at the new home", "moved after another process took the name"];
    holds(&Moves::default(), &reached);
}

#[test]
fn each_guard_of_moves_is_needed() {
    for guard in MovesGuard::ALL {
        is_violated(&Moves { without: Some(guard) });
    }
}
