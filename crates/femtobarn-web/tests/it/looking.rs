//! Objects as JSON and numbers of fields.

use std::sync::Arc;

use femtobarn_web::Container;
use rntuple::ErrorKind;

use crate::file_of;

rntuple::row! {
    struct Track { pt: f32, hits: Vec<i16> }
}
rntuple::row! {
    struct Event { id: u64, name: String, weight: Option<f64>, tracks: Vec<Track>, _deleted: bool }
}

fn event(id: u64, sizes: &[usize], is_deleted: bool) -> Event {
    let track = |&size: &usize| Track { pt: size as f32 + 0.5, hits: (0..size as i16).collect() };
    Event {
        id,
        name: format!("\"{id}\"\n"),
        weight: id.is_multiple_of(2).then_some(f64::NAN),
        tracks: sizes.iter().map(track).collect(),
        _deleted: is_deleted,
    }
}

rntuple::row! {
    struct Grid { cells: Vec<Vec<i16>>, corners: [f64; 2] }
}
rntuple::row! {
    struct Hit { charge: Option<f32>, is_good: bool }
}
rntuple::row! {
    struct Shower { best: Option<f64>, hits: Vec<Hit> }
}

/// Four events, of which the second was deleted.
fn container() -> Container {
    let events = [
        event(u64::MAX, &[], false),
        event(1, &[9, 9], true),
        event(2, &[2, 0], false),
        event(3, &[25], false),
    ];
    Container::open(Arc::new(file_of(&events)), "events").unwrap()
}

#[test]
fn fields_and_paths_of_numbers_are_described_without_the_marks_of_deletions() {
    let number = |path: &str, lists: &str| {
        format!(r#"{{"path":"{path}","lists":[{lists}],"is_truth":false}}"#)
    };
    let numbers = [
        number("id", ""),
        number("weight", ""),
        number("tracks.#", ""),
        number("tracks.pt", r#""tracks""#),
        number("tracks.hits.#", r#""tracks""#),
        number("tracks.hits", r#""tracks","tracks.hits""#),
    ];
    assert_eq!(
        container().description(),
        r#"{"entries":4,"fields":[{"name":"id","type":"std::uint64_t"},{"name":"name","type":"std::string"},"#
            .to_owned()
            + r#"{"name":"weight","type":"std::optional<double>"},{"name":"tracks","type":""}],"#
            + &format!(r#""numbers":[{}],"unreadable":[]}}"#, numbers.join(","))
    );
}

#[test]
fn objects_are_json_whose_numbers_javascript_can_hold() {
    let first = r#"{"entry":0,"value":{"id":"18446744073709551615","name":"\"18446744073709551615\"\u000a","weight":null,"tracks":[]}}"#;
    let second = r#"{"entry":2,"value":{"id":2,"name":"\"2\"\u000a","weight":"NaN","tracks":[{"pt":2.5,"hits":[0,1]},{"pt":0.5,"hits":[]}]}}"#;
    let container = container();
    let told = container.objects(0, 2).unwrap();
    assert_eq!(told, format!(r#"{{"next":3,"objects":[{first},{second}]}}"#));
    let rest = container.objects(3, 2).unwrap();
    assert!(rest.starts_with(r#"{"next":4,"objects":[{"entry":3,"#), "{rest}");
    assert!(rest.contains(r#"18,19,"… 5 more"]"#), "{rest}");
    assert_eq!(container.objects(4, 2).unwrap(), r#"{"next":4,"objects":[]}"#);
}

#[test]
fn numbers_at_any_depth_are_those_of_objects_that_are_not_deleted() {
    let container = container();
    let numbers = |path: &str| {
        let numbers = container.numbers(path, 0..4).unwrap();
        (numbers.values, numbers.offsets)
    };
    assert_eq!(numbers("tracks.pt"), (vec![2.5, 0.5, 25.5], vec![0, 0, 2, 3]));
    assert_eq!(numbers("tracks.#"), (vec![0.0, 2.0, 1.0], vec![0, 1, 2, 3]));
    assert_eq!(numbers("tracks.hits.#"), (vec![2.0, 0.0, 25.0], vec![0, 0, 2, 3]));
    assert_eq!(numbers("id"), (vec![u64::MAX as f64, 2.0, 3.0], vec![0, 1, 2, 3]));
    let (hits, offsets) = numbers("tracks.hits");
    assert_eq!((hits.len(), hits[..4].to_vec()), (27, vec![0.0, 1.0, 0.0, 1.0]));
    assert_eq!(offsets, [0, 0, 2, 27]);
    assert_eq!(container.numbers("tracks.pt", 3..4).unwrap().values, [25.5]);
}

#[test]
fn lists_of_lists_and_arrays_are_flattened_for_each_object() {
    let grids = [
        Grid { cells: vec![vec![1], vec![], vec![2, 3]], corners: [0.5, 1.5] },
        Grid { cells: vec![vec![4]], corners: [2.5, -1e300] },
    ];
    let container = Container::open(Arc::new(file_of(&grids)), "events").unwrap();
    let described = container.description();
    let paths = described.split(r#"{"path":""#).skip(1).map(|rest| rest.split('"').next().unwrap());
    assert_eq!(paths.collect::<Vec<_>>(), ["cells.#", "cells", "corners"]);
    assert!(described.contains(r#""lists":["cells","cells"]"#), "{described}");
    let numbers = |path: &str| {
        let numbers = container.numbers(path, 0..2).unwrap();
        (numbers.values, numbers.offsets)
    };
    assert_eq!(numbers("cells.#"), (vec![3.0, 1.0], vec![0, 1, 2]));
    assert_eq!(numbers("cells"), (vec![1.0, 2.0, 3.0, 4.0], vec![0, 3, 4]));
    assert_eq!(numbers("corners"), (vec![0.5, 1.5, 2.5, -1e300], vec![0, 2, 4]));
    let second = r#"{"entry":1,"value":{"cells":[[4]],"corners":[2.5,-1e300]}}"#;
    assert!(container.objects(1, 5).unwrap().contains(second));
}

#[test]
fn optional_numbers_that_are_missing_keep_their_places() {
    let hit = |charge: Option<f32>| Hit { charge, is_good: charge.is_some() };
    let showers = [
        Shower { best: None, hits: vec![hit(Some(1.5)), hit(None)] },
        Shower { best: Some(f64::NAN), hits: vec![] },
        Shower { best: Some(2.0), hits: vec![hit(None)] },
    ];
    let container = Container::open(Arc::new(file_of(&showers)), "events").unwrap();
    let best = container.numbers("best", 0..3).unwrap();
    assert_eq!((best.offsets, best.missing), (vec![0, 1, 2, 3], vec![1, 0, 0]));
    assert!(best.values[1].is_nan());
    assert_eq!(best.values[2], 2.0);
    let charges = container.numbers("hits.charge", 0..3).unwrap();
    assert_eq!((charges.offsets, charges.missing), (vec![0, 2, 2, 3], vec![0, 1, 1]));
    assert_eq!(charges.values[0], 1.5);
    let good = container.numbers("hits.is_good", 0..3).unwrap();
    assert_eq!((good.values, good.missing), (vec![1.0, 0.0, 0.0], vec![]));
    assert!(container.description().contains(r#""hits.is_good","lists":["hits"],"is_truth":true"#));
}

#[test]
fn fields_without_numbers_and_missing_entries_are_refused() {
    let container = container();
    let kind = |path: &str, end: u64| container.numbers(path, 0..end).unwrap_err().kind();
    assert_eq!(kind("name", 4), ErrorKind::Invalid);
    assert_eq!(kind("tracks", 4), ErrorKind::Invalid);
    assert_eq!(kind("track", 4), ErrorKind::NotFound);
    assert_eq!(kind("id", 5), ErrorKind::NotFound);
}
