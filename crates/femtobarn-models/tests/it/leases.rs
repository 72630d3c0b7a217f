//! A server relies on its lease only while no other server can have taken its databases over.

use femtobarn_models::leases::{Leases, LeasesGuard};

use super::{holds, is_violated};

#[test]
fn a_home_with_a_lease_stays_the_home() {
    let reached = [
        "the other server took over",
        "the first server took over again",
        "a lease is over by the clock of its server",
    ];
    holds(&Leases::default(), &reached);
}

#[test]
fn each_guard_of_leases_is_needed() {
    for guard in LeasesGuard::ALL {
        is_violated(&Leases { without: Some(guard) });
    }
}
