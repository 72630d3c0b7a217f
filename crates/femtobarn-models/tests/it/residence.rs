//! The file of a sealed database leaves the disk only when it can be staged again, and is staged unchanged or not at
//! all.

use femtobarn_models::residence::{ResidenceGuard, SealedFile};

use super::{holds, is_violated};

#[test]
fn a_sealed_file_is_never_lost_and_comes_back_as_a_whole() {
    let reached = ["evicted", "staged", "a copy was found to be lost", "copied again"];
    holds(&SealedFile::default(), &reached);
}

#[test]
fn each_guard_of_residence_is_needed() {
    for guard in ResidenceGuard::ALL {
        is_violated(&SealedFile { without: Some(guard) });
    }
}
