//! `storage.toml`: its valid and its invalid contents.

use femtobarn_archive::{Error, StorageSettings};

fn refusal(text: &str) -> String {
    match StorageSettings::parse(text) {
        Err(Error::Invalid { what }) => what,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn the_first_rule_that_matches_counts() {
    let text = "[stores.a]\nkind = 'folder'\npath = '/a'\n[stores.b]\nkind = 'folder'\npath = '/b'\n\
                [[rules]]\ndatabases = 'raw-?'\nstores = ['a', 'b']\ncopies = 1\n\
                [[rules]]\ndatabases = 'raw-*'\nstores = ['a', 'b']\n";
    let settings = StorageSettings::parse(text).unwrap();
    assert_eq!(settings.rule_for("raw-7").unwrap().copies(), 1);
    assert_eq!(settings.rule_for("raw-77").unwrap().copies(), 2);
    assert!(settings.rule_for("aod-7").is_none());
    assert!(settings.open_store("b").unwrap().is_some());
    assert!(settings.open_store("c").unwrap().is_none());
}

#[test]
fn a_mistake_is_named_with_its_place() {
    assert!(refusal("[stores.a]\nkind = 'tape'").contains("kind"));
    assert!(
        refusal("[[rules]]\ndatabases = '*'\nstores = ['a']")
            .contains("\"a\", which storage.toml does not define")
    );
    assert!(refusal("[disk]\nhigh_percent = 50").contains("low_percent 85"));
    assert!(refusal("[disks]").contains("disks"));
    let relative = StorageSettings::parse("[stores.a]\nkind = 'folder'\npath = 'a'").unwrap();
    let error = relative.open_store("a").unwrap_err();
    assert!(
        error.to_string().contains("store a: the folder a of a store is not absolute"),
        "{error}"
    );
}
