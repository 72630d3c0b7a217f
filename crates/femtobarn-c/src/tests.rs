//! The layout of the structures of `femtobarn.h`: a C compiler and Rust agree.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use crate::{ArrowArray, ArrowArrayStream, ArrowSchema, CCondition, CConstant, COptions};

/// For a structure, what C calls it, its size, and the places of its members.
macro_rules! layout {
    ($rust:ty => $c:literal: $($member:ident),+) => {
        ($c, size_of::<$rust>(), vec![$((stringify!($member), offset_of!($rust, $member))),+])
    };
}

#[test]
fn structures_of_the_header_have_the_layout_that_a_c_compiler_gives_them() {
    let layouts = [
        layout!(COptions => "fb_options":
            cache_bytes, threads, streams, timeout_seconds, disk_cache, disk_cache_bytes, memcached, memcached_count),
        layout!(CCondition => "fb_condition": path, comparison, kind, value),
        layout!(ArrowSchema => "struct ArrowSchema":
            format, name, metadata, flags, n_children, children, dictionary, release, private_data),
        layout!(ArrowArray => "struct ArrowArray":
            length, null_count, offset, n_buffers, n_children, buffers, children, dictionary, release, private_data),
        layout!(ArrowArrayStream => "struct ArrowArrayStream":
            get_schema, get_next, get_last_error, release, private_data),
    ];
    let mut source = String::from("#include <femtobarn.h>\n");
    let mut claim = |claim: String| writeln!(source, "_Static_assert({claim}, \"{claim}\");");
    for (name, size, members) in layouts {
        claim(format!("sizeof({name}) == {size}")).unwrap();
        for (member, place) in members {
            claim(format!("offsetof({name}, {member}) == {place}")).unwrap();
        }
    }
    for (member, place) in [
        ("integer", offset_of!(CConstant, integer)),
        ("unsigned_integer", offset_of!(CConstant, unsigned_integer)),
        ("real", offset_of!(CConstant, real)),
        ("text", offset_of!(CConstant, text)),
    ] {
        let value = offset_of!(CCondition, value);
        claim(format!("offsetof(fb_condition, value.{member}) == {}", value + place)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.c");
    std::fs::write(&file, source).unwrap();
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/femtobarn/include");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-fsyntax-only", "-I"]).arg(headers).arg(file);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
