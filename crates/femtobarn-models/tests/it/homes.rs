//! One server at a time is the home of a database, and a writer that has lost its lock commits nothing.

use femtobarn_models::homes::{Homes, HomesGuard};

use super::{holds, is_violated};

#[test]
fn one_server_is_the_home_and_lost_locks_commit_nothing() {
    let both = ["the other server took over", "the first server took over again", "two commits"];
    holds(&Homes { has_kernel_locks: false, without: None }, &both);
    let program = "a program works in the folder";
    holds(&Homes { has_kernel_locks: true, without: None }, &[&both[..], &[program]].concat());
}

#[test]
fn each_guard_of_homes_is_needed() {
    for guard in HomesGuard::ALL {
        let has_kernel_locks = guard == HomesGuard::ProgramFences;
        is_violated(&Homes { has_kernel_locks, without: Some(guard) });
    }
}
