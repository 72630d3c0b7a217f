//! Catalogues that are newer than this software, damaged, or missing.

use std::fs;
use std::path::Path;

use femtobarn_catalog::{ErrorKind, LocalCatalogue};

use crate::federation::Federation;

#[test]
fn a_newer_format_is_refused_and_both_versions_are_named() {
    let Federation { catalog, folder, keep: _keep, .. } = Federation::new();
    drop(catalog);
    edit(&folder, "UPDATE federation SET value = '8' WHERE key = 'format'");
    let error = LocalCatalogue::open(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("version 8") && text.contains("version 7;"), "{text}");
}

#[test]
fn the_format_of_the_pre_releases_is_refused_with_the_remedy() {
    let Federation { catalog, folder, keep: _keep, .. } = Federation::new();
    drop(catalog);
    edit(&folder, "UPDATE federation SET value = '1' WHERE key = 'format'");
    let error = LocalCatalogue::open(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("version 1 of a pre-release; export"), "{text}");
}

#[test]
fn a_catalogue_without_its_identity_is_corrupt() {
    let Federation { catalog, folder, keep: _keep, .. } = Federation::new();
    drop(catalog);
    edit(&folder, "DELETE FROM federation WHERE key = 'uuid'");
    assert_eq!(LocalCatalogue::open(&folder).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_file_that_is_no_catalogue_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalogue.sqlite");
    for bytes in [&b"this is not a database, whatever its name says"[..], b"", &[0x5a; 8192]] {
        fs::write(&path, bytes).unwrap();
        let error = LocalCatalogue::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("catalogue.sqlite"), "{error}");
    }
}

#[test]
fn garbled_pages_are_corrupt_and_never_a_panic() {
    let Federation { catalog, folder, keep: _keep, database } = Federation::new();
    drop(catalog);
    let path = folder.join("catalogue.sqlite");
    let sound = fs::read(&path).unwrap();
    for page in 0..sound.len() / 4096 {
        for first in [page * 4096 + 100, page * 4096, page * 4096 + 2048] {
            let mut garbled = sound.clone();
            let last = (first + 900).min(sound.len());
            garbled[first..last].iter_mut().for_each(|byte| *byte ^= 0xa5);
            fs::write(&path, &garbled).unwrap();
            if let Err(error) = use_everything(&folder, database) {
                let allowed = [ErrorKind::Corrupt, ErrorKind::NotFound, ErrorKind::Internal];
                assert!(allowed.contains(&error.kind()), "page {page}: {error}");
            }
        }
    }
}

#[test]
fn an_open_catalogue_that_is_deleted_or_replaced_is_refused() {
    let fed = Federation::new();
    let events = fed.container("events");
    let path = fed.folder.join("catalogue.sqlite");
    let aside = fed.folder.join("aside");
    fs::rename(&path, &aside).unwrap();
    for error in [fed.catalog.head().unwrap_err(), fed.publish(events, None, 1).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("was deleted while it was open"), "{error}");
    }
    fs::write(&path, b"").unwrap();
    let error = fed.publish(events, None, 1).unwrap_err();
    assert!(error.to_string().contains("was replaced"), "{error}");
    fs::rename(&aside, &path).unwrap();
    fed.publish(events, None, 1).unwrap();
}

fn use_everything(
    folder: &Path,
    database: femtobarn_catalog::DatabaseId,
) -> femtobarn_catalog::Result<()> {
    let catalog = LocalCatalogue::open(folder)?;
    let head = catalog.head()?;
    catalog.databases(head)?;
    catalog.containers(database, head)?;
    catalog.newest_versions(database, head)?;
    catalog.classes()?;
    catalog.history(10)?;
    catalog.reserve_database()?;
    catalog.commit(femtobarn_catalog::Commit::default())?;
    Ok(())
}

fn edit(folder: &Path, statement: &str) {
    let sql = rusqlite::Connection::open(folder.join("catalogue.sqlite")).unwrap();
    sql.execute_batch(statement).unwrap();
}
