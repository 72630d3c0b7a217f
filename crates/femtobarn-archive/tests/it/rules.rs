//! What the rules of the settings do by themselves: on a disk that is too full, and with stores that fail.

use std::fs::File;

use femtobarn_catalog::ReplicaRow;

use crate::sealed::{Sealed, on};

/// Every disk is fuller than that.
const TOO_FULL: &str = "[disk]\nhigh_percent = 0.0001\nlow_percent = 0.0001\n";

/// A rule that copies all databases to stores.
fn rule(stores: &str) -> String {
    format!("[[rules]]\ndatabases = '*'\nstores = [{stores}]\n")
}

/// Makes a file, and its copy, larger than all that is on the disk, of which they take nothing; returns the size.
fn make_large(of: &Sealed, name: &str, copy: ReplicaRow) -> u64 {
    let disk = nix::sys::statvfs::statvfs(of.top()).unwrap();
    let size = (1 << 36) + (disk.blocks() - disk.blocks_available()) * disk.fragment_size();
    for path in [of.file(name), of.store().join(&copy.key)] {
        File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    }
    of.catalogue.record_replica(&ReplicaRow { size, ..copy }).unwrap();
    size
}

#[test]
fn a_disk_that_gives_back_space_later_is_not_emptied_altogether() {
    let of = Sealed::new();
    of.settings(&format!("{}{}{TOO_FULL}", of.folder_store(), rule("'disk2'")));
    let archive = of.archive();
    let sizes = ["run6", "run7", "run8"].map(|name| {
        let id = of.database(name, b"seven");
        make_large(&of, name, archive.migrate(id, "disk2", &mut *on()).unwrap())
    });
    let applied = archive.apply_rules(&mut *on()).unwrap();
    assert_eq!((applied.evicted, applied.failed), (vec![("run6".to_owned(), sizes[0])], vec![]));
}
