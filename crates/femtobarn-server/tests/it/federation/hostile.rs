//! Damaged files: an error, never a panic, and other databases unharmed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use femtobarn_catalog::LocalCatalogue;
use femtobarn_server::physical::{FederationStorage, Opaque, PosixStorage, Storage};

use super::{Stage, at};

#[test]
fn damaged_bytes_give_an_error_or_the_original_bytes() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..300);
    let path = stage.file("run7.root");
    let whole = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut refused = 0;
    // A prime number of bytes, so that all kinds of fields are hit.
    for position in (0..whole.len()).step_by(97) {
        file.write_all_at(&[!whole[position]], position as u64).unwrap();
        // A new storage with an empty cache.
        let catalogue = Arc::new(LocalCatalogue::open(stage.federation.folder()).unwrap());
        let files = Arc::new(PosixStorage::new(stage.federation.folder()).unwrap());
        let fresh = FederationStorage::new(catalogue, files);
        match fresh.open(&at("/run7.root"), Default::default(), Opaque::default()) {
            Ok(file) => drop(super::all_of(&*file)),
            Err(_) => refused += 1,
        }
        file.write_all_at(&whole[position..][..1], position as u64).unwrap();
    }
    assert!(refused > 0, "no damaged metadata was refused");
}

#[test]
fn a_truncated_or_missing_file_is_an_error_and_other_databases_are_listed() {
    let stage = Stage::new().with_ten_events();
    stage.append(10..1000);
    let mut transaction = stage.begin();
    transaction.create_database("other").unwrap();
    transaction.commit().unwrap();
    let path = stage.file("run7.root");
    let open = stage.open("/run7.root", "").unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    for kept in [1000, 200, 50, 0] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(kept).unwrap();
        assert!(open.read_at(0, &mut vec![0; size as usize]).is_err());
        let listed = stage.shown.list(&at("/"), true, Opaque::default()).unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed[0].metadata.is_some());
    }
    std::fs::remove_file(&path).unwrap();
    assert!(stage.open("/run7.root", "").is_err());
    assert!(stage.open("/other.root", "").is_ok());
}
