//! One leader of each generation accepts changes, and a promotion that is not forced loses no acknowledged commit.

use femtobarn_models::succession::{Succession, SuccessionGuard};

use super::{holds, is_violated};

#[test]
fn one_leader_of_each_generation_takes_changes() {
    let both = ["promoted", "leads again", "promoted after another copy"];
    holds(&Succession { is_forced: false, without: None }, &both);
    holds(&Succession { is_forced: true, without: None }, &[&both[..], &["two leaders"]].concat());
}

#[test]
fn each_guard_of_succession_is_needed() {
    for guard in SuccessionGuard::ALL {
        let is_forced = matches!(
            guard,
            SuccessionGuard::ChecksHistory
                | SuccessionGuard::ChecksGeneration
                | SuccessionGuard::LeadsLaterAgain
        );
        is_violated(&Succession { is_forced, without: Some(guard) });
    }
}
