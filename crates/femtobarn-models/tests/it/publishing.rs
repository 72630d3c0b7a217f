//! A transaction is published at most once, and its client learns whether it was.

use femtobarn_models::publishing::{Publication, PublishingGuard};

use super::{holds, is_violated};

#[test]
fn a_transaction_is_published_once_and_its_client_learns_the_outcome() {
    let both =
        ["committed at once", "committed when asked again", "in doubt", "refused at the home"];
    let at_entry = ["committed at the entry", "refused at the entry", "two commits"];
    holds(&Publication { is_alone: true, without: None }, &both);
    holds(&Publication { is_alone: false, without: None }, &[&both[..], &at_entry].concat());
}

#[test]
fn each_guard_of_publishing_is_needed() {
    for guard in PublishingGuard::ALL {
        // A server that joins waits for the COMMIT of its last process.
        let is_alone = guard == PublishingGuard::LookUpUnderLock;
        is_violated(&Publication { is_alone, without: Some(guard) });
    }
}
