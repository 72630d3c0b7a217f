//! A store of S3 that is silent.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use femtobarn_archive::stores::{S3Settings, S3Store};
use femtobarn_archive::{Error, Store};

/// A bucket; its key is of two words that the environment has in every test.
fn bucket(url: &str, prefix: &str) -> S3Store {
    let key_variables = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"].map(str::to_owned);
    let settings = S3Settings {
        url: url.to_owned(),
        bucket: "lhc".to_owned(),
        region: "us-east-1".to_owned(),
        prefix: prefix.to_owned(),
        key_variables,
        in_place: false,
    };
    S3Store::new(settings).unwrap()
}

#[test]
fn whoever_waits_for_a_silent_server_can_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        // Connections stay open, and nothing is ever said.
        let _held: Vec<_> = listener.incoming().collect();
    });
    let store = bucket(&url, "");
    let folder = tempfile::tempdir().unwrap();
    let (small, large, to) =
        (folder.path().join("small"), folder.path().join("large"), folder.path().join("to"));
    fs::write(&small, b"seven bytes").unwrap();
    fs::write(&large, vec![7; 9 << 20]).unwrap();
    let began = Instant::now();
    for stopped in [
        store.put("a", &small, &mut |_| false).map(drop),
        store.put("a", &large, &mut |_| false).map(drop),
        store.get("a", &to, &mut |_| false),
        store.examine("a", 11, &mut |_| false).map(drop),
        store.remove("a", &mut |_| false),
    ] {
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(!to.exists());
}
