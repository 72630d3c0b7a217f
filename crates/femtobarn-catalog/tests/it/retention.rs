//! Tags, retention, the horizon and pins.

use std::path::Path;

use femtobarn_catalog::{Csn, ErrorKind, KeptSnapshots, LocalCatalogue, Retention, SnapshotPins};

use crate::child::{Player, listen, say};
use crate::federation::Federation;

#[test]
fn a_tag_names_a_snapshot_until_it_is_dropped() {
    let fed = Federation::new();
    let csn = fed.catalog.head().unwrap();
    let tag = fed.catalog.create_tag("winter26-v2", csn, "for the papers").unwrap();
    assert_eq!(fed.catalog.tag("winter26-v2").unwrap(), tag);
    assert_eq!((tag.csn, tag.message.as_str()), (csn, "for the papers"));
    assert!(!tag.user.is_empty() && tag.created_us > 0);
    let again = fed.catalog.create_tag("winter26-v2", csn, "").unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Exists);
    let missing = fed.catalog.tag("winter26").unwrap_err();
    assert!(missing.to_string().contains("did you mean \"winter26-v2\"?"), "{missing}");
    let future = fed.catalog.create_tag("next", Csn(csn.0 + 1), "").unwrap_err();
    assert_eq!(future.kind(), ErrorKind::NotFound);
    assert_eq!(fed.catalog.create_tag("a/b", csn, "").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fed.catalog.tags().unwrap(), [tag]);
    fed.catalog.drop_tag("winter26-v2").unwrap();
    assert!(fed.catalog.tags().unwrap().is_empty());
    assert_eq!(fed.catalog.drop_tag("winter26-v2").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn retention_keeps_the_commits_of_either_rule() {
    let fed = Federation::new();
    let head = (0..9).map(|n| fed.container(&format!("c{n}"))).count() as u64 + 1;
    assert_eq!(fed.catalog.retention().unwrap(), Retention::default());
    assert_eq!(fed.catalog.retained_from().unwrap(), Csn::ZERO);
    let retain = |keep_commits, keep_days| {
        let retention = Retention { keep_commits, keep_days };
        fed.catalog.set_retention(retention).unwrap();
        assert_eq!(fed.catalog.retention().unwrap(), retention);
        fed.catalog.retained_from().unwrap()
    };
    assert_eq!(retain(Some(1), None), Csn(head));
    assert_eq!(retain(Some(4), None), Csn(head - 3));
    assert_eq!(retain(Some(99), None), Csn::ZERO);
    assert_eq!(retain(None, Some(0)), Csn(head));
    assert_eq!(retain(Some(2), Some(0)), Csn(head - 1));
    assert_eq!(retain(Some(2), Some(1)), Csn::ZERO);
    let none = Retention { keep_commits: Some(0), keep_days: None };
    assert_eq!(fed.catalog.set_retention(none).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn only_tagged_and_pinned_snapshots_exist_before_the_horizon() {
    let fed = Federation::new();
    for number in 0..9 {
        fed.container(&format!("c{number}"));
    }
    let head = fed.catalog.head().unwrap();
    fed.catalog.create_tag("tagged", Csn(3), "").unwrap();
    let pinned = fed.catalog.pin(Csn(5)).unwrap();
    let kept = fed.catalog.raise_horizon(Csn(7)).unwrap();
    assert_eq!(kept, KeptSnapshots { horizon: Csn(7), csns: vec![Csn(3), Csn(5)] });
    let exists = |csn| fed.catalog.snapshot_exists(Csn(csn)).unwrap();
    assert_eq!((1..=9).filter(|csn| exists(*csn)).collect::<Vec<_>>(), [3, 7, 8, 9]);
    let error = fed.catalog.pin(Csn(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("before the horizon 7"), "{error}");
    assert_eq!(fed.catalog.create_tag("late", Csn(4), "").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fed.catalog.pin_head().unwrap().0, head);
    drop(pinned);
    assert_eq!(
        fed.catalog.raise_horizon(Csn(2)).unwrap().horizon,
        Csn(7),
        "the horizon never goes down"
    );
    assert_eq!(fed.catalog.raise_horizon(Csn::MAX).unwrap().horizon, head);
    assert_eq!(fed.catalog.horizon().unwrap(), head);
}

#[test]
fn a_version_is_needed_by_the_snapshots_before_the_next_version() {
    let kept = KeptSnapshots { horizon: Csn(10), csns: vec![Csn(3), Csn(5)] };
    let needs = |since, until| kept.needs(Csn(since), until);
    assert!(needs(1, None) && needs(12, None));
    assert!(needs(2, Some(Csn(4))) && needs(3, Some(Csn(4))) && needs(4, Some(Csn(6))));
    assert!(!needs(1, Some(Csn(3))) && !needs(4, Some(Csn(5))) && !needs(6, Some(Csn(10))));
    assert!(needs(6, Some(Csn(11))) && needs(10, Some(Csn(11))) && needs(20, Some(Csn(21))));
}

#[test]
fn pins_are_counted_and_seen_by_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locks")).unwrap();
    let (pins, others) = (SnapshotPins::new(folder.path()), SnapshotPins::new(folder.path()));
    assert!(others.pinned_below(Csn::MAX).unwrap().is_empty());
    let guards: Vec<_> =
        [4, 5, 6, 6, 9, 1 << 40].map(|csn| pins.pin(Csn(csn)).unwrap()).into_iter().collect();
    let other = others.pin(Csn(5)).unwrap();
    let below = |csn| others.pinned_below(Csn(csn)).unwrap();
    assert_eq!(below(10), [4, 5, 6, 9].map(Csn));
    assert_eq!(below(5), [Csn(4)]);
    assert!(below(4).is_empty());
    assert_eq!(others.pinned_below(Csn::MAX).unwrap().last(), Some(&Csn(1 << 40)));
    let copy = guards[2].clone();
    drop(guards);
    assert_eq!((copy.csn(), below(10)), (Csn(6), vec![Csn(5), Csn(6)]));
    drop((copy, other));
    assert!(below(10).is_empty());
}

#[test]
fn the_pin_of_a_killed_process_is_gone_and_a_forked_child_has_its_own() {
    let fed = Federation::new();
    let mut player = Player::start("pin and fork", &fed.folder);
    assert_eq!(player.hear().unwrap(), "the child has its own pin");
    assert_eq!(player.hear().unwrap(), "pinned");
    assert_eq!(fed.catalog.pins().pinned_below(Csn::MAX).unwrap(), [Csn(1)]);
    player.kill();
    assert!(fed.catalog.pins().pinned_below(Csn::MAX).unwrap().is_empty());
}

#[test]
fn pins_do_nothing_in_a_read_only_folder() {
    let pins = SnapshotPins::new(Path::new("/proc/nowhere"));
    let guard = pins.pin(Csn(1)).unwrap();
    assert!(pins.pinned_below(Csn::MAX).unwrap().is_empty());
    drop(guard);
}

/// Role: forks with a pin, and then waits to be killed.
pub(crate) fn pin_and_fork(folder: &Path) {
    use nix::sys::wait::{WaitStatus, waitpid};
    let catalog = LocalCatalogue::open(folder).unwrap();
    let guard = catalog.pin(Csn(1)).unwrap();
    let pinned = || catalog.pins().pinned_below(Csn::MAX).unwrap();
    // SAFETY: the other thread of this process is the test harness, which waits for this one and
    // holds nothing that the child needs.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let own = catalog.pins().pin(Csn(2)).unwrap();
            let both = pinned() == [Csn(1), Csn(2)];
            drop((guard, own));
            // Only the parent's pin is left.
            std::process::exit(if both && pinned() == [Csn(1)] { 42 } else { 1 });
        }
        nix::unistd::ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 42));
            say("the child has its own pin");
            say("pinned");
            listen();
            drop(guard);
        }
    }
}
