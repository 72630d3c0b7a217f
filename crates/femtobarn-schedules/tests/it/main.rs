//! Each scenario in every order of its threads' steps.

use femtobarn_schedules::{local, locks, logical, prefetch};

#[test]
fn every_commit_of_a_group_has_one_result() {
    local::every_commit_has_one_result(3, 3);
}

#[test]
fn a_change_is_durable_when_it_is_acknowledged_and_no_committer_sleeps_on() {
    locks::changes_are_durable_when_they_are_acknowledged(2, 3);
}

#[test]
fn a_sync_is_shared_by_three_committers() {
    locks::changes_are_durable_when_they_are_acknowledged(3, 1);
}

#[test]
fn what_is_read_while_another_process_appends_is_durable() {
    locks::what_is_read_is_durable(2);
}

#[test]
fn owners_of_a_lock_exclude_each_other() {
    logical::owners_exclude_each_other(3, 3);
}

#[test]
fn a_cycle_of_waits_is_refused() {
    logical::a_cycle_of_waits_is_refused(3);
}

#[test]
fn a_cycle_of_waits_is_refused_after_one_was_given_up() {
    logical::a_cycle_of_waits_is_refused_after_one_was_given_up(2);
}

#[test]
fn readers_of_a_prefetched_buffer_have_its_bytes_or_none() {
    for answers in [true, false] {
        prefetch::readers_of_a_buffer_have_its_bytes_or_none(2, answers, 3);
    }
}

#[test]
#[ignore = "takes seconds; `make test-long` runs it"]
fn all_of_this_holds_in_more_orders() {
    local::every_commit_has_one_result(4, 2);
    locks::changes_are_durable_when_they_are_acknowledged(2, 4);
    locks::what_is_read_is_durable(3);
    logical::owners_exclude_each_other(4, 2);
}
