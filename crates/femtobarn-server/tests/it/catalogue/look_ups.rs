//! Remote look-ups have the same results and errors as local ones.

use std::fmt::Debug;

use femtobarn_catalog::{
    BlobRange, Catalogue, Commit, ContainerId, Csn, DatabaseId, ErrorKind, Result, Retention,
};
use rntuple::tfile::{FileIdentity, Timestamp};
use uuid::Uuid;

use super::{LONG, Stage, connect, new_container};

/// Fails unless both have the same result, or errors with the same text.
#[track_caller]
fn same<T: Debug>(one: Result<T>, other: Result<T>) {
    let text = |result: Result<T>| match result {
        Ok(found) => format!("{found:?}"),
        Err(error) => format!("{:?}: {error}", error.kind()),
    };
    assert_eq!(text(one), text(other));
}

#[test]
fn remote_look_ups_equal_local_ones() {
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let (here, there): (&dyn Catalogue, &dyn Catalogue) = (&here, &there);
    let csn = stage.publish(there, None).unwrap();
    here.create_tag("best", csn, "so far").unwrap();
    assert_eq!((here.uuid(), here.name()), (there.uuid(), there.name()));
    assert_eq!(there.folder().to_str().unwrap(), stage.url());
    assert_eq!(there.local().unwrap_err().kind(), ErrorKind::Unsupported);
    let (database, container) = (stage.database, stage.container);
    let uuid = here.database_by_id(database, Csn::MAX).unwrap().uuid;
    let transaction = here.commit_by_csn(csn).unwrap().transaction;
    // Some snapshots twice, since the client caches look-ups.
    for at in [Csn::ZERO, Csn(1), csn, Csn::MAX, csn, Csn(1)] {
        same(here.databases(at), there.databases(at));
        same(here.containers(database, at), there.containers(database, at));
        same(here.newest_versions(database, at), there.newest_versions(database, at));
        same(here.version(database, container, at), there.version(database, container, at));
        same(here.database_by_uuid_at(uuid, at), there.database_by_uuid_at(uuid, at));
        same(here.find_commit(transaction, at), there.find_commit(transaction, at));
        same(here.commit_by_csn(at), there.commit_by_csn(at));
        for id in [database, DatabaseId(77)] {
            same(here.database_by_id(id, at), there.database_by_id(id, at));
            same(here.database_to_drop(id), there.database_to_drop(id));
        }
        for id in [container, ContainerId(77)] {
            same(here.container_by_id(database, id, at), there.container_by_id(database, id, at));
        }
        for name in ["run7", "run8", ""] {
            same(here.find_database(name, at), there.find_database(name, at));
            same(here.find_current_database(name), there.find_current_database(name));
            same(here.database(name, at), there.database(name, at));
        }
        for name in ["events", "evnts"] {
            same(here.find_container(database, name, at), there.find_container(database, name, at));
            same(here.container(database, name, at), there.container(database, name, at));
        }
    }
    same(here.head(), there.head());
    same(here.database_by_uuid(Uuid::nil()), there.database_by_uuid(Uuid::nil()));
    same(
        here.container_to_write(database, container),
        there.container_to_write(database, container),
    );
    same(
        here.container_to_write(database, ContainerId(77)),
        there.container_to_write(database, ContainerId(77)),
    );
    same(here.versions(database, container), there.versions(database, container));
    same(here.classes(), there.classes());
    for (name, version) in [("Event", None), ("Event", Some(1)), ("Event", Some(2)), ("Evnt", None)]
    {
        same(here.class(name, version), there.class(name, version));
    }
    same(here.link_targets(database, container), there.link_targets(database, container));
    same(here.history(10), there.history(10));
    same(here.history(1), there.history(1));
    for time_us in [0, i64::MAX] {
        same(here.snapshot_at_time(time_us), there.snapshot_at_time(time_us));
    }
    same(here.tags(), there.tags());
    same(here.tag("best"), there.tag("best"));
    same(here.tag("bst"), there.tag("bst"));
    same(here.retention(), there.retention());
    same(here.pin(Csn::MAX).map(|pin| pin.csn()), there.pin(Csn::MAX).map(|pin| pin.csn()));
}

#[test]
fn remote_changes_are_seen_locally() {
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let numbers = there.reserve_containers(3).unwrap();
    assert_eq!(numbers.len(), 3);
    assert_eq!(numbers[2].0, numbers[0].0 + 2);
    assert!(here.reserve_container().unwrap() > numbers[2]);
    assert!(there.reserve_containers(0).unwrap().is_empty());
    assert!(there.reserve_database().unwrap() < here.reserve_database().unwrap());

    let head = here.head().unwrap();
    let tag = there.create_tag("best", head, "so far").unwrap();
    assert_eq!(here.tag("best").unwrap(), tag);
    let taken = there.create_tag("best", head, "again").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    there.drop_tag("best").unwrap();
    assert_eq!(there.drop_tag("best").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(here.tags().unwrap().is_empty());

    let kept = Retention { keep_commits: Some(7), keep_days: None };
    there.set_retention(kept).unwrap();
    assert_eq!(here.retention().unwrap(), kept);

    let range = BlobRange { offset: 4096, size: 8192 };
    let unlocked = there.give_free_extent(stage.database, range).unwrap_err();
    assert_eq!(
        unlocked.kind(),
        ErrorKind::Conflict,
        "a client without the lock may have lost the space"
    );
    let owner = there.locks().owner();
    let _shared = owner.share_database(stage.database, super::LONG).unwrap();
    there.give_free_extent(stage.database, range).unwrap();
    let twice = there.give_free_extent(stage.database, range).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Invalid);
    assert_eq!(there.take_free_extent(stage.database, 9000).unwrap(), None);
    assert_eq!(there.take_free_extent(stage.database, 8000).unwrap(), Some(range));
    assert_eq!(here.take_free_extent(stage.database, 8000).unwrap(), None);
}

#[test]
fn long_answers_arrive_complete() {
    const COUNT: usize = 2500;
    let stage = Stage::new();
    let (here, there) = (stage.local(), stage.remote());
    let numbers = there.reserve_containers(COUNT as u32).unwrap();
    let new = numbers.iter().map(|id| new_container(stage.database, *id, &format!("c{id}")));
    let commit =
        Commit { transaction: Uuid::new_v4(), new_containers: new.collect(), ..Commit::default() };
    let csn = there.commit(commit).unwrap();
    let found = there.containers(stage.database, csn).unwrap();
    assert_eq!(found.len(), COUNT + 1);
    assert_eq!(found, here.containers(stage.database, csn).unwrap());
}

#[test]
fn missing_federation_or_server_is_an_error() {
    let stage = Stage::new();
    let url = stage.url().replace("test.fed", "other.fed");
    assert_eq!(connect(&url).unwrap_err().kind(), ErrorKind::NotFound);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("root://127.0.0.1:{}//test.fed", nobody.local_addr().unwrap().port());
    drop(nobody);
    // A closed port was once tried for as long as a server that restarts.
    let error = connect(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains(&format!("the server of {url} cannot be reached")),
        "{error}"
    );
    let error = connect(&stage.url().replace("root:", "roots:")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cannot be reached"), "the server has no TLS: {error}");
}

#[test]
fn extents_at_the_end_of_a_file_never_overlap() {
    const EACH: usize = 25;
    let stage = Stage::new();
    let path = stage.place().join("databases/run7.root");
    let identity = FileIdentity::new("run7.root", [7; 16], Timestamp::default()).unwrap();
    std::fs::write(&path, identity.front()).unwrap();
    let take = |there: femtobarn_rpc::client::RemoteCatalogue| {
        let _shared = there.locks().owner().share_database(stage.database, LONG).unwrap();
        let take = |_| there.extend_file(stage.database, "databases/run7.root", 1000).unwrap();
        (0..EACH).map(take).collect::<Vec<_>>()
    };
    let mut ranges: Vec<BlobRange> = std::thread::scope(|scope| {
        let begin = |_| {
            let (take, there) = (&take, stage.remote());
            scope.spawn(move || take(there))
        };
        let takers: Vec<_> = (0..4).map(begin).collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    ranges.sort_by_key(|range| range.offset);
    let is_apart = |pair: &[BlobRange]| pair[0].offset + pair[0].size < pair[1].offset;
    assert!(
        ranges[0].offset > identity.front_size() && ranges.windows(2).all(is_apart),
        "a key is between any two"
    );
    let end = ranges.last().map(|last| last.offset + last.size);
    assert_eq!((ranges.len(), Some(path.metadata().unwrap().len())), (4 * EACH, end));
    let there = stage.remote();
    let unlocked = there.extend_file(stage.database, "databases/run7.root", 1000).unwrap_err();
    assert_eq!(unlocked.kind(), ErrorKind::Conflict, "{unlocked}");
    let _shared = there.locks().owner().share_database(stage.database, LONG).unwrap();
    for (path, payload) in
        [("databases/no.root", 1000), ("databases/run7.root", 0), ("databases/run7.root", u64::MAX)]
    {
        assert!(there.extend_file(stage.database, path, payload).is_err());
    }
    assert!(there.extend_file(stage.database, "../test.fed/catalogue.sqlite", 1000).is_err());
    // Under the lock of another database, two clients could once get the same bytes.
    let other = DatabaseId(9999);
    let _other = there.locks().owner().share_database(other, LONG).unwrap();
    let strange = there.extend_file(other, "databases/run7.root", 1000).unwrap_err();
    assert_eq!(strange.kind(), ErrorKind::Conflict, "{strange}");
    assert_eq!(Some(path.metadata().unwrap().len()), end, "the file is unchanged");
}

/// A client once sent the front of a new file and did not wait for the answer: the call that lengthens the file
/// came first, saw an empty file, and allocated the bytes of the front for data.
#[test]
fn extension_fails_before_the_front_of_a_file_is_written() {
    let stage = Stage::new();
    let path = stage.place().join("databases/run7.root");
    let identity = FileIdentity::new("run7.root", [7; 16], Timestamp::default()).unwrap();
    let front = identity.front();
    let there = stage.remote();
    let _shared = there.locks().owner().share_database(stage.database, LONG).unwrap();
    let extend = || there.extend_file(stage.database, "databases/run7.root", 1000);
    for early in [0, 1, 100, front.len() - 1] {
        std::fs::write(&path, &front[..early]).unwrap();
        assert_eq!(extend().unwrap_err().kind(), ErrorKind::Conflict, "{early} bytes of the front");
        assert_eq!(path.metadata().unwrap().len(), early as u64, "the file is unchanged");
    }
    // A file damaged in this way has data in place of its front.
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert_eq!(extend().unwrap_err().kind(), ErrorKind::Closed);
    std::fs::write(&path, &front).unwrap();
    assert!(extend().unwrap().offset > identity.front_size());
}
