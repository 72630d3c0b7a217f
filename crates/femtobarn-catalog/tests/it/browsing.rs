//! Look-ups for people: lists of containers, commits with their changes, growth.

use femtobarn_catalog::{Commit, CommitAction, Csn, DatabaseState, DroppedDatabase, GrowthPoint};

use crate::federation::{Federation, new_container, new_database, version};

/// A federation in which everything that a commit can do to a database or container has been done.
fn changed() -> Federation {
    let fed = Federation::new();
    let [events, hits] = ["events", "hits"].map(|name| fed.container(name));
    let first = fed.publish(events, None, 10).unwrap();
    fed.publish(hits, None, 5).unwrap();
    let second = fed.publish(events, Some(first), 30).unwrap();
    let renamed_containers = vec![(fed.database, events, second, "tracks".to_owned())];
    fed.catalog.commit(Commit { renamed_containers, ..Commit::default() }).unwrap();
    let dropped_containers = vec![(fed.database, hits, fed.catalog.head().unwrap())];
    let message = "no hits any more".to_owned();
    fed.catalog.commit(Commit { dropped_containers, message, ..Commit::default() }).unwrap();
    let other = new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    let seen = fed.catalog.head().unwrap();
    fed.catalog.commit(Commit { sealed: vec![(fed.database, seen)], ..Commit::default() }).unwrap();
    let seen = fed.catalog.head().unwrap();
    let dropped_databases = vec![DroppedDatabase { id: other, seen, keeps_file: false }];
    fed.catalog.commit(Commit { dropped_databases, ..Commit::default() }).unwrap();
    fed
}

/// At every snapshot the list has the same rows as the single look-ups.
#[test]
fn the_list_of_a_snapshot_equals_its_look_ups() {
    let fed = changed();
    for at in (0..=fed.catalog.head().unwrap().0).map(Csn) {
        let mut expected = vec![];
        for database in fed.catalog.databases(at).unwrap() {
            let containers = fed.catalog.containers(database.id, at).unwrap();
            if containers.is_empty() {
                expected.push((database.name.clone(), database.state, String::new(), 0, 0));
            }
            for container in containers {
                let version = fed.catalog.version(database.id, container.id, at).unwrap();
                let (objects, bytes) = version.map_or((0, 0), |v| (v.entries - v.deleted, v.bytes));
                let row = (database.name.clone(), database.state, container.name, objects, bytes);
                expected.push(row);
            }
        }
        let listed = fed.catalog.listed_containers(at).unwrap().into_iter();
        let listed: Vec<_> = listed
            .map(|row| (row.database, row.state, row.container, row.objects, row.bytes))
            .collect();
        assert_eq!(listed, expected, "as of commit {at}");
    }
}

#[test]
fn changes_of_a_commit_have_container_action_and_number_of_objects() {
    let fed = changed();
    let changes: Vec<Vec<_>> = (1..=fed.catalog.head().unwrap().0)
        .map(|csn| {
            let changes = fed.catalog.changes_of_commit(Csn(csn)).unwrap().into_iter();
            let name = |database: &str, container: &str| format!("{database}/{container}");
            let told = changes.map(|it| (name(&it.database, &it.container), it.kind, it.objects));
            told.collect()
        })
        .collect();
    let one = |name: &str, kind, objects| vec![(name.to_owned(), kind, Some(objects))];
    assert_eq!(
        changes,
        [
            one("run7/", CommitAction::Created, 0),
            one("run7/events", CommitAction::Created, 0),
            one("run7/hits", CommitAction::Created, 0),
            one("run7/events", CommitAction::Changed, 10),
            one("run7/hits", CommitAction::Changed, 5),
            one("run7/events", CommitAction::Changed, 20),
            one("run7/tracks", CommitAction::Renamed, 0),
            one("run7/hits", CommitAction::Dropped, -5),
            one("run8/", CommitAction::Created, 0),
            one("run7/", CommitAction::Sealed, 0),
            one("run8/", CommitAction::Dropped, 0),
        ]
    );
    assert!(fed.catalog.changes_of_commit(Csn(99)).is_err());
}

#[test]
fn a_dropped_database_lists_its_containers_with_their_objects() {
    let fed = Federation::new();
    let other = new_database(&fed.catalog, "run8", DatabaseState::Open).unwrap();
    let hits = new_container(&fed.catalog, other, "hits").unwrap();
    let versions = vec![version(other, hits, None, 7)];
    let seen = fed.catalog.commit(Commit { versions, ..Commit::default() }).unwrap();
    let dropped_databases = vec![DroppedDatabase { id: other, seen, keeps_file: false }];
    let csn = fed.catalog.commit(Commit { dropped_databases, ..Commit::default() }).unwrap();
    let changes = fed.catalog.changes_of_commit(csn).unwrap().into_iter();
    let told: Vec<_> = changes.map(|it| (it.container, it.kind, it.objects)).collect();
    let dropped = |name: &str, objects| (name.to_owned(), CommitAction::Dropped, Some(objects));
    assert_eq!(told, [dropped("", 0), dropped("hits", -7)]);
}

#[test]
fn commits_are_found_by_message_and_author_and_read_page_by_page() {
    let fed = changed();
    let head = fed.catalog.head().unwrap();
    let csns = |at: Csn, text: &str, limit| {
        let commits = fed.catalog.commits_until(at, text, limit).unwrap();
        commits.into_iter().map(|row| row.csn.0).collect::<Vec<_>>()
    };
    assert_eq!(csns(head, "", 3), [11, 10, 9]);
    assert_eq!(csns(Csn(8), "", 2), [8, 7]);
    assert_eq!(csns(Csn::MAX, "NO HITS", 10), [8]);
    let user = fed.catalog.commit_by_csn(head).unwrap().user;
    assert_eq!(csns(head, &format!("{user}@"), 100).len(), 11);
    assert!(csns(head, "100%", 10).is_empty(), "a text is not a pattern");
    let message = "Größe der Läufe".to_owned();
    let csn = fed.catalog.commit(Commit { message, ..Commit::default() }).unwrap();
    assert_eq!(csns(csn, "LÄUFE", 10), [csn.0]);
}

#[test]
fn growth_ends_at_the_size_of_the_newest_snapshot_with_as_few_points_as_wanted() {
    let fed = changed();
    let growth = fed.catalog.growth(100).unwrap();
    let sums = |at: Csn| {
        let rows = fed.catalog.listed_containers(at).unwrap();
        rows.iter().fold((0, 0), |sum, row| (sum.0 + row.objects, sum.1 + row.bytes))
    };
    let told: Vec<_> = growth.iter().map(|point| (point.objects, point.bytes)).collect();
    assert_eq!(told, growth.iter().map(|point| sums(point.csn)).collect::<Vec<_>>());
    assert_eq!(told, [(10, 80), (15, 120), (35, 280), (30, 240)]);
    let last: GrowthPoint = *growth.last().unwrap();
    assert_eq!(last.time_us, fed.catalog.commit_by_csn(last.csn).unwrap().time_us);
    assert_eq!(fed.catalog.growth(2).unwrap().last(), Some(&last));
    assert_eq!(fed.catalog.growth(2).unwrap().len(), 2);
}
